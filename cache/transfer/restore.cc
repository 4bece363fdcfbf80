#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "cache/blob_store.h"
#include "cache/transfer/transfer.h"

namespace kiln {
namespace {

constexpr int kRestorePage = 1000;

// The binaries that the row of `entry` names. kCorruption: it does not match its seal.
Result<std::vector<Digest>> blobs_named(CacheIndex& index, const EntryId& id) {
  if (id.kind == EntryKind::kProgram)
    return index.program(id.key).map([](const ProgramRow& row) { return row.blobs; });
  return index.kernel(id.key).map(
      [](const StoredKernel& row) { return std::vector{row.kernel.blob}; });
}

// Rows that are damaged, or whose binaries are `lost`, go: they would be found and not served.
Status drop_unsound(CacheIndex& index, EntryKind kind, const std::set<Digest>& lost,
                    Imported& done) {
  for (Digest after;;) {
    TRY(const std::vector<Entry> page, index.entries(kind, after, kRestorePage));
    if (page.empty()) return {};
    for (const Entry& entry : page) {
      const auto named = blobs_named(index, entry.id);
      if (!named && named.error().code != Code::kCorruption) return fail(named.error());
      const bool complete = named && std::ranges::none_of(*named, [&](const Digest& blob) {
                              return lost.contains(blob);
                            });
      if (complete) continue;
      ++(named ? done.incomplete : done.damaged);
      TRY_STATUS(index.remove(entry.id.key));
    }
    after = page.back().id.key;
  }
}

Status sync_file(const Path& file) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  const bool synced = fd >= 0 && ::fsync(fd) == 0;
  if (fd >= 0) ::close(fd);
  if (synced) return {};
  return fail(Code::kUnavailable, "cannot sync " + file.string());
}

// Under its name whole or not at all.
Status publish_index(CacheIndex& index, const Path& file) {
  const Path half = Path(file) += ".importing";
  std::error_code error;
  std::filesystem::remove(half, error);  // of a process that was killed
  TRY_STATUS(index.copy_to(half));
  TRY_STATUS(sync_file(half));
  std::filesystem::rename(half, file, error);
  if (error)
    return fail(Code::kUnavailable, "cannot make " + file.string() + ": " + error.message());
  return sync_directory(file.parent_path());
}

}  // namespace

// The index comes last: a directory without it is no store.
Result<Imported> restore_store(StoreSource& source, const Path& directory,
                               const TransferProgress& progress) {
  TRY_STATUS(make_directories(directory));
  TRY(const FileLock lock, FileLock::try_acquire(directory / "lock", FileLock::Mode::kExclusive));
  const Path file = directory / "index.sqlite";
  std::error_code error;
  if (std::filesystem::exists(file, error))
    return fail(Code::kInvalidArgument, directory.string() + " holds a store already");
  TRY(const auto blobs, BlobStore::open(directory / "blobs"));
  Imported done;
  TRY(const std::set<Digest> lost,
      source.each_blob(progress, [&](const Digest&, const std::string& bytes) -> Status {
        ++done.blobs;
        done.bytes += static_cast<int64_t>(bytes.size());
        return blobs->put(bytes).map([](const Digest&) {});
      }));
  CacheIndex& index = source.index();
  TRY_STATUS(index.begin());
  for (const EntryKind kind : {EntryKind::kProgram, EntryKind::kKernel})
    TRY_STATUS(drop_unsound(index, kind, lost, done));
  TRY_STATUS(index.rebuild_entries());
  TRY_STATUS(index.commit());
  TRY(const IndexTotals totals, index.totals());
  done.programs = totals.programs;
  done.kernels = totals.kernels;
  done.records = totals.records;
  TRY_STATUS(publish_index(index, file));
  return done;
}

}  // namespace kiln
