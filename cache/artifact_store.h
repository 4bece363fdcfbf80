// ArtifactStore: values that other compilers made, by kind and key, until their bound in bytes; then
// those go that were not used for the longest, of the user who has the most. They lie in artifacts.sqlite beside the index: a file
// of its own with a bound of its own, so that they cost no kernel its place. A thread of its own
// reads and writes, in the order it was asked. Thread-safe.
//
// Invariants:
//  1. What put() reported as stored survives the death of the process.
//  2. Between two jobs of the thread, totals' bytes are within the bound.
//  3. What get() gives has the signature of this store's key over its kind, key and value.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cache/sqlite.h"
#include "compiler_core/base/signature.h"
#include "compiler_core/program/audience.h"

namespace kiln {

inline constexpr char kArtifactsFile[] = "artifacts.sqlite";  // of a data directory

struct ArtifactId {
  std::string kind, key;
};

struct KeptArtifact {
  std::string value;
  std::string signature;  // Ed25519, 64 bytes (signed_artifact())
};

// The entries of one kind; the last two count since the store was opened.
struct ArtifactTotals {
  int64_t entries = 0, bytes = 0;  // with keys and some for the row
  int64_t evicted = 0;
  int64_t damaged = 0;  // did not have their signature when they were read
};

struct ListedArtifact {
  ArtifactId id;
  Audience audience;
  std::string owner;  // the user whose key put it; empty: no keys
  int64_t bytes = 0, made_ms = 0, used_ms = 0;
};

class ArtifactStore {
 public:
  struct Options {
    int64_t max_bytes = int64_t{4} << 30;
    std::function<int64_t()> now_ms;  // Unix time; empty: the system's clock
  };

  // Creates the file, and brings it within the bound. A damaged one is set aside (warning() says
  // so). kUnsupported when a newer Kiln wrote it.
  static Result<std::unique_ptr<ArtifactStore>> open(const Path& file, SigningKey key,
                                                     Options options);
  ~ArtifactStore();                                        // after every job it was given
  const std::string& warning() const { return warning_; }  // for the log; usually empty

  // Looks up the value of `id` that `viewer` may have. kNotFound; kOverloaded when too much waits
  // already. The functions below run on the store's thread and may be empty, but for `got`.
  using Got = std::function<void(Result<KeptArtifact>)>;
  void get(ArtifactId id, Viewer viewer, Got got);
  // Signs the value and stores it in place of the audience's earlier one. kInvalidArgument: larger
  // than the store; kOverloaded; kUnavailable when the disk does not take it.
  using Done = std::function<void(Status)>;
  void put(ArtifactId id, std::string value, Audience audience, std::string owner, Done done);
  // For a value that lies elsewhere: what the store would sign it with.
  std::string signature_of(const ArtifactId& id, const std::string& value) const;
  // Removes what `owner` put before `until_ms`; how many that were.
  void take_back(std::string owner, int64_t until_ms, std::function<void(Result<int64_t>)> done);
  // Waits until every job given so far is done.
  void flush();

  std::map<std::string, ArtifactTotals> totals() const;  // by kind

  // Lists the entries of the kinds that begin with `kind` in a store's file, latest use first, also
  // while a coordinator serves it; `limit` 0: all. kNotFound: there is no such file.
  static Result<std::vector<ListedArtifact>> list(const Path& file, const std::string& kind,
                                                  int64_t limit);

 private:
  struct Job {
    size_t bytes = 0;
    std::function<void(const Status& accepted)> work;  // an error: the queue is full
  };
  ArtifactStore(Database db, SigningKey key, Options options, std::string warning);
  void submit(size_t bytes, std::function<void(const Status&)> work);
  void run();
  // The thread's:
  Status count();  // reads totals_ from the file
  Result<KeptArtifact> read(const ArtifactId& id, const Viewer& viewer);
  Status write(const ArtifactId& id, const std::string& value, const Audience& audience,
               const std::string& owner);
  // The part of a row that counts.
  struct Row {
    int64_t id = 0, bytes = 0;
    std::string kind, owner;
  };
  Status make_room(int64_t bytes, const std::string& owner);
  Status remove(const Row& row);
  Status in_transaction(const std::function<Status()>& change);
  void damaged(const std::string& kind);

  const SigningKey key_;
  const Options options_;
  const std::string warning_;
  Database db_;                              // the thread's, once it runs, as is the next
  std::map<std::string, int64_t> bytes_of_;  // by owner

  mutable std::mutex mu_;
  std::condition_variable work_, idle_;
  std::deque<Job> queue_;  // guarded by mu_, as is the rest
  size_t queued_bytes_ = 0;
  bool working_ = false, stopping_ = false;
  std::map<std::string, ArtifactTotals> totals_;

  std::thread thread_;  // last: starts when the rest stands
};

}  // namespace kiln
