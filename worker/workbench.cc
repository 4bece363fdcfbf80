#include "worker/workbench.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "worker/device_lock.h"

namespace kiln {
namespace {

RunnerProcess::Options with_progress(RunnerProcess::Options options,
                                     std::function<void()> progressed) {
  options.progressed = std::move(progressed);
  return options;
}

}  // namespace

Workbench::Workbench(Options options, CompilePool& compilers, const Callbacks& callbacks)
    : options_(std::move(options)),
      compilers_(compilers),
      callbacks_{callbacks.stepped, callbacks.finished,
                 [this](uint64_t lease) { return is_dropped(lease); }},
      runner_(with_progress(options_.runner, [this] { callbacks_.stepped(measuring_); })),
      thread_([this] { work(); }) {}

void Workbench::submit(std::vector<Job> jobs) {
  Jobs leased;
  for (Job& job : jobs) {
    leased.push_back(std::make_unique<LeasedJob>(std::move(job), compilers_, callbacks_));
    if (!options_.compiling_disturbs) leased.back()->start_compiling();
  }
  const std::lock_guard lock(mu_);
  std::ranges::move(leased, std::back_inserter(queue_));
  changed_.notify_one();
}

void Workbench::drop(uint64_t lease) {
  {
    const std::lock_guard lock(mu_);
    std::erase_if(queue_, [=](const auto& leased) { return leased->job().lease == lease; });
    dropped_.insert(lease);
  }
  compilers_.cancel(lease);
}

void Workbench::stop() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_one();
  runner_.close();
  compilers_.stop();  // the thread may wait for one, and reports nothing any more
  if (thread_.joinable()) thread_.join();
}

bool Workbench::is_dropped(uint64_t lease) const {
  const std::lock_guard lock(mu_);
  return stopping_ || dropped_.contains(lease);
}

bool Workbench::is_stopping() const {
  const std::lock_guard lock(mu_);
  return stopping_;
}

void Workbench::work() {
  // A GPU's first context takes longer than many a kernel's whole tuning.
  if (options_.runner.prepare)
    if (const auto ready = runner_.make_ready(); !ready && !is_stopping())
      spdlog::error("{}", ready.error().message);
  for (;;) {
    Jobs jobs;
    {
      std::unique_lock lock(mu_);
      changed_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (stopping_) return;
      jobs = std::exchange(queue_, {});
      dropped_.clear();  // they were leases of earlier waves
    }
    run_wave(jobs);
  }
}

void Workbench::run_wave(const Jobs& jobs) {
  if (options_.compiling_disturbs) {
    const auto lock = lock_for(FileLock::Mode::kShared, [this] { return is_stopping(); });
    for (const auto& leased : jobs) leased->start_compiling();
    for (const auto& leased : jobs) leased->finish_compiling();
  }
  for (const auto& leased : jobs) {
    const Job& job = leased->job();
    if (!leased->wait_for_work()) continue;
    const auto lock = lock_for(FileLock::Mode::kExclusive, [&] { return is_dropped(job.lease); });
    if (is_dropped(job.lease)) continue;
    measuring_ = job.lease;
    leased->measure(runner_, known_);
    const LeasedJob::StageTimes& spent = leased->stage_times();
    spdlog::info(
        "lease {}: {} candidates of {} {}, best {:.2f} us; waited for compilers {:.0f} ms, open "
        "{:.0f}, verify {:.0f}, time {:.0f}",
        job.lease, job.candidates.size(), to_string(job.family), job.kernel_key.short_hex(),
        leased->best_us(), spent.compile, spent.open, spent.verify, spent.time);
  }
}

Result<FileLock> Workbench::lock_for(FileLock::Mode mode,
                                     const std::function<bool()>& give_up) const {
  auto lock = lock_device(options_.device_lock, mode, give_up);
  if (!lock && lock.error().code != Code::kUnavailable)
    spdlog::warn("working without the device's lock: {}", lock.error().message);
  return lock;
}

}  // namespace kiln
