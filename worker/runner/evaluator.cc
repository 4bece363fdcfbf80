#include "worker/runner/evaluator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "compiler_core/base/clock.h"
#include "compiler_core/runtime/library_call.h"
#include "worker/runner/cuda/cuda_evaluation_device.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

// Says that we are alive while something of ours, that is slow but ends, runs in its scope.
class Heartbeat {
 public:
  explicit Heartbeat(const Alive& alive) : thread_([this, &alive] { beat(alive); }) {}
  Heartbeat(const Heartbeat&) = delete;
  ~Heartbeat() {
    {
      const std::lock_guard lock(mu_);
      over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void beat(const Alive& alive) {
    constexpr std::chrono::milliseconds kPeriod(kProgressPeriodMs);
    std::unique_lock lock(mu_);
    while (!changed_.wait_for(lock, kPeriod, [this] { return over_; })) alive();
  }

  std::mutex mu_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mu_
  std::thread thread_;
};

// A workload and its inputs: what an open one is known by.
Digest key_of(const OpenWorkload& request) {
  return Hasher("kiln.runner.workload.v1")
      .add(request.graph_text)
      .add(static_cast<int64_t>(request.seed))
      .finish();
}

Error not_prepared() {
  return {Code::kInvalidArgument, "no device is prepared", 0};
}

}  // namespace

Reply KernelEvaluator::handle(const Request& request, const Alive& alive) {
  auto reply = std::visit([&](const auto& r) { return serve(r, alive); }, request);
  if (!reply) return Failed{std::move(reply).error()};
  return *std::move(reply);
}

Result<Reply> KernelEvaluator::serve(const PrepareDevice& request, const Alive& alive) {
  if (!ordinal_) return fail(Code::kUnsupported, "this runner was started for the CPU");
  const Heartbeat heartbeat(alive);  // a driver may take its time
  if (request.binary.empty()) {
    TRY(CudaFacts facts, CudaDevice::probe(*ordinal_, libcuda_));
    auto libraries = installed_libraries(libcublaslt_, libcuda_, facts.driver);
    return DevicePrepared{std::move(facts), std::move(libraries)};
  }
  slots_.clear();
  opened_.clear();
  device_.reset();
  TRY(const auto cuda, CudaDevice::open(*ordinal_, libcuda_, libcublaslt_));
  TRY(device_, CudaEvaluationDevice::load(cuda, request.binary, request.digest));
  // First calls are slow: make them here, so that the first workload's time does not include them.
  TRY_STATUS(device_->calibration_us().map([](double) {}));
  (void)cuda->clocks();
  return DevicePrepared{cuda->facts(), {}};
}

Result<Reply> KernelEvaluator::serve(const OpenWorkload& request, const Alive& alive) {
  alive();
  const auto start = Clock::now();
  if (!device_) return fail(not_prepared());
  slots_.clear();
  bare_kernel_.reset();
  bare_.reset();
  if (request.inputs_only) {
    opened_.clear();
    TRY(bare_, PreparedWorkload::make_inputs(*device_, request.graph_text, request.seed,
                                             static_cast<Floats>(request.floats)));
    return Opened{0, ms_since(start), request.floats};
  }
  const Digest key = key_of(request);
  const auto known = std::ranges::find(opened_, key, &OpenCase::key);
  if (known != opened_.begin() && !opened_.empty()) opened_.front().buffers.reset();
  if (known != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, known);
  } else {
    const Heartbeat heartbeat(alive);
    TRY(PreparedWorkload workload, make_case(request));
    opened_.push_front({key, std::move(workload), ms_since(start), std::nullopt});
    forget_old_workloads();
  }
  const OpenCase& opened = opened_.front();
  return Opened{opened.reference_ms, ms_since(start),
                static_cast<uint64_t>(opened.workload.floats())};
}

Result<Reply> KernelEvaluator::serve(const VerifyKernel& request, const Alive& alive) {
  TRY(Recipe recipe, recipe_from_json(request.recipe_json));
  slots_.erase(request.slot);
  if (opened_.empty()) return fail(Code::kInvalidArgument, "no workload is open");
  std::optional<Heartbeat> opening;  // a library is large
  if (recipe.calls_library()) opening.emplace(alive);
  auto kernel = device_->device().load({std::move(recipe), request.binary, request.digest});
  opening.reset();
  // kUnsupported: it calls a library that is not here, or not at this version.
  if (!kernel &&
      (kernel.error().code == Code::kInvalidArgument || kernel.error().code == Code::kUnsupported))
    return Verified{Verdict::kCompileFailed, kernel.error().message};
  if (!kernel) return fail(std::move(kernel).error());
  bool intact = true;
  TRY(Verified verified, verify(**kernel, *device_, opened_.front().workload, alive, intact));
  if (!intact) {  // opened anew when it is asked for again
    slots_.clear();
    opened_.pop_front();
  }
  if (verified.verdict == Verdict::kOk) slots_[request.slot] = {*std::move(kernel), nullptr};
  return verified;
}

Result<Reply> KernelEvaluator::serve(const LaunchKernel& request, const Alive& alive) {
  if (!bare_) return fail(Code::kInvalidArgument, "no inputs are open");
  alive();
  if (bare_kernel_ == nullptr || launched_ != request.digest) {  // loaded once, as where it is used
    TRY(Recipe recipe, recipe_from_json(request.recipe_json));
    TRY(bare_kernel_, device_->device().load({std::move(recipe), request.binary, request.digest}));
    launched_ = request.digest;
  }
  TRY(auto outputs, launch_for_outputs(*bare_kernel_, *device_, *bare_, request.launches));
  return Launched{std::move(outputs)};
}

Result<Reply> KernelEvaluator::serve(const JudgeOutputs& request, const Alive& alive) {
  if (opened_.empty()) return fail(Code::kInvalidArgument, "no workload is open");
  alive();
  return judge_outputs(*device_, opened_.front().workload, request.outputs);
}

Result<Reply> KernelEvaluator::serve(const RaceKernel& request, const Alive& alive) {
  TRY(KernelTimer* const timer, timer_of(request.slot));
  return race_kernel(*device_, *timer, request.policy, request.incumbent_us, alive);
}

Result<Reply> KernelEvaluator::serve(const TimeFinalists& request, const Alive& alive) {
  std::vector<KernelTimer*> timers;
  for (const uint64_t slot : request.slots) {
    TRY(KernelTimer* const timer, timer_of(slot));
    timers.push_back(timer);
  }
  if (timers.empty()) return FinalistsTimed{};
  return time_kernels(*device_, timers, request.policy, alive);
}

Result<Reply> KernelEvaluator::serve(const MeasureCalibration&, const Alive& alive) {
  alive();
  if (!device_) return fail(not_prepared());
  TRY(const double us, device_->calibration_us());
  return CalibrationMeasured{us};
}

// When memory is short, the workloads that were open before make room.
Result<PreparedWorkload> KernelEvaluator::make_case(const OpenWorkload& request) {
  auto made = PreparedWorkload::make(*device_, request.graph_text, request.seed);
  if (made || made.error().code != Code::kUnavailable || opened_.empty() || is_lost()) return made;
  opened_.clear();
  device_->pool().trim(0);
  return PreparedWorkload::make(*device_, request.graph_text, request.seed);
}

Result<KernelTimer*> KernelEvaluator::timer_of(uint64_t slot) {
  const auto found = slots_.find(slot);
  if (found == slots_.end()) return fail(Code::kInvalidArgument, "nothing verified in this slot");
  Slot& timed = found->second;
  OpenCase& opened = opened_.front();
  if (!opened.buffers) {
    TRY(opened.buffers, RotatingBuffers::make(*device_, opened.workload));
  }
  if (!timed.timer) {
    TRY(timed.timer,
        KernelTimer::make(*timed.kernel, *device_, *opened.buffers, opened.workload.symbols()));
  }
  return timed.timer.get();
}

void KernelEvaluator::forget_old_workloads() {
  const EvaluationDevice::Policy& policy = device_->policy();
  int64_t bytes = 0;
  size_t count = 0;
  std::erase_if(opened_, [&](const OpenCase& opened) {  // in order, the current one first
    const int64_t own = opened.workload.byte_size();
    bytes += own + std::max(own, opened.buffers ? opened.buffers->bytes() : 0);
    ++count;
    return count > 1 && (count > policy.max_workloads || bytes > policy.kept_bytes);
  });
  device_->pool().trim(policy.kept_bytes);
}

}  // namespace kiln::runner
