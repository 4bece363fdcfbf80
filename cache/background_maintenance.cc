#include "cache/background_maintenance.h"

#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>

#include "cache/damaged.h"
#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

constexpr size_t kTimesPerJob = 512;
constexpr int64_t kBetweenShardsMs = 2;
constexpr int64_t kClockSlackMs = 2'000;  // between a file's time and ours

}  // namespace

Writer::Job remove_unknown(BlobStore& blobs, std::vector<Digest> digests) {
  return [&blobs, digests = std::move(digests)](CacheIndex& index) -> Status {
    for (const Digest& digest : digests) {
      const Result<Entry> entry = index.entry({EntryKind::kBlob, digest});
      if (!entry && entry.error().code == Code::kNotFound) TRY_STATUS(blobs.remove(digest));
    }
    return {};
  };
}

BackgroundMaintenance::BackgroundMaintenance(Plan plan, BlobStore& blobs, Writer& writer,
                                             AccessTimes& access_times)
    : plan_(std::move(plan)),
      started_ms_(unix_ms()),
      blobs_(blobs),
      writer_(writer),
      access_times_(access_times),
      thread_([this] { run(); }) {}

BackgroundMaintenance::~BackgroundMaintenance() {
  {
    std::unique_lock lock(mu_);
    stopping_ = true;
    changed_.notify_all();
    // Repeatedly: a check that has not begun yet does not notice an interrupt.
    while (checked_ != nullptr) {
      checked_->interrupt();
      changed_.wait_for(lock, std::chrono::milliseconds(5));
    }
  }
  thread_.join();
}

bool BackgroundMaintenance::pause(int64_t ms) {
  std::unique_lock lock(mu_);
  return !changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return stopping_; });
}

void BackgroundMaintenance::run() {
  sweep();
  if (plan_.check_index) check_index();
  {
    const std::scoped_lock lock(mu_);
    made_first_round_ = true;
  }
  changed_.notify_all();
  int64_t until_sweep_ms = plan_.sweep_every_ms;
  while (pause(plan_.touch_every_ms)) {
    write_access_times();
    until_sweep_ms -= plan_.touch_every_ms;
    if (until_sweep_ms > 0) continue;
    sweep();
    until_sweep_ms = plan_.sweep_every_ms;
  }
}

void BackgroundMaintenance::write_access_times() {
  const auto times =
      std::make_shared<const std::vector<std::pair<EntryId, int64_t>>>(access_times_.take());
  for (size_t first = 0; first < times->size(); first += kTimesPerJob) {
    const size_t end = std::min(first + kTimesPerJob, times->size());
    writer_.submit((end - first) * sizeof(EntryId),
                   [times, first, end](CacheIndex& index) -> Status {
                     for (size_t i = first; i < end; ++i)
                       TRY_STATUS(index.touch((*times)[i].first, (*times)[i].second));
                     return {};
                   },
                   nullptr);
  }
}

// A damaged page shows when it is read, as a miss. This check finds it earlier, and leaves a note
// for the next start, which sets the file aside.
void BackgroundMaintenance::check_index() {
  Result<CacheIndex> index = CacheIndex::open_for_reading(plan_.index_file);
  if (!index) return;
  {
    const std::scoped_lock lock(mu_);
    if (stopping_) return;
    checked_ = &*index;
  }
  const Status checked = index->check();
  {
    const std::scoped_lock lock(mu_);
    checked_ = nullptr;
    changed_.notify_all();
    if (stopping_) return;
  }
  if (checked || checked.error().code != Code::kCorruption) return;
  Path note = plan_.index_file;
  note += kDamageNote;
  (void)write_file(note, checked.error().message);
  if (plan_.log)
    plan_.log(
        fmt::format("index state=damaged file={} reason={:?} advice=\"restart: what can be "
                    "read is served, the next start begins with an empty index\"",
                    plan_.index_file.string(), checked.error().message));
}

void BackgroundMaintenance::sweep() {
  if (!plan_.sweeps) return;
  Result<CacheIndex> index = CacheIndex::open_for_reading(plan_.index_file);
  for (int shard = 0; index && shard < BlobStore::kShards; ++shard) {
    sweep_shard(*index, shard);
    if (!pause(kBetweenShardsMs)) return;
  }
}

void BackgroundMaintenance::sweep_shard(CacheIndex& index, int shard) {
  blobs_.remove_leftovers(shard, started_ms_ - kClockSlackMs);
  const int64_t before_ms = plan_.now_ms() - plan_.orphans_after_ms;
  std::vector<Digest> orphans;
  for (const BlobStore::File& file : blobs_.list(shard)) {
    if (!file.digest || file.written_ms >= before_ms) continue;
    const Result<Entry> entry = index.entry({EntryKind::kBlob, *file.digest});
    if (!entry && entry.error().code == Code::kNotFound) orphans.push_back(*file.digest);
  }
  if (!orphans.empty()) writer_.submit(0, remove_unknown(blobs_, std::move(orphans)), nullptr);
}

void BackgroundMaintenance::wait_for_first_round() {
  std::unique_lock lock(mu_);
  changed_.wait(lock, [this] { return made_first_round_; });
}

}  // namespace kiln
