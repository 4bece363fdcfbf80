#include "worker/jobs/job_runner.h"

#include <fmt/core.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>

#include "compiler_core/base/own_directory.h"

namespace kiln {
namespace {

constexpr std::chrono::milliseconds kLockPause{3};
constexpr std::chrono::seconds kSaidEvery{1}, kLoggedEvery{30};  // who holds the lock
constexpr std::chrono::milliseconds kCompilerPause{1};
constexpr std::chrono::seconds kIdleLook{5};  // at a device that nobody uses
constexpr std::chrono::seconds kBuildsFirst{5};
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
                             const std::function<bool()>& give_up,
                             const std::function<void(const std::string& what)>& waits) {
  using Clock = std::chrono::steady_clock;
  auto say_at = Clock::now() + kSaidEvery, log_at = say_at;
  bool said = false;
  for (;;) {
    auto lock = FileLock::try_acquire(path, mode);
    const bool held = !lock && lock.error().code == Code::kUnavailable;
    const bool gave_up = held && give_up();
    if (!held || gave_up) {
      if (said && waits) waits("");
      if (gave_up) return fail(Code::kUnavailable, "gave up waiting for " + path.string());
      return lock;
    }
    if (const auto now = Clock::now(); now >= say_at) {
      say_at = now + kSaidEvery;
      const std::string holders = lock_holders(path);
      const std::string what = fmt::format("the device's lock {}, held by {}", path.string(),
                                           holders.empty() ? "a process not seen here" : holders);
      if (now >= log_at) {
        spdlog::warn("waits for {}", what);
        log_at = now + kLoggedEvery;
      }
      said = true;
      if (waits) waits(what);
    }
    std::this_thread::sleep_for(kLockPause);
  }
}

JobRunner::JobRunner(Options options, CompilePool& compilers, const Callbacks& callbacks)
    : options_(std::move(options)),
      compilers_(compilers),
      callbacks_{callbacks.stepped, callbacks.finished,
                 [this](uint64_t lease) { return is_dropped(lease); }, callbacks.trace},
      // A job that waits for the device is as alive as the one that has it.
      runner_(with_progress(options_.runner,
                            [this] {
                              for (const auto& job : jobs_) callbacks_.stepped(job->job().lease);
                            })),
      lowering_(options_.runner),
      builds_(lowering_, compilers_, callbacks.stepped, callbacks.finished, callbacks.trace),
      health_(callbacks.health),
      waits_(callbacks.waits),
      thread_([this] { work(); }) {}

void JobRunner::submit(std::vector<Job> jobs) {
  Jobs leased;
  for (Job& job : jobs) {
    if (job.kind == Job::Kind::kBuild) {
      builds_.submit(std::move(job));
      continue;
    }
    leased.push_back(
        std::make_unique<RunningJob>(std::move(job), lowering_, compilers_, callbacks_));
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
  builds_.drop(lease);
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
  lowering_.close();
  compilers_.stop();  // the threads may wait for one, and report nothing any more
  builds_.stop();
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
  while (wait_for_jobs()) {
    if (jobs_.empty()) {
      look_at_device();
    } else if (options_.compiling_disturbs) {
      run_wave(jobs_);
      jobs_.clear();
    } else {
      run_as_compiled();
    }
  }
}

// Returns without jobs when there was nothing to do for a while.
bool JobRunner::wait_for_jobs() {
  {
    std::unique_lock lock(mu_);
    changed_.wait_for(lock, kIdleLook, [this] { return stopping_ || !queue_.empty(); });
    if (stopping_) return false;
  }
  take_submitted();
  return true;
}

void JobRunner::take_submitted() {
  const std::lock_guard lock(mu_);
  std::ranges::move(queue_, std::back_inserter(jobs_));
  queue_.clear();
  std::erase_if(dropped_, [this](uint64_t lease) {
    return std::ranges::none_of(jobs_, [=](const auto& job) { return job->job().lease == lease; });
  });
}

// Checks an idle device, in quarantine or not: that it works, and is as fast as before.
void JobRunner::look_at_device() {
  if (!health_ || (options_.compiling_disturbs && builds_.busy())) return;
  const auto waited_for = [this] {
    const std::lock_guard lock(mu_);
    return stopping_ || !queue_.empty();
  };
  const auto lock = lock_for(FileLock::Mode::kExclusive, waited_for);
  if (!waited_for()) measure_calibration();
}

void JobRunner::measure_calibration() {
  if (!health_) return;
  if (options_.compiling_disturbs && builds_.busy()) return tell_health();
  const auto reply = runner_.call(runner::MeasureCalibration{}, kCalibrationQuietMs);
  const auto* measured = reply ? std::get_if<runner::CalibrationMeasured>(&*reply) : nullptr;
  if (measured != nullptr && measured->us > 0) {
    calibrations_us_.push_back(measured->us);
    if (calibrations_us_.size() > kCalibrations) calibrations_us_.pop_front();
  }
  tell_health();
}

void JobRunner::tell_health() {
  if (!health_) return;
  const Measurement latest{{calibrations_us_.begin(), calibrations_us_.end()}};
  health_(latest.median_us(), runner_.device_failures());
}

void JobRunner::run_wave(const Jobs& jobs) {
  const bool compiles = !std::ranges::all_of(jobs, &RunningJob::is_compiled_already);
  {
    std::optional<Result<FileLock>> lock;
    if (compiles) lock = lock_for(FileLock::Mode::kShared, [this] { return is_stopping(); });
    for (const auto& job : jobs) job->start_compiling();
    for (const auto& job : jobs) job->finish_compiling();
  }
  for (const auto& job : jobs)
    if (job->look() != RunningJob::Ready::kFinished) measure(*job, [] { return false; });
}

void JobRunner::run_as_compiled() {
  while (!is_stopping()) {
    take_submitted();
    if (jobs_.empty()) return;
    const auto chosen = most_ready();
    if (chosen == jobs_.end()) {
      std::this_thread::sleep_for(kCompilerPause);
      jobs_.front()->add_wait(std::chrono::duration<double, std::milli>(kCompilerPause).count());
      continue;
    }
    RunningJob* const job = chosen->get();
    const auto gives_way = [this, job] {
      take_submitted();
      return std::ranges::any_of(jobs_, [=](const auto& other) {
        return other.get() != job && other->look() == RunningJob::Ready::kAll;
      });
    };
    const bool is_over = is_dropped(job->job().lease) ||
                         job->look() == RunningJob::Ready::kFinished || measure(*job, gives_way);
    if (is_over) std::erase_if(jobs_, [=](const auto& other) { return other.get() == job; });
  }
}

// The first job that need not wait for a compiler, or else the first that has something to try.
JobRunner::Jobs::iterator JobRunner::most_ready() {
  auto some = jobs_.end();
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (is_dropped((*job)->job().lease)) return job;
    const RunningJob::Ready ready = (*job)->look();
    if (ready >= RunningJob::Ready::kAll) return job;
    if (ready == RunningJob::Ready::kSome && some == jobs_.end()) some = job;
  }
  return some;
}

// Not for long, or a service that is always asked would verify nothing.
void JobRunner::let_builds_go_first(const RunningJob& job) {
  using Clock = std::chrono::steady_clock;
  const auto until = Clock::now() + kBuildsFirst;
  while (options_.compiling_disturbs && builds_.busy() && Clock::now() < until &&
         !is_dropped(job.job().lease))
    std::this_thread::sleep_for(kLockPause);
  for (const auto& each : jobs_) callbacks_.stepped(each->job().lease);
}

// False: the job gave way, and is to be measured again.
bool JobRunner::measure(RunningJob& running, const std::function<bool()>& gives_way) {
  const Job& job = running.job();
  let_builds_go_first(running);
  {
    const auto lock =
        lock_for(running.is_timed() ? FileLock::Mode::kExclusive : FileLock::Mode::kShared,
                 [&] { return is_dropped(job.lease); });
    if (is_dropped(job.lease)) return true;
    // A user's own kernel finds nothing of others' in its process, and may leave anything there.
    const bool is_custom = job.family == Family::kCustom;
    if (is_custom) runner_.end();
    if (!running.measure(runner_, known_, gives_way)) return false;
    // So may what another worker built, which on a CPU is code of that process.
    if (is_custom || (options_.compiling_disturbs && running.runs_others_code(known_)))
      runner_.end();
    if (running.is_timed())
      measure_calibration();
    else
      tell_health();
  }
  const RunningJob::StageTimes& spent = running.stage_times();
  spdlog::info(
      "lease {}: {} candidates of {} {}, best {:.2f} us; waited for compilers {:.0f} ms, open "
      "{:.0f}, verify {:.0f}, time {:.0f}",
      job.lease, job.candidates.size(), to_string(job.family), job.kernel_key.short_hex(),
      running.best_us(), spent.compile, spent.open, spent.verify, spent.time);
  return true;
}

Result<FileLock> JobRunner::lock_for(FileLock::Mode mode,
                                     const std::function<bool()>& give_up) const {
  auto lock = lock_device(options_.device_lock, mode, give_up, waits_);
  if (!lock && lock.error().code != Code::kUnavailable)
    spdlog::warn("working without the device's lock: {}", lock.error().message);
  return lock;
}

}  // namespace kiln
