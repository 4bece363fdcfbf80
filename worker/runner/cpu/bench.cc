#include "worker/runner/cpu/bench.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kSampleUs = 50;
constexpr double kWarmUpUs = 2000;
constexpr int kMaxLaunchesPerSample = 4096;
constexpr int kMaxWarmUpLaunches = 256;
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

Status KernelTimer::warm_up(const Alive& alive) {
  const auto start = Clock::now();
  double fastest_us = INFINITY;
  for (int i = 0; i < kMaxWarmUpLaunches && us_since(start) < kWarmUpUs; ++i) {
    alive();
    fastest_us = std::min(fastest_us, launch_us(1));
  }
  launches_per_sample_ = static_cast<int>(std::clamp<double>(
      std::ceil(kSampleUs / std::max(fastest_us, 1e-3)), 1, kMaxLaunchesPerSample));
  return {};
}

Result<double> KernelTimer::sample_us(const Alive& alive) {
  alive();
  return launch_us(launches_per_sample_);
}

}  // namespace kiln::runner
