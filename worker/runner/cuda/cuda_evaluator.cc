// A GPU's evaluator (evaluator.h).
#include <algorithm>
#include <chrono>
#include <list>
#include <map>
#include <optional>

#include "worker/runner/cuda/device_bench.h"
#include "worker/runner/cuda/device_verify.h"
#include "worker/runner/evaluator.h"

namespace kiln::runner {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kMaxWorkloads = 4;
constexpr int64_t kKeptShare = 8;  // of the card's memory: an eighth is kept between workloads

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

class CudaEvaluator : public KernelEvaluator {
 public:
  CudaEvaluator(int ordinal, std::string libcuda)
      : ordinal_(ordinal), libcuda_(std::move(libcuda)) {}

  Result<DevicePrepared> prepare(const PrepareDevice& request) override {
    if (request.binary.empty()) {
      TRY(CudaFacts facts, CudaDevice::probe(ordinal_, libcuda_));
      return DevicePrepared{std::move(facts)};
    }
    slots_.clear();
    opened_.clear();
    calibration_.reset();
    utility_.reset();
    TRY(device_, CudaDevice::open(ordinal_, libcuda_));
    TRY(utility_, UtilityKernels::load(device_, request.binary, request.digest));
    // What is slow the first time is paid for here, not in the first workload's time.
    TRY(calibration_, CalibrationKernel::make(*utility_));
    TRY_STATUS(calibration_->time_us().map([](double) {}));
    (void)device_->clocks();
    return DevicePrepared{device_->facts()};
  }

  Result<Opened> open(const OpenWorkload& request, const Alive& alive) override {
    const auto start = Clock::now();
    if (!utility_) return fail(Code::kInvalidArgument, "no device is prepared");
    slots_.clear();
    const Digest key = key_of(request);
    const auto known =
        std::ranges::find_if(opened_, [&](const OpenCase& opened) { return opened.key == key; });
    if (known != opened_.begin() && !opened_.empty()) opened_.front().copies.reset();
    if (known != opened_.end()) {
      opened_.splice(opened_.begin(), opened_, known);
    } else {
      const Heartbeat heartbeat(alive);
      TRY(DeviceCase workload, make_case(request));
      opened_.push_front({key, std::move(workload), ms_since(start), std::nullopt});
      forget_old_workloads();
    }
    return Opened{opened_.front().reference_ms, ms_since(start)};
  }

  Result<Verified> verify(uint64_t slot, Artifact artifact, const Alive& alive) override {
    slots_.erase(slot);
    if (opened_.empty()) return fail(Code::kInvalidArgument, "no workload is open");
    auto kernel = CudaKernel::load(device_, artifact);
    if (!kernel && kernel.error().code == Code::kInvalidArgument)
      return Verified{Verdict::kCompileFailed, kernel.error().message};
    if (!kernel) return fail(kernel.error());
    bool intact = true;
    TRY(Verified verified,
        runner::verify(*kernel, *utility_, opened_.front().workload, alive, intact));
    if (!intact) {  // opened anew when it is asked for again
      slots_.clear();
      opened_.pop_front();
    }
    if (verified.verdict == Verdict::kOk)
      slots_[slot] = std::make_unique<Slot>(Slot{*std::move(kernel), nullptr});
    return verified;
  }

  Result<Raced> race_slot(const RaceKernel& request, const Alive& alive) override {
    TRY(DeviceTimer * timer, timer_of(request.slot));
    return race_on_device(*timer, *calibration_, request.policy, request.incumbent_us, alive);
  }

  Result<FinalistsTimed> time_slots(const TimeFinalists& request, const Alive& alive) override {
    std::vector<DeviceTimer*> timers;
    for (const uint64_t slot : request.slots) {
      TRY(DeviceTimer * timer, timer_of(slot));
      timers.push_back(timer);
    }
    if (timers.empty()) return FinalistsTimed{};
    return time_finalists_on_device(timers, *calibration_, request.policy, alive);
  }

  Result<double> calibration_us() override {
    if (!calibration_) return fail(Code::kInvalidArgument, "no device is prepared");
    return calibration_->time_us();
  }

  bool is_lost() const override { return device_ && device_->is_lost(); }

 private:
  struct OpenCase {
    Digest key;
    DeviceCase workload;
    double reference_ms = 0;
    std::optional<DeviceCopies> copies;  // made for the first timing
  };
  struct Slot {
    CudaKernel kernel;
    std::unique_ptr<DeviceTimer> timer;  // made for the first timing
  };

  // When memory is short, the workloads that were open before make room.
  Result<DeviceCase> make_case(const OpenWorkload& request) {
    auto made = DeviceCase::make(*utility_, request.graph_text, request.seed);
    if (made || made.error().code != Code::kUnavailable || opened_.empty() || is_lost())
      return made;
    opened_.clear();
    utility_->pool().trim(0);
    return DeviceCase::make(*utility_, request.graph_text, request.seed);
  }

  Result<DeviceTimer*> timer_of(uint64_t slot) {
    const auto found = slots_.find(slot);
    if (found == slots_.end()) return fail(Code::kInvalidArgument, "nothing verified in this slot");
    Slot& timed = *found->second;
    OpenCase& opened = opened_.front();
    if (!opened.copies) {
      TRY(opened.copies, DeviceCopies::make(*utility_, opened.workload));
    }
    if (!timed.timer) {
      TRY(timed.timer, DeviceTimer::make(timed.kernel, *utility_, *calibration_, *opened.copies,
                                         opened.workload.symbols()));
    }
    return timed.timer.get();
  }

  void forget_old_workloads() {
    const int64_t kept = device_->facts().memory_bytes / kKeptShare;
    int64_t bytes = 0;
    size_t count = 0;
    std::erase_if(opened_, [&](const OpenCase& opened) {  // in order, the current one first
      bytes += 2 * opened.workload.byte_size();
      ++count;
      return count > 1 && (count > kMaxWorkloads || bytes > kept);
    });
    utility_->pool().trim(kept);
  }

  const int ordinal_;
  const std::string libcuda_;
  std::shared_ptr<const CudaDevice> device_;
  std::unique_ptr<UtilityKernels> utility_;
  std::optional<CalibrationKernel> calibration_;
  std::list<OpenCase> opened_;  // the current one first
  std::map<uint64_t, std::unique_ptr<Slot>> slots_;
};

}  // namespace

std::unique_ptr<KernelEvaluator> make_cuda_evaluator(int ordinal, std::string libcuda) {
  return std::make_unique<CudaEvaluator>(ordinal, std::move(libcuda));
}

}  // namespace kiln::runner
