// ObjectStore: named bytes in a place that outlives a machine: a folder, or a bucket of an S3
// service. Thread-safe. An object is replaced as a whole: a reader gets all of one version. Nothing
// here relies on conditional writes, which some S3 services accept and ignore: a caller whose late
// remove() must not hit a newer object never uses a name twice.
//
// Answers come by callback, once for each call, on any thread, maybe before the call returns. A
// callback may call the store again, and must neither block nor destroy it.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/result.h"

namespace kiln {

template <class T>
using Then = std::function<void(Result<T>)>;

struct ObjectInfo {
  std::string name;
  int64_t bytes = 0;
  int64_t written_ms = 0;  // wall clock of the store

  bool operator==(const ObjectInfo&) const = default;
};

class ObjectStore {
 public:
  virtual ~ObjectStore() = default;  // answers what is still open with kUnavailable, then returns

  // Every call: kInvalidArgument for a name that check_object_name() refuses, and for a bucket that
  // is not there or elsewhere; kUnavailable when the store does not answer, or answers with a failure
  // that may pass; kPermissionDenied when it refuses the credentials; kOverloaded when too many calls
  // are open. Messages say what to do.

  // Durable when it hears ok. kInvalidArgument also for more than max_object_bytes().
  virtual void put(std::string name, std::string bytes, Then<void> done) = 0;
  // kNotFound only where the store itself says that there is no such object: a fact, on which a
  // caller may forget what it knew of it. kUnsupported: larger than max_object_bytes().
  // kCorruption: not the bytes that were put, and not by accident of one transfer.
  virtual void get(std::string name, Then<std::string> done) = 0;
  // Ok, too, when there is no such object.
  virtual void remove(std::string name, Then<void> done) = 0;
  // The objects after `after` ("": from the first) in the order of their names' bytes, at most
  // `limit`: fewer only at the end. REQUIRES: 0 < limit <= kMaxListed; `after` is no folder of names; beside objects below "a/"
  // there are none whose names begin with "a-" or "a.": services that keep folders (SeaweedFS) list
  // those in another order, and miss some. kUnsupported where that is noticed.
  virtual void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) = 0;
  static constexpr int kMaxListed = 1000;

  // A URL that anybody may GET the object by until it ends; whether the object exists is not asked.
  // kUnsupported for folders.
  virtual Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) = 0;
  static constexpr std::chrono::seconds kLongestLink = std::chrono::hours(24 * 7);  // S3's bound

  virtual int64_t max_object_bytes() const = 0;
  virtual std::string describe() const = 0;  // "s3://bucket/prefix", "folder /srv/blobs"
};

// A name has 1 to 512 bytes: segments of letters, digits and . _ - with a slash between each two.
// No segment begins with a dot, and ".tmp." appears nowhere. kInvalidArgument. Where "a" is an
// object, "a/b" should be none: folders, and some S3 services, cannot hold both.
Status check_object_name(std::string_view name);

struct S3Credentials {
  std::string access_key, secret_key;
  std::string session_token{};  // of temporary ones

  bool operator==(const S3Credentials&) const = default;
};

// How an S3 service is reached. s3_settings.h reads the variables and files that AWS's tools read.
struct S3Options {
  std::string endpoint{};  // "https://host[:port]"; empty: AWS, in `region`
  std::string region = "us-east-1";
  // "endpoint/bucket/name" and not "bucket.endpoint/name"; empty: only where `endpoint` is given.
  std::optional<bool> path_style{};
  // Asked for each request, on any thread, so that credentials that are replaced on disk are used.
  std::function<Result<S3Credentials>()> credentials{};
  std::string ca_file{};  // of an https endpoint; empty: the system's

  int connections = 16;  // at most; further requests wait their turn
  std::chrono::milliseconds connect_timeout{3000};
  // A request whose bytes stand still for so long is given up, and tried again.
  std::chrono::milliseconds stall_timeout{10'000};
  // A call that its retries have not answered by then hears kUnavailable.
  std::chrono::milliseconds deadline{60'000};
  int64_t max_object_bytes = int64_t{1} << 30;
  int max_waiting = 10'000;  // calls that are open at once; one more hears kOverloaded
};

struct ObjectStoreOptions {
  S3Options s3{};
};

// `url`: "s3://BUCKET" or "s3://BUCKET/PREFIX", else a folder's path, with or without "file://". A
// folder that is missing or empty becomes a store; in an S3 store nothing is asked yet.
// kInvalidArgument: another form; a folder with other files in it.
Result<std::unique_ptr<ObjectStore>> open_objects(const std::string& url,
                                                  const ObjectStoreOptions& options);

}  // namespace kiln
