#include "coordinator/spare_memory.h"

#include <malloc.h>

#include <algorithm>
#include <utility>

#include "schema/metrics/process_use.h"

namespace kiln {

SpareMemory::SpareMemory() : SpareMemory(resident_bytes, [] { malloc_trim(0); }) {}

bool SpareMemory::tick(int64_t turns) {
  const bool calm = turns - std::exchange(turns_, turns) < kCalmTurns;
  const double now = resident_();
  if (least_ < 0 || now < least_) least_ = now;
  if (!calm || now - least_ < kGrowthBytes) return false;
  give_back_();
  least_ = resident_();
  return true;
}

}  // namespace kiln
