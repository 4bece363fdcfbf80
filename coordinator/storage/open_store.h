// Opens the store that an operator chose: the data directory itself, or PostgreSQL and an object store
// (docs/several_machines.md). Either way the directory is this process's alone while the lock lives:
// it also has the signing key and what is queued without a client.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "cache/objects/object_store.h"
#include "cache/offer_table.h"
#include "cache/store.h"
#include "compiler_core/base/file.h"

namespace kiln {

inline constexpr char kCopiesFolder[] = "copies";  // of binaries, in data_dir
inline constexpr char kSpoolFolder[] =
    "spool";  // of what waits for the store (cache/postgres/spool.h)

struct StoreChoice {
  Path data_dir;
  std::string url{};    // postgresql://...; empty: data_dir
  std::string blobs{};  // s3://bucket/prefix or a folder, with `url`
  ObjectStoreOptions objects{};
  std::string address{};     // of this coordinator, for people
  int64_t max_bytes = 0;     // of programs, kernels and blobs; 0: unbounded
  int64_t copies_bytes = 0;  // of copies of binaries on this machine's disk, with `url`
  int64_t spool_bytes = 0;   // of what waits there for a store that is away, with `url`
  int64_t index_bytes = 0;   // pages of the index kept in memory, of data_dir
  // With `url`: as PostgresStoreOptions.
  std::function<bool()> stands_by{};
  std::function<void()> lost{};
  // As CacheOptions, from any thread.
  std::function<void(std::string)> log{};
  std::function<void(std::vector<Digest>)> evicted{};
};

struct OpenedStore {
  std::optional<FileLock> lock;  // of the directory, where the store has none of its own
  std::unique_ptr<Store> store;
  OfferTable* offers = nullptr;  // the store's, of several coordinators; null: none
  // CoreOptions::first_lease: above every one that an earlier coordinator on this store may have used.
  uint64_t first_lease = 0;
};

// kUnavailable when another process has the directory or writes the store, or it does not answer;
// kInvalidArgument for a URL without blobs or the other way round; kUnsupported for another build's.
Result<OpenedStore> open_store(const StoreChoice& choice);

}  // namespace kiln
