#include "worker/jobs/build_jobs.h"

#include <chrono>
#include <utility>

namespace kiln {
namespace {

constexpr std::chrono::milliseconds kLook{2};  // at compilers that run

}  // namespace

BuildJobs::BuildJobs(CandidateLowering& lowering, CompilePool& compilers,
                     std::function<void(uint64_t lease)> stepped,
                     std::function<void(CandidateResult result)> finished, SpanSink trace)
    : lowering_(lowering),
      compilers_(compilers),
      callbacks_{std::move(stepped), std::move(finished),
                 [this](uint64_t lease) { return is_dropped(lease); }, std::move(trace)},
      thread_([this] { work(); }) {}

void BuildJobs::submit(Job job) {
  const uint64_t lease = job.lease;
  auto running = std::make_unique<RunningJob>(std::move(job), lowering_, compilers_, callbacks_);
  const std::lock_guard lock(mu_);
  queue_.push_back(std::move(running));
  open_.insert(lease);
  changed_.notify_one();
}

void BuildJobs::drop(uint64_t lease) {
  const std::lock_guard lock(mu_);
  open_.erase(lease);
}

bool BuildJobs::busy() const {
  const std::lock_guard lock(mu_);
  return running_ > 0 || !queue_.empty();
}

void BuildJobs::stop() {
  {
    const std::lock_guard lock(mu_);
    stopping_ = true;
    queue_.clear();
  }
  changed_.notify_one();
  if (thread_.joinable()) thread_.join();
}

bool BuildJobs::is_dropped(uint64_t lease) const {
  const std::lock_guard lock(mu_);
  return stopping_ || !open_.contains(lease);
}

void BuildJobs::work() {
  std::vector<std::unique_ptr<RunningJob>> running;
  for (;;) {
    std::unique_ptr<RunningJob> next;
    {
      std::unique_lock lock(mu_);
      const auto has_news = [this] { return stopping_ || !queue_.empty(); };
      if (running.empty())
        changed_.wait(lock, has_news);
      else
        changed_.wait_for(lock, kLook, has_news);
      if (stopping_) return;
      if (!queue_.empty()) {
        next = std::move(queue_.front());
        queue_.erase(queue_.begin());
        ++running_;
      }
    }
    if (next) {
      if (!is_dropped(next->job().lease)) next->start_compiling();
      running.push_back(std::move(next));
    }
    const size_t ended = std::erase_if(running, [this](const auto& job) {
      const uint64_t lease = job->job().lease;
      const bool is_over = is_dropped(lease) || job->look() == RunningJob::Ready::kFinished;
      if (is_over) drop(lease);
      return is_over;
    });
    const std::lock_guard lock(mu_);
    running_ -= ended;
  }
}

}  // namespace kiln
