#include "worker/jobs/job_runner.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

namespace kiln {
namespace {

constexpr std::chrono::milliseconds kLockPause{3};
constexpr std::chrono::seconds kIdleLook{5};  // at a device that nobody uses
constexpr int64_t kCalibrationQuietMs = 10'000;
constexpr size_t kCalibrations = 5;

RunnerProcess::Options with_progress(RunnerProcess::Options options,
                                     std::function<void()> progressed) {
  options.progressed = std::move(progressed);
  return options;
}

}  // namespace

// flock() has no timeout, hence the pauses. No worker starves: a worker compiles, then measures, so
// that all holders of the shared lock come to want it exclusively.
Result<FileLock> lock_device(const Path& path, FileLock::Mode mode,
                             const std::function<bool()>& give_up) {
  for (;;) {
    auto lock = FileLock::try_acquire(path, mode);
    if (lock || lock.error().code != Code::kUnavailable) return lock;
    if (give_up()) return fail(Code::kUnavailable, "gave up waiting for " + path.string());
    std::this_thread::sleep_for(kLockPause);
  }
}

JobRunner::JobRunner(Options options, CompilePool& compilers, const Callbacks& callbacks)
    : options_(std::move(options)),
      compilers_(compilers),
      callbacks_{callbacks.stepped, callbacks.finished,
                 [this](uint64_t lease) { return is_dropped(lease); }},
      runner_(with_progress(options_.runner, [this] { callbacks_.stepped(measuring_); })),
      health_(callbacks.health),
      thread_([this] { work(); }) {}

void JobRunner::submit(std::vector<Job> jobs) {
  Jobs leased;
  for (Job& job : jobs) {
    leased.push_back(std::make_unique<RunningJob>(std::move(job), compilers_, callbacks_));
    if (!options_.compiling_disturbs) leased.back()->start_compiling();
  }
  const std::lock_guard lock(mu_);
  std::ranges::move(leased, std::back_inserter(queue_));
  changed_.notify_one();
}

void JobRunner::drop(uint64_t lease) {
  {
    const std::lock_guard lock(mu_);
    std::erase_if(queue_, [=](const auto& leased) { return leased->job().lease == lease; });
    dropped_.insert(lease);
  }
  compilers_.cancel(lease);
}

void JobRunner::stop() {
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

bool JobRunner::is_dropped(uint64_t lease) const {
  const std::lock_guard lock(mu_);
  return stopping_ || dropped_.contains(lease);
}

bool JobRunner::is_stopping() const {
  const std::lock_guard lock(mu_);
  return stopping_;
}

void JobRunner::work() {
  // A GPU's first context takes longer than many a kernel's whole tuning.
  if (options_.runner.prepare) {
    const auto start = std::chrono::steady_clock::now();
    const auto ready = runner_.make_ready();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
    if (ready)
      spdlog::info("the device is ready: its runner took {:.1f} s", took.count());
    else if (!is_stopping())
      spdlog::error("{}", ready.error().message);
    look_at_device();
  }
  while (auto jobs = wait_for_jobs())
    if (jobs->empty())
      look_at_device();
    else
      run_wave(*jobs);
}

// None when there was nothing to do for a while.
std::optional<JobRunner::Jobs> JobRunner::wait_for_jobs() {
  std::unique_lock lock(mu_);
  changed_.wait_for(lock, kIdleLook, [this] { return stopping_ || !queue_.empty(); });
  if (stopping_) return std::nullopt;
  dropped_.clear();  // they were leases of earlier waves
  return std::exchange(queue_, {});
}

// Checks an idle device, in quarantine or not: that it works, and is as fast as before.
void JobRunner::look_at_device() {
  if (!health_) return;
  const auto waited_for = [this] {
    const std::lock_guard lock(mu_);
    return stopping_ || !queue_.empty();
  };
  const auto lock = lock_for(FileLock::Mode::kExclusive, waited_for);
  if (!waited_for()) measure_calibration();
}

void JobRunner::measure_calibration() {
  if (!health_) return;
  const auto reply = runner_.call(runner::MeasureCalibration{}, kCalibrationQuietMs);
  const auto* measured = reply ? std::get_if<runner::CalibrationMeasured>(&*reply) : nullptr;
  if (measured != nullptr && measured->us > 0) {
    calibrations_us_.push_back(measured->us);
    if (calibrations_us_.size() > kCalibrations) calibrations_us_.pop_front();
  }
  const Measurement latest{{calibrations_us_.begin(), calibrations_us_.end()}};
  health_(latest.median_us(), runner_.device_failures());
}

void JobRunner::run_wave(const Jobs& jobs) {
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
    measure_calibration();
    const RunningJob::StageTimes& spent = leased->stage_times();
    spdlog::info(
        "lease {}: {} candidates of {} {}, best {:.2f} us; waited for compilers {:.0f} ms, open "
        "{:.0f}, verify {:.0f}, time {:.0f}",
        job.lease, job.candidates.size(), to_string(job.family), job.kernel_key.short_hex(),
        leased->best_us(), spent.compile, spent.open, spent.verify, spent.time);
  }
}

Result<FileLock> JobRunner::lock_for(FileLock::Mode mode,
                                     const std::function<bool()>& give_up) const {
  auto lock = lock_device(options_.device_lock, mode, give_up);
  if (!lock && lock.error().code != Code::kUnavailable)
    spdlog::warn("working without the device's lock: {}", lock.error().message);
  return lock;
}

}  // namespace kiln
