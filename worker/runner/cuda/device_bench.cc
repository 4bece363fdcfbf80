#include "worker/runner/cuda/device_bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace kiln::runner {
namespace {

constexpr double kSampleUs = 200;
constexpr double kLongUs = 100;  // such a launch is a sample of its own
constexpr int kMaxLaunches = 256;
constexpr int64_t kMaxCopies = 16384;
constexpr int64_t kAlignment = 256;
constexpr int64_t kMinCalibrationBytes = int64_t{1} << 20;
constexpr int64_t kMaxCalibrationBytes = int64_t{32} << 20;
constexpr int kCalibrationRuns = 5;
constexpr double kMaxDrift = 0.05;
constexpr double kMinClock = 0.9;  // of the warm one
constexpr int64_t kClockPeriodUs = 5000;
constexpr int kMaxDropped = 10;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

int64_t padded(int64_t bytes) {
  // One line more than it needs, so that buffers of a power of two do not share their cache sets.
  return (bytes + kAlignment - 1) / kAlignment * kAlignment + kAlignment;
}

}  // namespace

Result<CalibrationKernel> CalibrationKernel::make(UtilityKernels& utility) {
  CalibrationKernel calibration(utility);
  // From and to together beyond the L2, so that it is memory that is looked at.
  calibration.bytes_ = std::clamp(utility.device()->facts().l2_bytes / 16 * 16,
                                  kMinCalibrationBytes, kMaxCalibrationBytes);
  TRY(calibration.memory_, utility.pool().allocate(2 * calibration.bytes_));
  TRY_STATUS(utility.device()->fill(calibration.memory_.data(), 0x3c, 2 * calibration.bytes_,
                                    utility.stream()));
  TRY(calibration.begin_, CudaEvent::create(utility.device()));
  TRY(calibration.end_, CudaEvent::create(utility.device()));
  return calibration;
}

Status CalibrationKernel::launch() const {
  const int64_t words = bytes_ / 16;
  const int64_t from = parameter(memory_.data());
  return utility_->launch("kiln_copy", words, {from + bytes_, from, words});
}

Result<double> CalibrationKernel::time_us() const {
  double least = INFINITY;
  TRY_STATUS(launch());
  for (int run = 0; run < kCalibrationRuns; ++run) {
    TRY_STATUS(begin_->record(utility_->stream()));
    TRY_STATUS(launch());
    TRY_STATUS(end_->record(utility_->stream()));
    TRY_STATUS(utility_->synchronize());
    TRY(const double us, end_->us_since(*begin_));
    least = std::min(least, us);
  }
  return least;
}

Result<DeviceCopies> DeviceCopies::make(UtilityKernels& utility, const DeviceCase& workload) {
  const CudaFacts& facts = utility.device()->facts();
  std::vector<int64_t> offsets;
  int64_t set_bytes = 0;
  for (const auto* lents : {&workload.inputs(), &workload.outputs()})
    for (const LentMemory& lent : *lents)
      offsets.push_back(std::exchange(set_bytes, set_bytes + padded(lent.bytes())));
  set_bytes = std::max(set_bytes, kAlignment);
  const int64_t wanted = (3 * facts.l2_bytes + set_bytes - 1) / set_bytes;
  const int64_t room = facts.memory_bytes / 4 / set_bytes;
  const int64_t count =
      std::max<int64_t>(1, std::min(std::clamp<int64_t>(wanted, 2, kMaxCopies), room));
  DeviceCopies copies;
  TRY(copies.memory_, utility.pool().allocate(set_bytes * count));
  const DevicePtr base = copies.memory_.data();
  for (size_t i = 0; i < workload.inputs().size(); ++i)
    TRY_STATUS(workload.draw_input(i, base + static_cast<DevicePtr>(offsets[i])));
  for (size_t i = 0; i < workload.outputs().size(); ++i)
    TRY_STATUS(
        utility.device()->fill(base + static_cast<DevicePtr>(offsets[workload.inputs().size() + i]),
                               0, workload.outputs()[i].bytes(), utility.stream()));
  for (int64_t have = 1; have < count; have *= 2)
    TRY_STATUS(utility.device()->copy_on_device(base + static_cast<DevicePtr>(have * set_bytes),
                                                base, std::min(have, count - have) * set_bytes,
                                                utility.stream()));
  for (int64_t copy = 0; copy < count; ++copy) {
    std::vector<DevicePtr>& set = copies.sets_.emplace_back();
    for (const int64_t offset : offsets)
      set.push_back(base + static_cast<DevicePtr>(copy * set_bytes + offset));
  }
  return copies;
}

std::span<const DevicePtr> DeviceCopies::next() {
  next_ = next_ + 1 == sets_.size() ? 0 : next_ + 1;
  return sets_[next_];
}

DeviceTimer::DeviceTimer(const CudaKernel& kernel, UtilityKernels& utility,
                         const CalibrationKernel& calibration, DeviceCopies& copies,
                         std::span<const int64_t> symbols, CudaEvent begin, CudaEvent end)
    : kernel_(kernel),
      utility_(utility),
      calibration_(calibration),
      copies_(copies),
      symbols_(symbols),
      begin_(std::move(begin)),
      end_(std::move(end)) {}

Result<std::unique_ptr<DeviceTimer>> DeviceTimer::make(const CudaKernel& kernel,
                                                       UtilityKernels& utility,
                                                       const CalibrationKernel& calibration,
                                                       DeviceCopies& copies,
                                                       std::span<const int64_t> symbols) {
  TRY(CudaEvent begin, CudaEvent::create(utility.device()));
  TRY(CudaEvent end, CudaEvent::create(utility.device()));
  std::unique_ptr<DeviceTimer> made(new DeviceTimer(kernel, utility, calibration, copies, symbols,
                                                    std::move(begin), std::move(end)));
  TRY(const int64_t bytes, kernel.recipe().workspace_bytes.evaluate(symbols));
  if (bytes > 0) {
    TRY(made->workspace_, utility.pool().allocate(bytes));
    made->workspace_data_ = made->workspace_.data();
  }
  return made;
}

Status DeviceTimer::launch_all(CudaStream stream) {
  for (int i = 0; i < launches_; ++i)
    TRY_STATUS(kernel_.launch(copies_.next(), workspace_data_, symbols_, stream));
  return {};
}

// A launch, over one sample.
Result<double> DeviceTimer::timed_us(bool as_graph) {
  const CudaStream stream = utility_.stream();
  TRY_STATUS(calibration_.launch());
  TRY_STATUS(begin_.record(stream));
  TRY_STATUS(as_graph ? graph_->replay(stream) : launch_all(stream));
  TRY_STATUS(end_.record(stream));
  TRY_STATUS(utility_.synchronize());
  TRY(const double us, end_.us_since(begin_));
  return us / launches_;
}

Status DeviceTimer::warm_up(const Alive& alive) {
  graph_.reset();
  launches_ = 1;
  dropped_ = 0;
  double fastest_us = INFINITY;
  for (int run = 0; run < 3; ++run) {
    alive();
    TRY(const double us, timed_us(false));
    fastest_us = std::min(fastest_us, us);
    if (run > 0 && us > kSampleUs) break;
  }
  if (fastest_us < kLongUs)
    launches_ = static_cast<int>(
        std::clamp<double>(std::ceil(kSampleUs / std::max(fastest_us, 0.5)), 1, kMaxLaunches));
  if (launches_ > 1) {
    TRY(graph_, CudaGraph::capture(utility_.device(),
                                   [this](CudaStream stream) { return launch_all(stream); }));
    TRY_STATUS(timed_us(true).map([](double) {}));
  }
  warm_mhz_ = std::max(warm_mhz_, utility_.device()->clocks().sm_mhz);
  clocks_read_at_us_ = now_us();
  return {};
}

// Asked now and then only, since asking takes as long as a sample.
bool DeviceTimer::is_throttled() {
  const int64_t now = now_us();
  if (now - clocks_read_at_us_ < kClockPeriodUs) return false;
  clocks_read_at_us_ = now;
  const CudaDevice::Clocks clocks = utility_.device()->clocks();
  return clocks.throttled || (clocks.sm_mhz > 0 && clocks.sm_mhz < kMinClock * warm_mhz_);
}

Result<double> DeviceTimer::sample_us(const Alive& alive) {
  for (;;) {
    alive();
    // When the copies outnumber the launches of a sample, the next sample takes others.
    if (graph_ && copies_.count() > static_cast<size_t>(launches_))
      TRY_STATUS(graph_->update([this](CudaStream stream) { return launch_all(stream); }));
    TRY(const double us, timed_us(graph_.has_value()));
    if (dropped_ >= kMaxDropped || !is_throttled()) return us;
    ++dropped_;
  }
}

namespace {

// Takes `measure`'s samples between two looks at the calibration kernel, again when it drifted.
template <class Measured, class Measure>
Result<Measured> watched(const CalibrationKernel& calibration, Measure measure) {
  std::string note;
  for (bool again = false;; again = true) {
    TRY(const double before, calibration.time_us());
    TRY(Measured measured, measure());
    TRY(const double after, calibration.time_us());
    const double drift = before > 0 ? after / before - 1 : 0;
    const bool steady = std::fabs(drift) <= kMaxDrift;
    if (!steady)
      note += fmt::format("the calibration kernel drifted by {:+.0f} % ({:.1f} to {:.1f} us){}; ",
                          100 * drift, before, after, again ? " again" : "");
    if (!steady && !again) continue;
    measured.note = note + measured.note;
    return measured;
  }
}

std::string note_of(int dropped) {
  return dropped == 0 ? "" : fmt::format("{} samples dropped: the card slowed down", dropped);
}

}  // namespace

Result<Raced> race_on_device(DeviceTimer& timer, const CalibrationKernel& calibration,
                             const MeasurementPolicy& policy, double incumbent_us,
                             const Alive& alive) {
  return watched<Raced>(calibration, [&]() -> Result<Raced> {
    TRY(Raced raced, race(timer, policy, incumbent_us, kDeviceRaceBudgetUs, alive));
    raced.note = note_of(timer.dropped_samples());
    return raced;
  });
}

Result<FinalistsTimed> time_finalists_on_device(std::span<DeviceTimer* const> timers,
                                                const CalibrationKernel& calibration,
                                                const MeasurementPolicy& policy,
                                                const Alive& alive) {
  const std::vector<TimedKernel*> timed(timers.begin(), timers.end());
  return watched<FinalistsTimed>(calibration, [&]() -> Result<FinalistsTimed> {
    TRY(FinalistsTimed finals, time_finalists(timed, policy, kDeviceFinalBudgetUs, alive));
    int dropped = 0;
    for (const DeviceTimer* timer : timers) dropped += timer->dropped_samples();
    finals.note = note_of(dropped);
    return finals;
  });
}

}  // namespace kiln::runner
