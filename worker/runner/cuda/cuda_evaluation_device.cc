#include "worker/runner/cuda/cuda_evaluation_device.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compiler_core/base/check.h"

namespace kiln::runner {
namespace {

constexpr int kThreads = 256;                 // a block; utility.cuh knows
constexpr int64_t kItemsAThread = 4;          // at least, where there are enough
constexpr int64_t kBlocksAnSm = 8;            // all that fit at once
constexpr int64_t kFoldSteps[] = {4096, 64};  // tallies left after each, the last leaves one
constexpr int64_t kTallyBytes = sizeof(Tally);
constexpr int64_t kGuard = int64_t{64} << 10;  // at least, on each side
constexpr int64_t kMaxGuard = int64_t{4} << 20;
constexpr int64_t kMinCalibrationBytes = int64_t{1} << 20;
constexpr int64_t kMaxCalibrationBytes = int64_t{32} << 20;
constexpr int kCalibrationRuns = 5;
constexpr int64_t kKeptShare = 8;  // of the card's memory: an eighth is kept between workloads

constexpr EvaluationDevice::Policy kPolicy = {
    .max_workloads = 24,  // what a worker has leases of, and what is to come back for a final
    .kept_bytes = 0,      // by the card
    .reference_elements = int64_t{64} << 20,
    .most_other_sizes = int64_t{64} << 20,
    .alignment = 256,
    .min_copies = 2,
    .max_copies = 16384,
    .min_warm_ups = 2,
    .max_warm_ups = 3,
    .warm_up_us = 400,
    .sample_us = 200,
    .long_us = 100,
    .max_launches = 256,
    .race_budget_us = 30e3,
    .final_budget_us = 150e3,
    .max_drift = 0.05,
};

// The parameters by which kiln_random and kiln_check_random know what was drawn.
std::vector<int64_t> random_parameters(const InputDraw& draw, Floats floats, DevicePtr memory) {
  return {parameter(memory),
          draw.count(),
          static_cast<int64_t>(draw.dtype),
          static_cast<int64_t>(draw.seed),
          static_cast<int64_t>(floats),
          draw.min,
          draw.max - draw.min + 1,
          draw.rises};
}

}  // namespace

int64_t parameter(double value) {
  return std::bit_cast<int64_t>(value);
}

CudaEvaluationDevice::CudaEvaluationDevice(CudaModule module, Stream stream)
    : EvaluationDevice(module.device(), stream, kPolicy), module_(std::move(module)) {
  policy_.kept_bytes = device().memory_bytes() / kKeptShare;
}

Result<std::unique_ptr<CudaEvaluationDevice>> CudaEvaluationDevice::load(
    const std::shared_ptr<const CudaDevice>& device, std::string_view binary,
    const Digest& digest) {
  const int64_t sms = std::max(1, device->facts().sms);
  TRY(CudaModule module, CudaModule::load(device, binary, digest));
  TRY(const Stream stream, device->create_stream());
  std::unique_ptr<CudaEvaluationDevice> made(new CudaEvaluationDevice(std::move(module), stream));
  // Room for one tally per thread at most, then for the results of each step of folding.
  const int64_t threads = kBlocksAnSm * sms * kThreads;
  TRY(made->partial_,
      made->pool().allocate((threads + kFoldSteps[0] + kFoldSteps[1]) * kTallyBytes));
  TRY(made->results_, made->pool().allocate(static_cast<int64_t>(kMaxTallies) * kTallyBytes));
  TRY_STATUS(made->make_calibration());
  return made;
}

CudaEvaluationDevice::~CudaEvaluationDevice() {
  device().destroy_stream(stream());
}

int64_t CudaEvaluationDevice::blocks_for(int64_t work) const {
  const int64_t items = kThreads * kItemsAThread;
  return std::clamp<int64_t>((work + items - 1) / items, 1,
                             kBlocksAnSm * std::max(1, module_.device()->facts().sms));
}

Status CudaEvaluationDevice::launch(const char* entry, int64_t work,
                                    std::vector<int64_t> parameters) {
  if (work <= 0) return {};
  const int64_t blocks = blocks_for(work);
  parameters.push_back(blocks * kThreads);
  return module_.launch(entry, blocks, kThreads, parameters, stream());
}

Status CudaEvaluationDevice::tally(const char* entry, int64_t work,
                                   std::vector<int64_t> parameters) {
  CHECK(pending_ < kMaxTallies, "the caller takes them in time");
  const int64_t blocks = blocks_for(work);
  int64_t count = blocks * kThreads, from = parameter(partial_.data());
  const int64_t result = parameter(results_.data()) + static_cast<int64_t>(pending_) * kTallyBytes;
  parameters.push_back(from);
  parameters.push_back(count);
  TRY_STATUS(module_.launch(entry, blocks, kThreads, parameters, stream()));
  while (count > 1) {
    const int64_t left = count > kFoldSteps[0]   ? kFoldSteps[0]
                         : count > kFoldSteps[1] ? kFoldSteps[1]
                                                 : 1;
    const int64_t to = left == 1 ? result : from + count * kTallyBytes;
    const int64_t fold[] = {from, count, to, left};
    TRY_STATUS(
        module_.launch("kiln_fold", (left + kThreads - 1) / kThreads, kThreads, fold, stream()));
    count = left;
    from = to;
  }
  ++pending_;
  return {};
}

Result<std::vector<Tally>> CudaEvaluationDevice::take() {
  std::vector<Tally> tallies(std::exchange(pending_, 0));
  TRY_STATUS(synchronize());
  if (tallies.empty()) return tallies;
  auto* bytes = reinterpret_cast<uint8_t*>(tallies.data());
  TRY_STATUS(device().copy_to_host({bytes, tallies.size() * sizeof(Tally)}, results_.data()));
  return tallies;
}

Result<GuardedMemory> CudaEvaluationDevice::allocate_guarded(std::string name, int64_t bytes) {
  TRY(PooledMemory pooled, pool().allocate(bytes + 2 * kGuard));
  // The rear guard is the rest of the block, but limited: a pool's block may be far larger than
  // asked for.
  const int64_t behind = std::min(pooled.bytes() - kGuard - bytes, kMaxGuard);
  const DevicePtr data = pooled.data() + static_cast<DevicePtr>(kGuard);
  GuardedMemory memory{std::move(name), data,
                       bytes,           kGuard,
                       behind,          std::make_shared<const PooledMemory>(std::move(pooled))};
  TRY_STATUS(repair_guards(memory));
  return memory;
}

Status CudaEvaluationDevice::repair_guards(const GuardedMemory& memory) {
  return launch("kiln_guard", memory.before + memory.behind,
                {parameter(memory.data), memory.bytes, memory.before, memory.behind});
}

Status CudaEvaluationDevice::check_guards(const GuardedMemory& memory) {
  return tally("kiln_check_guard", memory.before + memory.behind,
               {parameter(memory.data), memory.bytes, memory.before, memory.behind});
}

Status CudaEvaluationDevice::draw(const InputDraw& draw, Floats floats, DevicePtr to) {
  return launch("kiln_random", draw.count(), random_parameters(draw, floats, to));
}

Status CudaEvaluationDevice::check_drawn(const InputDraw& draw, Floats floats, DevicePtr at) {
  return tally("kiln_check_random", draw.count(), random_parameters(draw, floats, at));
}

Status CudaEvaluationDevice::survey(DevicePtr data, DType dtype, int64_t count) {
  return tally("kiln_survey", count, {parameter(data), count, static_cast<int64_t>(dtype)});
}

Status CudaEvaluationDevice::compare(const Comparison& c) {
  return tally("kiln_compare", c.count,
               {parameter(c.got), parameter(c.want), parameter(c.declared), c.count,
                static_cast<int64_t>(c.dtype), parameter(c.relative), parameter(c.scale)});
}

Status CudaEvaluationDevice::make_calibration() {
  // From and to together beyond the L2, so that it is memory that is timed.
  calibration_bytes_ =
      std::clamp(device().cache_bytes() / 16 * 16, kMinCalibrationBytes, kMaxCalibrationBytes);
  TRY(calibration_, pool().allocate(2 * calibration_bytes_));
  TRY_STATUS(device().fill(calibration_.data(), 0x3c, 2 * calibration_bytes_, stream()));
  TRY(begin_, device().create_event());
  TRY(end_, device().create_event());
  return {};
}

Status CudaEvaluationDevice::launch_calibration() {
  const int64_t words = calibration_bytes_ / 16, from = parameter(calibration_.data());
  return launch("kiln_copy", words, {from + calibration_bytes_, from, words});
}

Result<double> CudaEvaluationDevice::between_us(const std::function<Status(Stream)>& work) {
  TRY_STATUS(begin_->record(stream()));
  TRY_STATUS(work(stream()));
  TRY_STATUS(end_->record(stream()));
  TRY_STATUS(synchronize());
  return end_->us_since(*begin_);
}

Result<double> CudaEvaluationDevice::time_us(const std::function<Status(Stream)>& work) {
  TRY_STATUS(launch_calibration());
  return between_us(work);
}

Result<double> CudaEvaluationDevice::calibration_us() {
  double least = INFINITY;
  TRY_STATUS(launch_calibration());
  for (int run = 0; run < kCalibrationRuns; ++run) {
    TRY(const double us, between_us([this](Stream) { return launch_calibration(); }));
    least = std::min(least, us);
  }
  return least;
}

}  // namespace kiln::runner
