// Housekeeper: the thread of a KernelCache that does what nobody waits for: writes down what was
// used, about once a minute; sweeps the blobs' folders, at the start and a few times a day, for
// half-written files and for blobs that no row knows; and reads a large index through once, which
// would hold up the start. It works in small steps, and stops between two of them; that reading is
// one step of seconds, and is broken off.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "cache/blob_store.h"
#include "cache/touches.h"
#include "cache/writer.h"

namespace kiln {

// A job that removes those of these blobs that no row knows. On the writer's thread nobody puts one
// meanwhile. REQUIRES: the removal of their rows is committed.
Writer::Job remove_unknown(BlobStore& blobs, std::vector<Digest> digests);

class Housekeeper {
 public:
  struct Plan {
    Path index_file;
    bool check_index = false;
    bool sweeps = true;
    int64_t touch_every_ms = 60'000;
    int64_t orphans_after_ms = 3'600'000;  // blobs of no row that are younger are left alone
    int64_t sweep_every_ms = 6 * 3'600'000;
    std::function<int64_t()> now_ms;
    // On this thread.
    std::function<void(std::string)> log;
  };
  // What it is given outlives it.
  Housekeeper(Plan plan, BlobStore& blobs, Writer& writer, Touches& touches);
  ~Housekeeper();  // stops

  // Hands what was used so far to the writer.
  void write_touches();
  // Waits until the first sweep, and the reading of a large index, are over. For tests.
  void wait_for_first_round();

 private:
  void run();
  void check_index();
  void sweep();
  void sweep_shelf(CacheIndex& index, int shelf);
  // False when it is time to stop.
  bool pause(int64_t ms);

  // Constant after construction.
  const Plan plan_;
  const int64_t started_ms_;

  BlobStore& blobs_;
  Writer& writer_;
  Touches& touches_;

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mu_, as is the rest
  bool made_first_round_ = false;
  CacheIndex* checked_ = nullptr;  // while check_index reads it

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
