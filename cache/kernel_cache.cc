// Life of a write: put_* -> Writer -> (blob: file, fsync, rename, fsync) -> row -> commit -> done.
// Life of a read: a free connection -> row -> seal -> are its blobs there -> answer.
#include "cache/kernel_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <mutex>
#include <set>
#include <utility>

#include "cache/index.h"
#include "cache/writer.h"

namespace kiln {
namespace {

// Connections for reading: each look-up borrows one, so that readers never wait for each other or
// for the writer. Thread-safe.
class Readers {
 public:
  explicit Readers(Path file) : file_(std::move(file)) {}

  // `read(CacheIndex&)` with a connection of its own.
  template <class Read>
  auto with(Read read) -> decltype(read(std::declval<CacheIndex&>())) {
    TRY(CacheIndex index, take());
    auto result = read(index);
    const std::scoped_lock lock(mu_);
    if (free_.size() < kMaxFree) free_.push_back(std::move(index));
    return result;
  }

 private:
  static constexpr size_t kMaxFree = 16;

  Result<CacheIndex> take() {
    {
      const std::scoped_lock lock(mu_);
      if (!free_.empty()) {
        CacheIndex index = std::move(free_.back());
        free_.pop_back();
        return index;
      }
    }
    return CacheIndex::open_for_reading(file_);
  }

  const Path file_;
  std::mutex mu_;
  std::vector<CacheIndex> free_;  // guarded by mu_
};

// Moves a damaged database out of the way, with the files that belong to it.
Result<Path> set_aside(const Path& file) {
  Path aside = file;
  for (int number = 1; aside == file || std::filesystem::exists(aside); ++number) {
    aside = file;
    aside += fmt::format(".damaged.{}", number);
  }
  for (const char* suffix : {"", "-wal", "-shm"}) {
    Path from = file, to = aside;
    from += suffix;
    to += suffix;
    std::error_code error;
    std::filesystem::rename(from, to, error);
    if (error && *suffix == 0)
      return fail(Code::kUnavailable,
                  fmt::format("cannot set {} aside: {}", from.string(), error.message()));
  }
  return aside;
}

}  // namespace

struct KernelCache::Impl {
  Impl(FileLock held, std::unique_ptr<BlobStore> blob_store, CacheIndex index, const Path& file,
       std::string note)
      : lock(std::move(held)),
        blobs(std::move(blob_store)),
        warning(std::move(note)),
        writer(std::move(index)),
        readers(file) {}
  // What is queued may still read. Then the writer's connection closes last: only it can fold the
  // write-ahead log into the database.
  ~Impl() { writer.stop(); }

  bool has_all(const std::vector<Digest>& digests) const {
    return std::all_of(digests.begin(), digests.end(),
                       [this](const Digest& digest) { return blobs->contains(digest); });
  }

  // A row that turned out damaged goes, so that the next put starts clean.
  template <class T>
  Result<T> dropping_damage(const Digest& key, Result<T> row) {
    if (!row && row.error().code == Code::kCorruption)
      writer.submit(
          0, [key](CacheIndex& index) { return index.remove_damaged(key); }, nullptr);
    return row;
  }

  const FileLock lock;
  const std::unique_ptr<BlobStore> blobs;
  const std::string warning;
  Writer writer;
  Readers readers;
};

KernelCache::KernelCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelCache::~KernelCache() = default;

Result<std::unique_ptr<KernelCache>> KernelCache::open(const Path& directory) {
  TRY_STATUS(make_directories(directory));
  Result<FileLock> lock = FileLock::try_acquire(directory / "lock", FileLock::Mode::kExclusive);
  if (!lock && lock.error().code == Code::kUnavailable)
    return fail(Code::kUnavailable, fmt::format("another process serves {}", directory.string()));
  if (!lock) return fail(lock.error());
  TRY(std::unique_ptr<BlobStore> blobs, BlobStore::open(directory / "blobs"));
  blobs->remove_leftovers();

  const Path file = directory / "index.sqlite";
  std::string warning;
  Result<CacheIndex> index = CacheIndex::open_for_writing(file);
  if (!index && index.error().code == Code::kCorruption) {
    const std::string reason = index.error().message;
    TRY(const Path aside, set_aside(file));
    warning = fmt::format("{} is damaged ({}); it was moved to {} and the cache starts empty",
                          file.string(), reason, aside.string());
    index = CacheIndex::open_for_writing(file);
  }
  if (!index) return fail(index.error().within(directory.string()));
  auto impl = std::make_unique<Impl>(*std::move(lock), std::move(blobs), *std::move(index), file,
                                     std::move(warning));
  return std::unique_ptr<KernelCache>(new KernelCache(std::move(impl)));
}

const std::string& KernelCache::warning() const {
  return impl_->warning;
}

Result<std::string> KernelCache::program(const Digest& program_key) {
  TRY(ProgramRow row,
      impl_->dropping_damage(program_key, impl_->readers.with([&](CacheIndex& index) {
        return index.program(program_key);
      })));
  if (!impl_->has_all(row.blobs))
    return fail(Code::kNotFound, fmt::format("program {} lacks a blob", program_key.short_hex()));
  return std::move(row.manifest);
}

Result<StoredKernel> KernelCache::kernel(const Digest& kernel_key) {
  TRY(KernelRow row, impl_->dropping_damage(kernel_key, impl_->readers.with([&](CacheIndex& index) {
    return index.kernel(kernel_key);
  })));
  if (!impl_->blobs->contains(row.kernel.blob))
    return fail(Code::kNotFound, fmt::format("kernel {} lacks its blob", kernel_key.short_hex()));
  return StoredKernel{std::move(row.kernel), std::move(row.tuned_on)};
}

Result<std::string> KernelCache::blob(const Digest& digest) {
  return impl_->blobs->get(digest);
}

void KernelCache::put_blob(std::string bytes, Done done) {
  const size_t size = bytes.size();
  impl_->writer.submit(
      size,
      [blobs = impl_->blobs.get(), bytes = std::move(bytes)](CacheIndex& index) -> Status {
        TRY(const Digest digest, blobs->put(bytes));
        return index.put_blob(digest, static_cast<int64_t>(bytes.size()));
      },
      std::move(done));
}

// Invariant 1 is kept here too, and not only by the caller's order: the blob's own put may have
// failed meanwhile.
void KernelCache::put_kernel(StoredKernel kernel, Done done) {
  KernelRow row{std::move(kernel.kernel), std::move(kernel.tuned_on)};
  impl_->writer.submit(
      sizeof row,
      [impl = impl_.get(), row = std::move(row)](CacheIndex& index) -> Status {
        if (!impl->blobs->contains(row.kernel.blob))
          return fail(Code::kUnavailable, "the kernel's blob is not stored");
        return index.put_kernel(row);
      },
      std::move(done));
}

void KernelCache::put_program(const Program& program, Done done) {
  std::set<Digest> blobs;
  for (const ProgramKernel& kernel : program.kernels) blobs.insert(kernel.blob);
  ProgramRow row{program_to_json(program), {blobs.begin(), blobs.end()}};
  const size_t size = row.manifest.size();
  impl_->writer.submit(
      size,
      [impl = impl_.get(), key = program.key, row = std::move(row)](CacheIndex& index) -> Status {
        if (!impl->has_all(row.blobs))
          return fail(Code::kUnavailable, "a blob of the program is not stored");
        return index.put_program(key, row);
      },
      std::move(done));
}

void KernelCache::put_record(TuningRecord record, Done done) {
  const size_t size = record.log.size() + record.measurement.samples_us.size() * sizeof(double);
  impl_->writer.submit(
      size, [record = std::move(record)](CacheIndex& index) { return index.put_record(record); },
      std::move(done));
}

void KernelCache::put_kin(const Digest& workload, Kin kin, Done done) {
  const size_t size = kin.sizes.size() * sizeof(int64_t);
  impl_->writer.submit(
      size,
      [workload, kin = std::move(kin)](CacheIndex& index) { return index.put_kin(workload, kin); },
      std::move(done));
}

void KernelCache::forget(const Digest& key, Done done) {
  impl_->writer.submit(
      0, [key](CacheIndex& index) { return index.remove(key); }, std::move(done));
}

void KernelCache::flush() {
  impl_->writer.flush();
}

Result<std::vector<TuningRecord>> KernelCache::records(const Digest& kernel_key) {
  return impl_->readers.with([&](CacheIndex& index) { return index.records(kernel_key); });
}

Result<std::vector<Schedule>> KernelCache::earlier_winners(const Digest& workload) {
  return impl_->readers.with([&](CacheIndex& index) { return index.earlier_winners(workload); });
}

Result<std::vector<Schedule>> KernelCache::kin_winners(const Kin& kin) {
  return impl_->readers.with([&](CacheIndex& index) { return index.kin_winners(kin); });
}

KernelCache::Totals KernelCache::totals() const {
  Totals totals;
  totals.corrupt_blobs = impl_->blobs->corrupt_count();
  const auto counts = impl_->readers.with([](CacheIndex& index) { return index.counts(); });
  if (!counts) return totals;  // numbers for people: not worth an error of their own
  totals.programs = counts->programs;
  totals.kernels = counts->kernels;
  totals.records = counts->records;
  totals.bytes = counts->blob_bytes;
  return totals;
}

}  // namespace kiln
