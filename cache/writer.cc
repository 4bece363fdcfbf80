// One batch:
//
//   take -> begin -> part, part, ... -> commit -> done, done, ...
//                        \ the transaction is lost -> each job in one of its own -> done ...
//
// A job that fails undoes its own part only. When the transaction as a whole is lost (SQLite finds
// the disk full or broken), each job is tried again alone, so that each hears its own error.
#include "cache/writer.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace kiln {
namespace {

constexpr size_t kMaxQueuedJobs = 100'000;
constexpr size_t kMaxQueuedBytes = size_t{512} << 20;
constexpr size_t kMaxBatchJobs = 1024;  // bounds how long the first of a batch waits for the last

Status refused() {
  return fail(Error{Code::kOverloaded, "the cache has too much to write", 1000});
}

}  // namespace

Writer::Writer(CacheIndex index) : index_(std::move(index)), thread_([this] { run(); }) {}

Writer::~Writer() {
  stop();
}

void Writer::stop() {
  {
    const std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void Writer::submit(size_t bytes, Job job, Done done) {
  {
    const std::scoped_lock lock(mu_);
    if (queue_.size() >= kMaxQueuedJobs || queued_bytes_ + bytes > kMaxQueuedBytes) {
      job = nullptr;
      bytes = 0;
    }
    queue_.push_back({bytes, std::move(job), std::move(done)});
    queued_bytes_ += bytes;
    ++submitted_;
  }
  work_.notify_one();
}

void Writer::flush() {
  std::unique_lock lock(mu_);
  idle_.wait(lock, [this, goal = submitted_] { return answered_ >= goal; });
}

void Writer::run() {
  for (;;) {
    std::vector<Entry> batch;
    {
      std::unique_lock lock(mu_);
      work_.wait(lock, [this] { return stopping_ || !queue_.empty(); });
      if (queue_.empty()) return;
      const auto end =
          queue_.begin() + static_cast<std::ptrdiff_t>(std::min(queue_.size(), kMaxBatchJobs));
      batch.assign(std::make_move_iterator(queue_.begin()), std::make_move_iterator(end));
      queue_.erase(queue_.begin(), end);
      for (const Entry& entry : batch) queued_bytes_ -= entry.bytes;
    }
    std::vector<Status> results = apply(batch);
    for (size_t i = 0; i < batch.size(); ++i)
      if (batch[i].done) batch[i].done(std::move(results[i]));
    {
      const std::scoped_lock lock(mu_);
      answered_ += batch.size();
    }
    idle_.notify_all();
  }
}

std::vector<Status> Writer::apply(const std::vector<Entry>& batch) {
  std::vector<Status> results(batch.size());
  bool whole = index_.begin().has_value();
  for (size_t i = 0; whole && i < batch.size(); ++i) whole = apply_part(batch[i], results[i]);
  if (whole && index_.commit()) return results;
  index_.roll_back();  // also fine when nothing was begun
  for (size_t i = 0; i < batch.size(); ++i) results[i] = apply_alone(batch[i]);
  return results;
}

bool Writer::apply_part(const Entry& entry, Status& result) {
  if (!entry.job) {
    result = refused();
    return true;
  }
  if (!index_.begin_part()) return false;
  result = entry.job(index_);
  return (result ? index_.end_part() : index_.undo_part()).has_value();
}

Status Writer::apply_alone(const Entry& entry) {
  if (!entry.job) return refused();
  Status result = index_.begin();
  if (!result) return result;
  result = entry.job(index_);
  if (result) result = index_.commit();
  if (!result) index_.roll_back();
  return result;
}

}  // namespace kiln
