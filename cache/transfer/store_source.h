// StoreSource: a store as it was at one moment, read from end to end: a data directory, also while
// a coordinator serves it, the store of several machines (PostgreSQL and an ObjectStore), also while
// coordinators use it, or an export in an ObjectStore:
//
//   blobs/ab/abcd...          a binary, under its digest
//   index/DIGEST              a part of index.sqlite (cache/index_schema.cc), of 64 MiB but the last
//   export                    written last: what the export holds
//
//     kiln-export 1
//     part BYTES DIGEST       each part of the index, in order
//     programs N              and kernels, blobs, records, blob_bytes, missing_blobs: counts
//
// An export is as good as a data directory: whoever can write it decides what is run once it is
// imported. Digests and seals find damage, not malice. One thread at a time.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "cache/index.h"
#include "cache/objects/object_store.h"

namespace kiln {

// Called now and then with the binaries moved so far and how many there are.
using TransferProgress = std::function<void(int64_t done, int64_t total)>;

inline constexpr char kExportName[] = "export";
std::string export_blob_name(const Digest& digest);  // "blobs/ab/abcd..."
std::string export_part_name(const Digest& digest);  // "index/abcd..."

// The head of an export: its parts and counts.
struct ExportFacts {
  struct Part {
    int64_t bytes = 0;
    Digest digest;
    bool operator==(const Part&) const = default;
  };
  std::vector<Part> parts;
  int64_t programs = 0, kernels = 0, blobs = 0, records = 0;
  int64_t blob_bytes = 0;
  int64_t missing_blobs = 0;  // evicted, or damaged, while the export was written
  bool operator==(const ExportFacts&) const = default;

  std::string to_text() const;
  // kInvalidArgument: no export; kUnsupported: of a newer Kiln.
  static Result<ExportFacts> parse(std::string_view text);
};

// Waits for one answer of an ObjectStore or a Store.
template <class T, class Ask>
Result<T> wait_for_answer(Ask ask) {
  auto promise = std::make_shared<std::promise<Result<T>>>();
  auto future = promise->get_future();
  ask([promise](Result<T> result) { promise->set_value(std::move(result)); });
  return future.get();
}

class StoreSource {
 public:
  // Copies the index, so that what changes meanwhile does not matter. kNotFound: no store there;
  // kUnsupported: of another version.
  static Result<StoreSource> of_directory(const Path& directory);
  // kNotFound: no export there; kCorruption: a part of its index is another than it says.
  static Result<StoreSource> of_export(std::unique_ptr<ObjectStore> objects);
  // Copies the rows of a PostgresStore out of one snapshot, each with its seal, and counts them.
  // kUnavailable; kCorruption: fewer rows came than the store says it has.
  static Result<StoreSource> of_postgres(const std::string& url,
                                         std::unique_ptr<ObjectStore> objects);
  // A data directory, or a place as open_objects() takes it.
  static Result<StoreSource> open(const std::string& place, const ObjectStoreOptions& options);

  CacheIndex& index() { return *index_; }
  // The copy of index.sqlite. Nothing is waiting to be written to it.
  const Path& index_file() const { return index_file_; }
  // Each checked against its digest. kNotFound: it is gone; kCorruption: it is damaged;
  // kUnavailable: the store does not answer.
  std::vector<Result<std::string>> blobs(std::span<const Digest> digests);
  // Every binary in turn, some read ahead: `take` hears each that is whole. The digests of those that
  // are gone or damaged. An error of `take` ends it.
  using TakeBlob = std::function<Status(const Digest&, std::string)>;
  Result<std::set<Digest>> each_blob(const TransferProgress& progress, const TakeBlob& take);

 private:
  explicit StoreSource(TempDir scratch)
      : scratch_(std::move(scratch)), index_file_(scratch_.path() / "index.sqlite") {}
  Status open_index();
  // The objects that hold these; what is not in it is gone.
  using Names = std::map<Digest, std::string>;
  using FindNames = std::function<Result<Names>(std::span<const Digest>)>;

  TempDir scratch_;
  Path index_file_;
  Path blob_folder_;                      // of a directory
  std::unique_ptr<ObjectStore> objects_;  // else; null of a directory
  FindNames names_;                       // in objects_
  std::unique_ptr<CacheIndex> index_;
};

}  // namespace kiln
