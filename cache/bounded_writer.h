// BoundedWriter: a GroupWriter whose index has a bound on its size. Room is made before a write when
// it must be, and else behind the other writes, a step at a time, from kHighPercent of the bound
// down to kLowPercent. Thread-safe.
//
// Life of an entry: put -> used ... -> the oldest when room is needed -> row removed -> commit ->
// `gone`, which removes its bytes.
//
// An Index says its totals(), whose `bytes` the bound counts, and can evict(bytes, before_ms, limit).
#pragma once

#include <fmt/core.h>

#include <atomic>
#include <memory>

#include "cache/group_writer.h"
#include "cache/store.h"

namespace kiln {

template <class Index, class Ahead = std::monostate>
class BoundedWriter {
 public:
  using Group = GroupWriter<Index, Ahead>;
  using Job = typename Group::Job;
  using Done = typename Group::Done;
  using Evicted = typename Index::Evicted;
  struct Bound {
    int64_t max_bytes = 0;     // 0: none
    int64_t keep_used_ms = 0;  // entries used within this time stay
    std::function<int64_t()> now_ms;
  };
  // `gone` is called on the writer's thread when entries are durably gone.
  BoundedWriter(Index index, Bound bound, std::function<void(const Evicted&)> gone)
      : bound_(std::move(bound)), gone_(std::move(gone)), group_(std::move(index)) {
    // The bound may be lower than at the last start.
    group_.submit(
        0,
        [this](Index& rows) -> Status {
          trim_soon(rows);
          return {};
        },
        nullptr);
  }

  Group& group() { return group_; }
  // Steps of eviction that are under way end early from now on.
  void close() { closing_ = true; }

  // Submits a job that will store `stored_bytes`; room for them is made first.
  void write(size_t queued_bytes, int64_t stored_bytes, Job job, Done done, Ahead ahead = {}) {
    write(
        queued_bytes, stored_bytes, std::move(job),
        [done = std::move(done)](Status status, bool) {
          if (done) done(std::move(status));
        },
        std::move(ahead));
  }
  // The same; `done` hears, too, whether the job failed because no room could be made.
  using DoneOrFull = std::function<void(Status, bool is_full)>;
  void write(size_t queued_bytes, int64_t stored_bytes, Job job, DoneOrFull done,
             Ahead ahead = {}) {
    const auto room = std::make_shared<Room>();
    group_.submit(
        queued_bytes,
        [this, stored_bytes, room, job = std::move(job)](Index& index) -> Status {
          *room = {};  // a job may run twice
          TRY_STATUS(make_room(index, stored_bytes, *room));
          TRY_STATUS(job(index));
          trim_soon(index);
          return {};
        },
        [this, room, done = std::move(done)](Status status) {
          if (status) gone_(room->evicted);
          done(std::move(status), room->is_full);
        },
        std::move(ahead));
  }

  // As Store::collect. `so_far` is added to.
  using CollectDone = std::function<void(Store::Collected, Status)>;
  // Each step is one job, submitted when the last one is durable, so that other writes come between.
  void collect(int64_t max_bytes, Store::Collected so_far, CollectDone done) {
    const auto evicted = std::make_shared<Evicted>();
    const auto left = std::make_shared<int64_t>(0);  // bytes above the bound
    group_.submit(
        0,
        [this, max_bytes, evicted, left](Index& index) -> Status {
          *evicted = {};
          TRY(const auto totals, index.totals());
          TRY(*evicted, index.evict(totals.bytes - max_bytes, keep_from_ms(), kEntriesAStep));
          *left = totals.bytes - evicted->bytes - max_bytes;
          return {};
        },
        [this, max_bytes, so_far, evicted, left, done = std::move(done)](Status status) mutable {
          if (!status) return done(so_far, std::move(status));
          gone_(*evicted);
          so_far.bytes += evicted->bytes;
          so_far.programs += static_cast<int64_t>(evicted->programs.size());
          so_far.entries += evicted->entries;
          so_far.left_bytes = *left + max_bytes;
          if (*left <= 0) return done(so_far, {});
          if (closing_) return done(so_far, fail(Code::kUnavailable, "the cache is being closed"));
          if (evicted->entries > 0) return collect(max_bytes, so_far, std::move(done));
          done(so_far, fail(Code::kUnavailable,
                            fmt::format("{} bytes are above the bound, and what is left is {}",
                                        *left, what_stays())));
        });
  }

 private:
  // Bounds on how long one step of eviction holds up the writer.
  static constexpr int kEntriesAStep = 64;
  static constexpr int kEntriesForAWrite = 512;
  static constexpr int64_t kHighPercent = 96, kLowPercent = 92;
  struct Room {
    Evicted evicted;
    bool is_full = false;
  };

  int64_t keep_from_ms() const { return bound_.now_ms() - bound_.keep_used_ms; }
  // Why the entries that are left cannot be evicted.
  std::string what_stays() const {
    if (bound_.keep_used_ms <= 0) return "pinned";
    return fmt::format("pinned or was used in the last {} s", bound_.keep_used_ms / 1000);
  }

  Status make_room(Index& index, int64_t bytes, Room& room) {
    if (bound_.max_bytes == 0) return {};
    TRY(const auto totals, index.totals());
    const int64_t excess = totals.bytes + bytes - bound_.max_bytes;
    if (excess <= 0) return {};
    TRY(room.evicted, index.evict(excess, keep_from_ms(), kEntriesForAWrite));
    if (room.evicted.bytes >= excess) return {};
    room.is_full = true;
    return fail(Code::kUnavailable,
                fmt::format("the cache is full: {} of {} bytes are stored, and what is left is {}",
                            totals.bytes - room.evicted.bytes, bound_.max_bytes, what_stays()));
  }

  // Begins to evict when there is too much, unless that is under way.
  void trim_soon(Index& index) {
    if (bound_.max_bytes == 0 || closing_) return;
    const auto totals = index.totals();
    if (!totals || totals->bytes <= bound_.max_bytes / 100 * kHighPercent) return;
    if (trimming_.exchange(true)) return;
    collect(bound_.max_bytes / 100 * kLowPercent, {},
            [this](const Store::Collected&, const Status&) { trimming_ = false; });
  }

  const Bound bound_;
  const std::function<void(const Evicted&)> gone_;
  std::atomic<bool> closing_{false}, trimming_{false};
  Group group_;
};

}  // namespace kiln
