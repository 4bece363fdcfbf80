#include "worker/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "compiler_core/tune/race.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleUs = 50;
constexpr double kWarmUpUs = 2000;
constexpr int kMaxLaunchesPerSample = 4096;
constexpr int kMaxWarmUpLaunches = 256;
constexpr double kRaceBudgetUs = 3e6;    // a candidate; at least screen_runs samples are taken
constexpr double kFinalBudgetUs = 10e6;  // all finalists
constexpr int64_t kMaxCopies = 4096;

double us_since(Clock::time_point start) {
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count();
}

int64_t l2_bytes(int threads) {
  const long per_core = ::sysconf(_SC_LEVEL2_CACHE_SIZE);
  return (per_core > 0 ? int64_t{per_core} : int64_t{2} << 20) * threads;
}

// One more line than it needs, so that buffers of a power of two do not share their cache sets.
int64_t stride_of(const Tensor& tensor) {
  return (tensor.byte_size() + 63) / 64 * 64 + 64;
}

}  // namespace

Result<RotatingBuffers> RotatingBuffers::make(const WorkloadCase& workload, int threads) {
  int64_t set_bytes = 64;
  for (const auto* tensors : {&workload.inputs(), &workload.expected()})
    for (const Tensor& tensor : *tensors) set_bytes += stride_of(tensor);
  const int64_t wanted = (3 * l2_bytes(threads) + set_bytes - 1) / set_bytes;
  const int64_t copies = std::clamp<int64_t>(wanted, 1, kMaxCopies);
  TRY(GuardedBuffer memory, GuardedBuffer::allocate(set_bytes * copies, 0));
  RotatingBuffers buffers(std::move(memory));
  uint8_t* at = static_cast<uint8_t*>(buffers.memory_.data());
  for (int64_t copy = 0; copy < copies; ++copy) {
    std::vector<void*>& set = buffers.sets_.emplace_back();
    for (const auto* tensors : {&workload.inputs(), &workload.expected()}) {
      for (const Tensor& tensor : *tensors) {
        std::ranges::copy(tensor.bytes(), at);  // outputs too: no page is touched first in a sample
        set.push_back(std::exchange(at, at + stride_of(tensor)));
      }
    }
    at += 64;
  }
  return buffers;
}

std::span<void* const> RotatingBuffers::next() {
  next_ = next_ + 1 == sets_.size() ? 0 : next_ + 1;
  return sets_[next_];
}

Result<KernelTimer> KernelTimer::make(const Kernel& kernel, RotatingBuffers& buffers,
                                      std::span<const int64_t> symbols, ThreadPool& pool) {
  TRY(const int64_t bytes, kernel.recipe().workspace_bytes.evaluate(symbols));
  TRY(GuardedBuffer workspace, GuardedBuffer::allocate(bytes, 0));
  workspace.fill(0);
  return KernelTimer(kernel, buffers, symbols, pool, std::move(workspace));
}

KernelTimer::KernelTimer(const Kernel& kernel, RotatingBuffers& buffers,
                         std::span<const int64_t> symbols, ThreadPool& pool,
                         GuardedBuffer workspace)
    : kernel_(kernel),
      buffers_(buffers),
      symbols_(symbols),
      pool_(pool),
      workspace_(std::move(workspace)) {}

double KernelTimer::launch_us(int launches) {
  const auto start = Clock::now();
  for (int i = 0; i < launches; ++i)
    kernel_.launch(buffers_.next(), symbols_, workspace_.data(), pool_);
  return us_since(start) / launches;
}

void KernelTimer::warm_up(const Alive& alive) {
  const auto start = Clock::now();
  double fastest_us = INFINITY;
  for (int i = 0; i < kMaxWarmUpLaunches && us_since(start) < kWarmUpUs; ++i) {
    alive();
    fastest_us = std::min(fastest_us, launch_us(1));
  }
  launches_per_sample_ = static_cast<int>(std::clamp<double>(
      std::ceil(kSampleUs / std::max(fastest_us, 1e-3)), 1, kMaxLaunchesPerSample));
}

double KernelTimer::sample_us(const Alive& alive) {
  alive();
  return launch_us(launches_per_sample_);
}

Raced race(KernelTimer& timer, const MeasurementPolicy& policy, double incumbent_us,
           const Alive& alive) {
  timer.warm_up(alive);
  const auto start = Clock::now();
  MeasurementPolicy affordable = policy;
  Raced raced;
  std::vector<double>& samples = raced.measurement.samples_us;
  for (;;) {
    const RaceStep step = next_step(affordable, incumbent_us, samples);
    if (step.kind == RaceStep::Kind::kDrop) raced.dropped = true;
    if (step.kind != RaceStep::Kind::kRunMore) return raced;
    for (int run = 0; run < step.runs; ++run) {
      samples.push_back(timer.sample_us(alive));
      const int taken = static_cast<int>(samples.size());
      if (us_since(start) < kRaceBudgetUs || taken < policy.screen_runs) continue;
      affordable.race_runs = taken;  // decide with what there is
      break;
    }
  }
}

FinalistsTimed time_finalists(std::span<KernelTimer* const> timers, const MeasurementPolicy& policy,
                              const Alive& alive) {
  for (KernelTimer* timer : timers) timer->warm_up(alive);
  const auto start = Clock::now();
  FinalistsTimed timed;
  timed.measurements.resize(timers.size());
  for (int round = 0; round < policy.final_runs; ++round) {
    const bool enough = round >= policy.screen_runs;
    if (enough && finals_decided(policy, timed.measurements)) break;
    if (enough && us_since(start) > kFinalBudgetUs) break;
    for (size_t i = 0; i < timers.size(); ++i)
      timed.measurements[i].samples_us.push_back(timers[i]->sample_us(alive));
  }
  return timed;
}

}  // namespace kiln::runner
