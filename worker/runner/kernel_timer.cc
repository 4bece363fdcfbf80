#include "worker/runner/kernel_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compiler_core/base/math.h"

namespace kiln::runner {
namespace {

constexpr double kMinClock = 0.9;  // of the warm one
constexpr int64_t kClockPeriodUs = 5000;
constexpr int kMaxDropped = 10;

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

Result<RotatingBuffers> RotatingBuffers::make(EvaluationDevice& device,
                                              const PreparedWorkload& workload) {
  const EvaluationDevice::Policy& policy = device.policy();
  std::vector<const GuardedMemory*> originals;
  for (const auto* buffers : {&workload.inputs(), &workload.outputs()})
    for (const GuardedMemory& buffer : *buffers) originals.push_back(&buffer);
  std::vector<int64_t> offsets;
  int64_t set_bytes = 0;
  for (const GuardedMemory* original : originals) {
    offsets.push_back(set_bytes);
    // One line more than it needs: buffers of a power of two would share their cache sets.
    set_bytes += round_up(original->bytes, policy.alignment) + policy.alignment;
  }
  set_bytes = std::max(set_bytes, policy.alignment);
  const int64_t wanted = std::clamp(ceil_div(3 * device.device().cache_bytes(), set_bytes),
                                    policy.min_copies, policy.max_copies);
  const int64_t room = device.device().memory_bytes() / 4 / set_bytes;
  const int64_t count = std::max<int64_t>(1, std::min(wanted, room));
  RotatingBuffers rotating;
  TRY(rotating.memory_, device.pool().allocate(set_bytes * count));
  const DevicePtr base = rotating.memory_.data();
  for (size_t i = 0; i < originals.size(); ++i) {
    const DevicePtr to = base + static_cast<DevicePtr>(offsets[i]);
    const int64_t bytes = originals[i]->bytes;
    // Outputs too are written: no page is touched first in a sample.
    TRY_STATUS(i < workload.inputs().size()
                   ? device.device().copy_on_device(to, originals[i]->data, bytes, device.stream())
                   : device.device().fill(to, 0, bytes, device.stream()));
  }
  for (int64_t have = 1; have < count; have *= 2)
    TRY_STATUS(device.device().copy_on_device(base + static_cast<DevicePtr>(have * set_bytes), base,
                                              std::min(have, count - have) * set_bytes,
                                              device.stream()));
  for (int64_t copy = 0; copy < count; ++copy) {
    std::vector<DevicePtr>& set = rotating.sets_.emplace_back();
    for (const int64_t offset : offsets)
      set.push_back(base + static_cast<DevicePtr>(copy * set_bytes + offset));
  }
  return rotating;
}

std::span<const DevicePtr> RotatingBuffers::next() {
  next_ = next_ + 1 == sets_.size() ? 0 : next_ + 1;
  return sets_[next_];
}

Result<std::unique_ptr<KernelTimer>> KernelTimer::make(const LoadedKernel& kernel,
                                                       EvaluationDevice& device,
                                                       RotatingBuffers& buffers,
                                                       std::span<const int64_t> symbols) {
  std::unique_ptr<KernelTimer> made(new KernelTimer(kernel, device, buffers, symbols));
  TRY(const int64_t bytes, kernel.recipe().workspace_bytes.evaluate(symbols));
  if (bytes > 0) {
    TRY(made->workspace_, device.pool().allocate(bytes));
    TRY_STATUS(device.device().fill(made->workspace_.data(), 0, bytes, device.stream()));
  }
  return made;
}

Status KernelTimer::launch_all(Stream stream) {
  for (int i = 0; i < launches_; ++i)
    TRY_STATUS(kernel_.launch(buffers_.next(), workspace_.data(), symbols_, stream,
                              {.ready = ReadyInputs::all()}));
  return {};
}

Result<double> KernelTimer::timed_us() {
  TRY(const double us, device_.time_us([this](Stream stream) {
    return graph_ ? graph_->replay(stream) : launch_all(stream);
  }));
  return us / launches_;
}

Status KernelTimer::warm_up(const Alive& alive) {
  const EvaluationDevice::Policy& policy = device_.policy();
  graph_.reset();
  launches_ = 1;
  dropped_ = 0;
  double fastest_us = INFINITY, spent_us = 0;
  for (int run = 0; run < policy.max_warm_ups; ++run) {
    if (run >= policy.min_warm_ups && spent_us >= policy.warm_up_us) break;
    alive();
    TRY(const double us, timed_us());
    fastest_us = std::min(fastest_us, us);
    spent_us += us;
  }
  if (fastest_us < policy.long_us)
    launches_ = static_cast<int>(std::clamp<double>(
        std::ceil(policy.sample_us / std::max(fastest_us, 1e-3)), 1, policy.max_launches));
  if (launches_ > 1) {
    auto graph = device_.device().capture([this](Stream stream) { return launch_all(stream); });
    if (graph) {
      graph_ = *std::move(graph);
      TRY_STATUS(timed_us().map([](double) {}));
    } else if (graph.error().code != Code::kUnsupported) {
      return fail(std::move(graph).error());
    }
  }
  warm_mhz_ = std::max(warm_mhz_, device_.device().clocks().sm_mhz);
  clocks_read_at_us_ = now_us();
  return {};
}

// Asked now and then only, since asking takes as long as a sample.
bool KernelTimer::is_throttled() {
  const int64_t now = now_us();
  if (now - clocks_read_at_us_ < kClockPeriodUs) return false;
  clocks_read_at_us_ = now;
  const Device::Clocks clocks = device_.device().clocks();
  return clocks.throttled || (clocks.sm_mhz > 0 && clocks.sm_mhz < kMinClock * warm_mhz_);
}

Result<double> KernelTimer::sample_us(const Alive& alive) {
  for (;;) {
    alive();
    // When the copies outnumber the launches of a sample, the next sample takes others.
    if (graph_ && buffers_.copies() > static_cast<size_t>(launches_))
      TRY_STATUS(graph_->update([this](Stream stream) { return launch_all(stream); }));
    TRY(const double us, timed_us());
    if (dropped_ >= kMaxDropped || !is_throttled()) return us;
    ++dropped_;
  }
}

namespace {

// Takes `measure`'s samples between two runs of the calibration kernel, again when it drifted.
template <class Measured, class Measure>
Result<Measured> watched(EvaluationDevice& device, Measure measure) {
  const double max_drift = device.policy().max_drift;
  if (max_drift == 0) return measure();
  std::string note;
  for (bool again = false;; again = true) {
    TRY(const double before, device.calibration_us());
    TRY(Measured measured, measure());
    TRY(const double after, device.calibration_us());
    const double drift = before > 0 ? after / before - 1 : 0;
    const bool steady = std::fabs(drift) <= max_drift;
    if (!steady)
      note += fmt::format("the calibration kernel drifted by {:+.0f} % ({:.1f} to {:.1f} us){}; ",
                          100 * drift, before, after, again ? " again" : "");
    if (!steady && !again) continue;
    measured.note = note + measured.note;
    return measured;
  }
}

std::string note_of(int dropped) {
  return dropped == 0 ? "" : fmt::format("{} samples dropped: the device slowed down", dropped);
}

}  // namespace

Result<Raced> race_kernel(EvaluationDevice& device, KernelTimer& timer,
                          const MeasurementPolicy& policy, double incumbent_us,
                          const Alive& alive) {
  return watched<Raced>(device, [&]() -> Result<Raced> {
    TRY(Raced raced, race(timer, policy, incumbent_us, device.policy().race_budget_us, alive));
    raced.note = note_of(timer.dropped_samples());
    return raced;
  });
}

Result<FinalistsTimed> time_kernels(EvaluationDevice& device, std::span<KernelTimer* const> timers,
                                    const MeasurementPolicy& policy, const Alive& alive) {
  if (timers.empty()) return FinalistsTimed{};
  const std::vector<TimedKernel*> timed(timers.begin(), timers.end());
  return watched<FinalistsTimed>(device, [&]() -> Result<FinalistsTimed> {
    TRY(FinalistsTimed finals,
        time_finalists(timed, policy, device.policy().final_budget_us, alive));
    int dropped = 0;
    for (const KernelTimer* timer : timers) dropped += timer->dropped_samples();
    finals.note = note_of(dropped);
    return finals;
  });
}

}  // namespace kiln::runner
