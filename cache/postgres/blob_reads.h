// BlobReads: the binaries of a PostgresStore: from copies on this machine's disk, else from the place
// of their objects, checked against their digests. What is lost for good is doomed, so that it is made
// again; a place that is away, or wrong about what it has, costs nothing. Thread-safe.
//
//   bytes with the digest        -> answered, kept as a copy
//   the place does not answer    -> kUnavailable
//   "there is no such object",   -> kUnavailable until that has been so for `believed_after`; then, if
//   or other bytes, twice           the place gives one of a few others as it was put, doomed, and
//                                   kNotFound or kCorruption
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/local_blobs.h"
#include "cache/postgres/spooled_writes.h"
#include "cache/postgres/suspects.h"

namespace kiln {

class BlobReads {
 public:
  // Writer and objects outlive its last answer.
  BlobReads(PostgresWriter& writer, ObjectStore& objects, LocalBlobs& copies,
            std::chrono::milliseconds believed_after, std::function<void(std::string)> log)
      : writer_(writer),
        objects_(objects),
        copies_(copies),
        suspects_(believed_after),
        log_(log ? std::move(log) : [](const std::string&) {}) {}

  void fetch(const Digest& digest, const std::string& object, Then<std::string> then) {
    get(digest, object, false, std::move(then));
  }
  bool is_away() const { return away_; }  // the place did not answer the last one
  int64_t damaged() const { return damaged_; }
  // Answers that are late ask for nothing more.
  void close() { closing_ = true; }

 private:
  // A blob that is not there, or is damaged, for whom, and others that are asked for.
  struct Suspect {
    Digest digest;
    std::string object;
    bool is_there = false;
    Then<std::string> then;
    std::vector<PostgresIndex::LiveObject> others{};
  };
  void get(const Digest& digest, const std::string& object, bool again, Then<std::string> then);
  void judge(const std::shared_ptr<Suspect>& suspect);
  void ask_for_others(const std::shared_ptr<Suspect>& suspect);
  void believe(const Suspect& suspect);
  void doom(const Digest& digest, const std::string& object);

  PostgresWriter& writer_;
  ObjectStore& objects_;
  LocalBlobs& copies_;
  Suspects suspects_;
  const std::function<void(std::string)> log_;
  std::atomic<bool> away_{false}, closing_{false};
  std::atomic<int64_t> damaged_{0};
};

}  // namespace kiln
