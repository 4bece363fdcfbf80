#include "worker/runner/cuda/utility_kernels.h"

#include <algorithm>
#include <bit>
#include <vector>

#include "compiler_core/base/check.h"

namespace kiln::runner {
namespace {

constexpr int kThreads = 256;                 // a block; utility.cuh knows
constexpr int64_t kItemsAThread = 4;          // at least, where there are enough
constexpr int64_t kBlocksAnSm = 8;            // all that fit at once
constexpr int64_t kFoldSteps[] = {4096, 64};  // tallies left after each, the last leaves one
constexpr int64_t kTallyBytes = sizeof(Tally);

}  // namespace

int64_t parameter(double value) {
  return std::bit_cast<int64_t>(value);
}

Result<std::unique_ptr<UtilityKernels>> UtilityKernels::load(
    std::shared_ptr<const CudaDevice> device, std::string_view binary, const Digest& digest) {
  TRY(CudaModule module, CudaModule::load(std::move(device), binary, digest));
  std::unique_ptr<UtilityKernels> made(new UtilityKernels(std::move(module)));
  TRY(made->stream_, made->device()->create_stream());
  // Of every thread at most, then those of the steps of folding.
  const int64_t threads = kBlocksAnSm * std::max(1, made->device()->facts().sms) * kThreads;
  TRY(made->partial_,
      made->pool_.allocate((threads + kFoldSteps[0] + kFoldSteps[1]) * kTallyBytes));
  TRY(made->results_, made->pool_.allocate(static_cast<int64_t>(kMaxTallies) * kTallyBytes));
  return made;
}

UtilityKernels::~UtilityKernels() {
  if (stream_ != nullptr) device()->destroy_stream(stream_);
}

int64_t UtilityKernels::blocks_for(int64_t work) const {
  const int64_t items = kThreads * kItemsAThread;
  return std::clamp<int64_t>((work + items - 1) / items, 1,
                             kBlocksAnSm * std::max(1, device()->facts().sms));
}

Status UtilityKernels::launch(const char* entry, int64_t work, std::vector<int64_t> parameters) {
  if (work <= 0) return {};
  const int64_t blocks = blocks_for(work);
  parameters.push_back(blocks * kThreads);
  return module_.launch(entry, blocks, kThreads, parameters, stream_);
}

Status UtilityKernels::tally(const char* entry, int64_t work, std::vector<int64_t> parameters) {
  CHECK(pending_ < kMaxTallies, "the caller takes them in time");
  const int64_t blocks = blocks_for(work);
  int64_t count = blocks * kThreads, from = parameter(partial_.data());
  const int64_t result = parameter(results_.data()) + static_cast<int64_t>(pending_) * kTallyBytes;
  parameters.push_back(from);
  parameters.push_back(count);
  TRY_STATUS(module_.launch(entry, blocks, kThreads, parameters, stream_));
  while (count > 1) {
    const int64_t left = count > kFoldSteps[0]   ? kFoldSteps[0]
                         : count > kFoldSteps[1] ? kFoldSteps[1]
                                                 : 1;
    const int64_t to = left == 1 ? result : from + count * kTallyBytes;
    const int64_t fold[] = {from, count, to, left};
    TRY_STATUS(
        module_.launch("kiln_fold", (left + kThreads - 1) / kThreads, kThreads, fold, stream_));
    count = left;
    from = to;
  }
  ++pending_;
  return {};
}

Result<std::vector<Tally>> UtilityKernels::take() {
  std::vector<Tally> tallies(std::exchange(pending_, 0));
  TRY_STATUS(synchronize());
  if (tallies.empty()) return tallies;
  auto* bytes = reinterpret_cast<uint8_t*>(tallies.data());
  TRY_STATUS(device()->copy_to_host({bytes, tallies.size() * sizeof(Tally)}, results_.data()));
  return tallies;
}

}  // namespace kiln::runner
