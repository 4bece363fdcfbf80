// The CPU's evaluator (evaluator.h).
#include <algorithm>
#include <chrono>
#include <cmath>
#include <list>
#include <map>
#include <optional>

#include "worker/runner/cpu/bench.h"
#include "worker/runner/evaluator.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxWorkloads = 8;
constexpr int64_t kMaxWorkloadBytes = int64_t{1} << 30;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

constexpr int kCalibrationRuns = 9;
constexpr int kCalibrationSteps = 1 << 16;

// Each step needs the one before, so that no core is better at it than its clock.
uint64_t chain(uint64_t x) {
  for (int i = 0; i < kCalibrationSteps; ++i) x = x * 6364136223846793005u + 1442695040888963407u;
  return x;
}

// The CPU's calibration kernel: a chain of dependent multiply-adds on the calling thread, the least
// of nine runs, about 2 ms. Other load on the machine lengthens some runs, a lower clock all.
double cpu_calibration_us() {
  double least = INFINITY;
  volatile uint64_t seed = 1;  // so that nothing is computed before it is asked for
  for (int run = 0; run < kCalibrationRuns; ++run) {
    const auto start = Clock::now();
    seed = chain(seed);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    least = std::min(least, took.count());
  }
  return least;
}

class CpuEvaluator : public KernelEvaluator {
 public:
  explicit CpuEvaluator(int threads) : pool_(threads) {}

  Result<DevicePrepared> prepare(const PrepareDevice&) override {
    return fail(Code::kUnsupported, "this runner was started for the CPU");
  }

  Result<Opened> open(const OpenWorkload& request, const Alive& alive) override {
    const auto start = Clock::now();
    slots_.clear();
    const Digest key = key_of(request);
    const auto known =
        std::ranges::find_if(opened_, [&](const OpenCase& opened) { return opened.key == key; });
    if (known != opened_.begin() && !opened_.empty()) opened_.front().buffers.reset();
    if (known != opened_.end()) {
      opened_.splice(opened_.begin(), opened_, known);
    } else {
      const Heartbeat heartbeat(alive);
      TRY(WorkloadCase workload, WorkloadCase::make(request.graph_text, request.seed));
      opened_.push_front({key, std::move(workload), ms_since(start), std::nullopt});
      forget_old_workloads();
    }
    return Opened{opened_.front().reference_ms, ms_since(start)};
  }

  Result<Verified> verify(uint64_t slot, Artifact artifact, const Alive& alive) override {
    slots_.erase(slot);
    if (opened_.empty()) return fail(Code::kInvalidArgument, "no workload is open");
    auto kernel = Kernel::load(std::move(artifact));
    if (!kernel && kernel.error().code == Code::kInvalidArgument)
      return Verified{Verdict::kCompileFailed, kernel.error().message};
    if (!kernel) return fail(kernel.error());
    TRY(Verified verified, runner::verify(*kernel, opened_.front().workload, pool_, alive));
    if (verified.verdict == Verdict::kOk)
      slots_[slot] = std::make_unique<Slot>(Slot{*std::move(kernel), nullptr});
    return verified;
  }

  Result<Raced> race_slot(const RaceKernel& request, const Alive& alive) override {
    TRY(KernelTimer * timer, timer_of(request.slot));
    return race(*timer, request.policy, request.incumbent_us, kRaceBudgetUs, alive);
  }

  Result<FinalistsTimed> time_slots(const TimeFinalists& request, const Alive& alive) override {
    std::vector<TimedKernel*> timers;
    for (const uint64_t slot : request.slots) {
      TRY(KernelTimer * timer, timer_of(slot));
      timers.push_back(timer);
    }
    return time_finalists(timers, request.policy, kFinalBudgetUs, alive);
  }

  Result<double> calibration_us() override { return cpu_calibration_us(); }

 private:
  struct OpenCase {
    Digest key;
    WorkloadCase workload;
    double reference_ms = 0;
    std::optional<RotatingBuffers> buffers;  // made for the first timing
  };
  struct Slot {
    Kernel kernel;
    std::unique_ptr<KernelTimer> timer;  // made for the first timing
  };

  Result<KernelTimer*> timer_of(uint64_t slot) {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return fail(Code::kInvalidArgument, "nothing verified in this slot");
    Slot& timed = *found->second;
    OpenCase& opened = opened_.front();
    if (!opened.buffers) {
      TRY(opened.buffers, RotatingBuffers::make(opened.workload, pool_.threads()));
    }
    if (!timed.timer) {
      TRY(KernelTimer timer,
          KernelTimer::make(timed.kernel, *opened.buffers, opened.workload.symbols(), pool_));
      timed.timer = std::make_unique<KernelTimer>(std::move(timer));
    }
    return timed.timer.get();
  }

  void forget_old_workloads() {
    int64_t bytes = 0;
    size_t count = 0;
    std::erase_if(opened_, [&](const OpenCase& opened) {  // in order, the current one first
      bytes += opened.workload.byte_size();
      ++count;
      return count > 1 && (count > kMaxWorkloads || bytes > kMaxWorkloadBytes);
    });
  }

  ThreadPool pool_;
  std::list<OpenCase> opened_;  // the current one first
  std::map<uint64_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace

std::unique_ptr<KernelEvaluator> make_cpu_evaluator(int threads) {
  return std::make_unique<CpuEvaluator>(threads);
}

}  // namespace kiln::runner
