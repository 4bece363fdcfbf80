// Life of a write: put_* -> Writer -> (blob: file, fsync, rename, fsync) -> row -> commit -> done.
// Life of a read: a free connection -> row -> seal -> are its blobs there -> answer.
// Life of an entry: bounded_writer.h.
#include "cache/kernel_cache.h"

#include <fmt/core.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <utility>

#include "cache/access_times.h"
#include "cache/background_maintenance.h"
#include "cache/bounded_writer.h"
#include "cache/damaged.h"
#include "cache/index.h"
#include "cache/readers.h"
#include "compiler_core/base/clock.h"
#include "compiler_core/base/own_directory.h"

namespace kiln {

struct KernelCache::Impl {
  Impl(FileLock held, std::unique_ptr<BlobStore> blob_store, CacheIndex index, const Path& file,
       std::string note, CacheOptions given);
  // Queued jobs may still read, so the readers outlive them. The writer's connection closes last:
  // only it can fold the write-ahead log into the database.
  ~Impl() {
    bounded.close();
    maintenance->write_access_times();
    maintenance.reset();
    writer().stop();
  }

  // No member: `bounded` calls after() from its own thread before the members behind it are made.
  Writer& writer() { return bounded.group(); }

  bool has_all(const std::vector<Digest>& digests) const {
    return std::all_of(digests.begin(), digests.end(),
                       [this](const Digest& digest) { return blobs->contains(digest); });
  }

  // Removes a row that turned out damaged, so that the next put starts clean.
  template <class T>
  Result<T> dropping_damage(const Digest& key, Result<T> row) {
    if (!row && row.error().code == Code::kCorruption)
      writer().submit(
          0, [key](CacheIndex& index) { return index.remove_damaged(key); }, nullptr);
    return row;
  }

  // Called when rows are durably gone: removes the files and tells memory.
  void after(const CacheIndex::Evicted& evicted);

  const CacheOptions options;
  const Path directory;
  const FileLock lock;
  const std::unique_ptr<BlobStore> blobs;
  const std::string warning;
  std::atomic<int64_t> evicted_programs{0};
  AccessTimes access_times;
  BoundedWriter<CacheIndex> bounded;
  Readers readers;
  std::unique_ptr<BackgroundMaintenance> maintenance;
};

KernelCache::Impl::Impl(FileLock held, std::unique_ptr<BlobStore> blob_store, CacheIndex index,
                        const Path& file, std::string note, CacheOptions given)
    : options(std::move(given)),
      directory(file.parent_path()),
      lock(std::move(held)),
      blobs(std::move(blob_store)),
      warning(std::move(note)),
      bounded(std::move(index), {options.max_bytes, options.keep_used_ms, options.now_ms},
              [this](const CacheIndex::Evicted& evicted) { after(evicted); }),
      readers(file) {
  BackgroundMaintenance::Plan plan;
  plan.index_file = file;
  std::error_code unknown;
  plan.check_index = static_cast<int64_t>(std::filesystem::file_size(file, unknown)) >
                     CacheIndex::kCheckedAtOnceBytes;
  plan.touch_every_ms = options.touch_every_ms;
  plan.orphans_after_ms = options.orphans_after_ms;
  plan.sweeps = options.sweeps;
  plan.now_ms = options.now_ms;
  plan.log = options.log;
  maintenance =
      std::make_unique<BackgroundMaintenance>(std::move(plan), *blobs, writer(), access_times);
}

void KernelCache::Impl::after(const CacheIndex::Evicted& evicted) {
  if (!evicted.blobs.empty()) writer().submit(0, remove_unknown(*blobs, evicted.blobs), nullptr);
  if (evicted.programs.empty()) return;
  evicted_programs += static_cast<int64_t>(evicted.programs.size());
  if (options.evicted) options.evicted(evicted.programs);
}

KernelCache::KernelCache(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
KernelCache::~KernelCache() = default;

namespace {

// kCorruption also when the maintenance of an earlier process left a note that it is damaged.
Result<CacheIndex> open_index(const Path& file, const CacheOptions& options) {
  if (const auto note = read_file(Path(file) += kDamageNote)) return fail(Code::kCorruption, *note);
  return CacheIndex::open_for_writing(file, options.now_ms, options.index_memory_bytes);
}

}  // namespace

Result<std::unique_ptr<KernelCache>> KernelCache::open(const Path& directory,
                                                       CacheOptions options) {
  if (!options.now_ms) options.now_ms = unix_ms;
  TRY_STATUS(make_directories(directory));
  TRY_STATUS(check_ours(directory));
  Result<FileLock> lock = FileLock::try_acquire(directory / "lock", FileLock::Mode::kExclusive);
  if (!lock && lock.error().code == Code::kUnavailable)
    return fail(Code::kUnavailable, fmt::format("another process serves {}", directory.string()));
  if (!lock) return fail(lock.error());
  TRY(std::unique_ptr<BlobStore> blobs, BlobStore::open(directory / "blobs"));
  TRY_STATUS(check_ours(directory / "blobs"));

  const Path file = directory / "index.sqlite";
  std::string warning;
  Result<CacheIndex> index = open_index(file, options);
  if (!index && index.error().code == Code::kCorruption) {
    const std::string reason = index.error().message;
    if (options.refuse_damaged)
      return fail(Code::kCorruption,
                  fmt::format("{} is damaged ({}); nothing was changed: the next coordinator that "
                              "is started on it sets it aside and begins an empty one",
                              file.string(), reason));
    TRY(const Path aside, set_database_aside(file));
    warning = fmt::format("{} is damaged ({}); it was moved to {} and the cache starts empty",
                          file.string(), reason, aside.string());
    index = open_index(file, options);
  }
  if (!index) return fail(index.error().within(directory.string()));
  auto impl = std::make_unique<Impl>(*std::move(lock), std::move(blobs), *std::move(index), file,
                                     std::move(warning), std::move(options));
  return std::unique_ptr<KernelCache>(new KernelCache(std::move(impl)));
}

const std::string& KernelCache::warning() const {
  return impl_->warning;
}

Result<std::string> KernelCache::program(const Digest& program_key) {
  TRY(StoredProgram stored, program_and_audience(program_key));
  return std::move(stored.manifest);
}

Result<StoredProgram> KernelCache::program_and_audience(const Digest& program_key) {
  TRY(ProgramRow row,
      impl_->dropping_damage(program_key, impl_->readers.with([&](CacheIndex& index) {
        return index.program(program_key);
      })));
  if (!impl_->has_all(row.blobs))
    return fail(Code::kNotFound, fmt::format("program {} lacks a blob", program_key.short_hex()));
  touch(program_key);
  return StoredProgram{std::move(row.manifest), std::move(row.audience)};
}

Result<StoredKernel> KernelCache::kernel(const Digest& kernel_key) {
  TRY(StoredKernel row,
      impl_->dropping_damage(kernel_key, impl_->readers.with([&](CacheIndex& index) {
        return index.kernel(kernel_key);
      })));
  if (!impl_->blobs->contains(row.kernel.blob))
    return fail(Code::kNotFound, fmt::format("kernel {} lacks its blob", kernel_key.short_hex()));
  touch_kernel(kernel_key);
  return row;
}

Result<std::string> KernelCache::blob(const Digest& digest) {
  Result<std::string> bytes = impl_->blobs->get(digest);
  if (!bytes && bytes.error().code == Code::kUnavailable) bytes = impl_->blobs->get(digest);
  if (!bytes && bytes.error().code == Code::kUnavailable) bytes.error().code = Code::kCorruption;
  return bytes;
}

void KernelCache::look_up_program(const Digest& program_key, Then<StoredProgram> then) {
  then(program_and_audience(program_key));
}

void KernelCache::look_up_blob(const Digest& digest, Then<std::string> then) {
  then(blob(digest));
}

void KernelCache::touch(const Digest& program_key) {
  impl_->access_times.add({EntryKind::kProgram, program_key}, impl_->options.now_ms());
}

void KernelCache::touch_kernel(const Digest& kernel_key) {
  impl_->access_times.add({EntryKind::kKernel, kernel_key}, impl_->options.now_ms());
}

void KernelCache::put_blob(std::string bytes, Done done) {
  const size_t size = bytes.size();
  impl_->bounded.write(
      size, static_cast<int64_t>(size),
      [blobs = impl_->blobs.get(), bytes = std::move(bytes)](CacheIndex& index) -> Status {
        TRY(const Digest digest, blobs->put(bytes));
        return index.put_blob(digest, static_cast<int64_t>(bytes.size()));
      },
      std::move(done));
}

// Invariant 1 does not rest on the caller's order alone: the blob's own put may have failed, even
// with its file under its name when the disk did not make that durable.
void KernelCache::put_kernel(StoredKernel kernel, Done done) {
  const auto size =
      static_cast<int64_t>(kernel_to_json(kernel.kernel).size() + kernel.workload_text.size());
  impl_->bounded.write(
      sizeof kernel, size,
      [impl = impl_.get(), row = std::move(kernel)](CacheIndex& index) -> Status {
        const Result<Entry> blob = index.entry({EntryKind::kBlob, row.kernel.blob});
        if (!blob && blob.error().code != Code::kNotFound) return fail(blob.error());
        if (!blob || !impl->blobs->contains(row.kernel.blob))
          return fail(Code::kUnavailable, "the kernel's blob is not stored");
        return index.put_kernel(row);
      },
      std::move(done));
}

void KernelCache::put_program(const Program& program, Done done, const Audience& audience) {
  std::set<Digest> blobs;
  for (const ProgramKernel& kernel : program.kernels) blobs.insert(kernel.blob);
  ProgramRow row{program_to_json(program),
                 {blobs.begin(), blobs.end()},
                 program.template_stamp.hex(),
                 audience};
  const size_t size = row.manifest.size();
  impl_->bounded.write(
      size, static_cast<int64_t>(size),
      [impl = impl_.get(), key = program.key, row = std::move(row)](CacheIndex& index) -> Status {
        if (!impl->has_all(row.blobs))
          return fail(Code::kUnavailable, "a blob of the program is not stored");
        ProgramRow for_all = row;
        if (const auto before = index.program(key)) for_all.audience.add(before->audience);
        return index.put_program(key, for_all);
      },
      std::move(done));
}

void KernelCache::put_record(TuningRecord record, Done done) {
  const size_t size = record.log.size() + record.measurement.samples_us.size() * sizeof(double);
  impl_->writer().submit(
      size, [record = std::move(record)](CacheIndex& index) { return index.put_record(record); },
      std::move(done));
}

void KernelCache::put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done) {
  const size_t size = key.sizes.size() * sizeof(int64_t);
  impl_->writer().submit(
      size,
      [workload, key = std::move(key)](CacheIndex& index) {
        return index.put_shape_generic_key(workload, key);
      },
      std::move(done));
}

void KernelCache::forget(const Digest& key, Done done) {
  impl_->writer().submit(
      0, [key](CacheIndex& index) { return index.remove(key); }, std::move(done));
}

void KernelCache::take_back(TakeBack what, int64_t through, TookBack done, const Noted& act) {
  const auto taken = std::make_shared<TakenBack>();
  impl_->writer().submit(
      0,
      [taken, what = std::move(what), through, act](CacheIndex& index) -> Status {
        TRY(*taken, index.take_back(what, through));
        return act ? index.note(came_to(*act, *taken)) : Status{};
      },
      [impl = impl_.get(), taken, done = std::move(done)](Status status) {
        if (!status) return done(fail(std::move(status).error()));
        if (!taken->blobs.empty())
          impl->writer().submit(0, remove_unknown(*impl->blobs, taken->blobs), nullptr);
        done(std::move(*taken));
      });
}

void KernelCache::would_take_back(TakeBack what, TookBack done) {
  const auto found = std::make_shared<TakenBack>();
  impl_->writer().submit(
      0,
      [found, what = std::move(what)](CacheIndex& index) -> Status {
        TRY(*found, index.would_take_back(what));
        return {};
      },
      [found, done = std::move(done)](Status status) {
        if (!status) return done(fail(std::move(status).error()));
        done(std::move(*found));
      });
}

void KernelCache::list_records(RecordQuery wanted, Then<RecordList> then) {
  const auto found = std::make_shared<RecordList>();
  impl_->writer().submit(
      0,
      [found, wanted = std::move(wanted)](CacheIndex& index) -> Status {
        TRY(*found, index.list_records(wanted));
        return {};
      },
      [found, then = std::move(then)](Status status) {
        if (!status) return then(fail(std::move(status).error()));
        then(std::move(*found));
      });
}

Result<std::vector<Revocation>> KernelCache::revocations() {
  return impl_->readers.with([](CacheIndex& index) { return index.revocations(); });
}

void KernelCache::pin(const Digest& program_key, Done done, const Noted& act) {
  impl_->writer().submit(
      0,
      [program_key, act](CacheIndex& index) -> Status {
        TRY_STATUS(index.pin(program_key));
        return act ? index.note(*act) : Status{};
      },
      std::move(done));
}

void KernelCache::unpin(const Digest& program_key, Done done, const Noted& act) {
  impl_->writer().submit(
      0,
      [program_key, act](CacheIndex& index) -> Status {
        TRY_STATUS(index.unpin(program_key));
        return act ? index.note(*act) : Status{};
      },
      std::move(done));
}

void KernelCache::note(AdminAct act, Done done) {
  const size_t size = act.request.size() + act.outcome.size();
  impl_->writer().submit(
      size, [act = std::move(act)](CacheIndex& index) { return index.note(act); }, std::move(done));
}

void KernelCache::list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) {
  then(impl_->readers.with([&](CacheIndex& index) { return index.acts(before, limit); }));
}

void KernelCache::collect(int64_t max_bytes, std::function<void(Collected, Status)> done) {
  impl_->maintenance->write_access_times();  // evict by the latest order
  const auto so_far = std::make_shared<Collected>();
  impl_->writer().submit(
      0,
      [impl = impl_.get(), so_far](CacheIndex&) -> Status {
        const int64_t before_ms = impl->options.now_ms() - impl->options.keep_damaged_ms;
        const SetAside removed = remove_set_aside(impl->directory, before_ms);
        so_far->damaged_files += removed.files;
        so_far->damaged_bytes += removed.bytes;
        return {};
      },
      [impl = impl_.get(), max_bytes, so_far, done = std::move(done)](const Status&) mutable {
        impl->bounded.collect(max_bytes, *so_far, std::move(done));
      });
}

void KernelCache::flush() {
  impl_->maintenance->write_access_times();
  impl_->writer().flush();
}

void KernelCache::wait_for_first_round() {
  impl_->maintenance->wait_for_first_round();
}

Result<std::vector<TuningRecord>> KernelCache::records(const Digest& kernel_key) {
  return impl_->readers.with([&](CacheIndex& index) { return index.records(kernel_key); });
}

Result<std::vector<Schedule>> KernelCache::earlier_winners(const Digest& workload) {
  return impl_->readers.with([&](CacheIndex& index) { return index.earlier_winners(workload); });
}

Result<std::vector<Schedule>> KernelCache::nearest_winners(const ShapeGenericKey& key) {
  return impl_->readers.with([&](CacheIndex& index) { return index.nearest_winners(key); });
}

Result<ProgramList> KernelCache::list_programs(const ProgramQuery& wanted) {
  return impl_->readers.with([&](CacheIndex& index) { return index.list_programs(wanted); });
}

Result<ListedProgram> KernelCache::listed_program(const Digest& program_key) {
  return impl_->readers.with([&](CacheIndex& index) { return index.listed_program(program_key); });
}

Result<StoredKernel> KernelCache::listed_kernel(const Digest& kernel_key) {
  return impl_->readers.with([&](CacheIndex& index) { return index.kernel(kernel_key); });
}

int64_t KernelCache::index_memory_bytes() {
  return Database::memory_bytes();
}

void KernelCache::count_programs_not_of(const Digest& stamp,
                                        std::function<void(Result<int64_t>)> done) {
  const auto count = std::make_shared<int64_t>(0);
  impl_->writer().submit(
      0,
      [stamp, count](CacheIndex& index) -> Status {
        TRY(*count, index.programs_not_of(stamp));
        return {};
      },
      [count, done = std::move(done)](const Status& status) {
        done(status ? Result<int64_t>(*count) : fail(status.error()));
      });
}

KernelCache::Totals KernelCache::totals() const {
  Totals totals;
  totals.corrupt_blobs = impl_->blobs->corrupt_count();
  totals.max_bytes = impl_->options.max_bytes;
  totals.evicted = impl_->evicted_programs;
  const auto stored = impl_->readers.with([](CacheIndex& index) { return index.totals(); });
  if (!stored) return totals;  // statistics are not worth an error
  totals.programs = stored->programs;
  totals.kernels = stored->kernels;
  totals.records = stored->records;
  totals.bytes = stored->blob_bytes;
  totals.stored_bytes = stored->bytes;
  return totals;
}

}  // namespace kiln
