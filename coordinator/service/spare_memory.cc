#include "coordinator/service/spare_memory.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "schema/metrics/metrics_text.h"

namespace kiln {
namespace {

double bytes_not_in_use() {
  const struct mallinfo2 info = mallinfo2();
  return std::max(0.0, resident_bytes() - static_cast<double>(info.uordblks + info.hblkhd));
}

}  // namespace

SpareMemory::SpareMemory() : SpareMemory(bytes_not_in_use, [] { malloc_trim(0); }) {}

bool SpareMemory::tick(int64_t turns) {
  const bool calm = turns - std::exchange(turns_, turns) < kCalmTurns;
  if (!calm && least_ >= 0) return false;
  const double now = spare_();
  if (least_ < 0 || now < least_) least_ = now;
  if (!calm || now - least_ < kGrowthBytes) return false;
  give_back_();
  least_ = spare_();
  return true;
}

}  // namespace kiln
