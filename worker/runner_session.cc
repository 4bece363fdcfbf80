#include "worker/runner_session.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

namespace kiln::runner {
namespace {

constexpr size_t kMaxWorkloads = 8;
constexpr int64_t kMaxWorkloadBytes = int64_t{1} << 30;

// Says that we are alive while something of ours, that is slow but ends, runs in its scope.
class Heartbeat {
 public:
  explicit Heartbeat(const Alive& alive) : thread_([this, &alive] { beat(alive); }) {}
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

}  // namespace

Reply RunnerSession::handle(const Request& request, const Alive& alive) {
  auto reply = std::visit([&](const auto& r) { return serve(r, alive); }, request);
  if (!reply) return Failed{std::move(reply).error()};
  return *std::move(reply);
}

Result<Reply> RunnerSession::serve(const OpenWorkload& request, const Alive& alive) {
  alive();
  slots_.clear();
  const Digest key = Hasher("kiln.runner.workload.v1")
                         .add(request.graph_text)
                         .add(static_cast<int64_t>(request.seed))
                         .finish();
  const auto known =
      std::ranges::find_if(opened_, [&](const OpenCase& opened) { return opened.key == key; });
  if (known != opened_.begin() && !opened_.empty()) opened_.front().buffers.reset();
  if (known != opened_.end()) {
    opened_.splice(opened_.begin(), opened_, known);
  } else {
    const Heartbeat heartbeat(alive);
    const auto start = std::chrono::steady_clock::now();
    TRY(WorkloadCase workload, WorkloadCase::make(request.graph_text, request.seed));
    const std::chrono::duration<double, std::milli> took = std::chrono::steady_clock::now() - start;
    opened_.push_front({key, std::move(workload), took.count(), std::nullopt});
    forget_old_workloads();
  }
  return Opened{opened_.front().reference_ms};
}

void RunnerSession::forget_old_workloads() {
  int64_t bytes = 0;
  size_t count = 0;
  std::erase_if(opened_, [&](const OpenCase& opened) {  // in order, the current one first
    bytes += opened.workload.byte_size();
    ++count;
    return count > 1 && (count > kMaxWorkloads || bytes > kMaxWorkloadBytes);
  });
}

Result<Reply> RunnerSession::serve(const VerifyKernel& request, const Alive& alive) {
  slots_.erase(request.slot);
  if (opened_.empty()) return fail(Code::kInvalidArgument, "no workload is open");
  TRY(Recipe recipe, recipe_from_json(request.recipe_json));
  auto kernel = Kernel::load({std::move(recipe), request.binary, request.digest});
  if (!kernel && kernel.error().code == Code::kInvalidArgument)
    return Verified{Verdict::kCompileFailed, kernel.error().message};
  if (!kernel) return fail(kernel.error());
  TRY(Verified verified, verify(*kernel, opened_.front().workload, pool_, alive));
  if (verified.verdict == Verdict::kOk)
    slots_[request.slot] = std::make_unique<Slot>(Slot{*std::move(kernel), nullptr});
  return verified;
}

Result<KernelTimer*> RunnerSession::timer_of(uint64_t slot) {
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

Result<Reply> RunnerSession::serve(const RaceKernel& request, const Alive& alive) {
  TRY(KernelTimer * timer, timer_of(request.slot));
  return race(*timer, request.policy, request.incumbent_us, alive);
}

Result<Reply> RunnerSession::serve(const TimeFinalists& request, const Alive& alive) {
  std::vector<KernelTimer*> timers;
  for (const uint64_t slot : request.slots) {
    TRY(KernelTimer * timer, timer_of(slot));
    timers.push_back(timer);
  }
  return time_finalists(timers, request.policy, alive);
}

}  // namespace kiln::runner
