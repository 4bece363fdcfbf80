// BackgroundMaintenance: a thread of the KernelCache for work that nobody waits for. It writes
// access times down, about once a minute; sweeps the folders of blobs, at the start and a few times
// a day, for half-written files and for blobs that no row knows; and checks a large index once,
// which would hold up the start. It works in small steps and stops between two of them; the check
// is one step of seconds, and is interrupted.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cache/access_times.h"
#include "cache/blob_store.h"
#include "cache/group_writer.h"
#include "cache/index.h"

namespace kiln {

using Writer = GroupWriter<CacheIndex>;

// A job that removes the blobs among `digests` that no row knows. It runs on the writer's thread,
// where nobody puts one meanwhile. REQUIRES: the removal of their rows is committed.
Writer::Job remove_unknown(BlobStore& blobs, std::vector<Digest> digests);

class BackgroundMaintenance {
 public:
  struct Plan {
    Path index_file;
    bool check_index = false;
    bool sweeps = true;
    int64_t touch_every_ms = 60'000;       // how often access times are written
    int64_t orphans_after_ms = 3'600'000;  // younger blobs without a row are left alone
    int64_t sweep_every_ms = 6 * 3'600'000;
    std::function<int64_t()> now_ms;
    // Called on this thread.
    std::function<void(std::string)> log;
  };
  // The references outlive it.
  BackgroundMaintenance(Plan plan, BlobStore& blobs, Writer& writer, AccessTimes& access_times);
  ~BackgroundMaintenance();  // stops

  // Hands the access times gathered so far to the writer.
  void write_access_times();
  // Waits until the first sweep and the check of a large index are over. For tests.
  void wait_for_first_round();

 private:
  void run();
  void check_index();
  void sweep();
  void sweep_shard(CacheIndex& index, int shard);
  // False when it is time to stop.
  bool pause(int64_t ms);

  // Constant after construction.
  const Plan plan_;
  const int64_t started_ms_;

  BlobStore& blobs_;
  Writer& writer_;
  AccessTimes& access_times_;

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mu_, as is the rest
  bool made_first_round_ = false;
  CacheIndex* checked_ = nullptr;  // while check_index reads it

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
