#include "coordinator/storage/open_store.h"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>

#include "cache/kernel_cache.h"
#include "cache/postgres/postgres_store.h"
#include "compiler_core/base/own_directory.h"
#include "coordinator/storage/generation.h"

namespace kiln {
namespace {

constexpr int kBitsOfLeases = 32;  // as generation.h has them
// With retries; a client waits, and all writes behind it.
constexpr std::chrono::seconds kPatienceWithObjects{10};

Result<OpenedStore> open_directory(const StoreChoice& choice) {
  CacheOptions options;
  options.max_bytes = choice.max_bytes;
  options.index_memory_bytes = choice.index_bytes;
  options.log = choice.log;
  options.evicted = choice.evicted;
  TRY(auto cache, KernelCache::open(choice.data_dir, std::move(options)));
  const auto wall = std::chrono::system_clock::now().time_since_epoch();
  const auto wall_us = std::chrono::duration_cast<std::chrono::microseconds>(wall).count();
  TRY(const uint64_t first_lease,
      first_lease_of_next_incarnation(choice.data_dir, static_cast<uint64_t>(wall_us)));
  return OpenedStore{std::nullopt, std::move(cache), nullptr, first_lease};
}

Result<OpenedStore> open_postgres(const StoreChoice& choice) {
  TRY_STATUS(make_directories(choice.data_dir));
  TRY_STATUS(check_ours(choice.data_dir));
  auto lock = FileLock::try_acquire(choice.data_dir / "lock", FileLock::Mode::kExclusive);
  if (!lock && lock.error().code == Code::kUnavailable)
    return fail(Code::kUnavailable,
                fmt::format("another process serves {}", choice.data_dir.string()));
  if (!lock) return fail(lock.error());
  ObjectStoreOptions reached = choice.objects;
  reached.s3.deadline = kPatienceWithObjects;
  TRY(auto objects, open_objects(choice.blobs, reached));
  PostgresStoreOptions options;
  options.max_bytes = choice.max_bytes;
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  options.copies = choice.data_dir / kCopiesFolder;
  options.copies_bytes = choice.copies_bytes;
  options.spool = choice.data_dir / kSpoolFolder;
  options.spool_bytes = choice.spool_bytes;
  options.address = fmt::format("{} on {}", choice.address, host);
  options.log = choice.log;
  options.evicted = choice.evicted;
  options.stands_by = choice.stands_by;
  options.lost = choice.lost;
  TRY(auto store, PostgresStore::open(choice.url, std::move(objects), std::move(options)));
  const uint64_t first_lease = store->epoch() << kBitsOfLeases;
  OfferTable* const offers = &store->offers();
  return OpenedStore{*std::move(lock), std::move(store), offers, first_lease};
}

}  // namespace

Result<OpenedStore> open_store(const StoreChoice& choice) {
  if (choice.url.empty() != choice.blobs.empty())
    return fail(Code::kInvalidArgument,
                "--store and --blobs go together: one says where the index is kept "
                "(postgresql://HOST/DATABASE), the other where the binaries are "
                "(s3://BUCKET/PREFIX, or a folder that outlives this machine)");
  if (choice.url.empty() && choice.stands_by)
    return fail(Code::kInvalidArgument,
                "--standby and --follow wait for another coordinator's --store, and none is named");
  if (choice.url.empty()) return open_directory(choice);
  if (!choice.url.starts_with("postgresql://") && !choice.url.starts_with("postgres://"))
    return fail(
        Code::kInvalidArgument,
        "--store takes postgresql://USER@HOST/DATABASE; without it the store is --data-dir");
  return open_postgres(choice);
}

}  // namespace kiln
