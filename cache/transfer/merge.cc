#include <fmt/core.h>

#include <condition_variable>
#include <set>

#include "cache/transfer/transfer.h"
#include "compiler_core/program/revocations.h"

namespace kiln {
namespace {

constexpr int kRowPage = 1000;
constexpr int64_t kMergeSample = 100;

// Puts on their way into a store, bounded; keeps the first error.
class Puts {
 public:
  ~Puts() { (void)finish(); }

  Store::Done one(size_t bytes) {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return open_ == 0 || (open_ < kMaxOpen && bytes_ < kMaxBytes); });
    ++open_;
    bytes_ += bytes;
    return [this, bytes](Status done) {
      const std::scoped_lock answered(mu_);
      --open_;
      bytes_ -= bytes;
      if (!done && first_) first_ = std::move(done);
      changed_.notify_all();
    };
  }
  Status finish() {
    std::unique_lock lock(mu_);
    changed_.wait(lock, [&] { return open_ == 0; });
    return first_;
  }
  Status so_far() {
    const std::scoped_lock lock(mu_);
    return first_;
  }

 private:
  static constexpr int kMaxOpen = 1000;
  static constexpr size_t kMaxBytes = size_t{32} << 20;
  std::mutex mu_;
  std::condition_variable changed_;
  int open_ = 0;
  size_t bytes_ = 0;
  Status first_;
};

class Merger {
 public:
  Merger(StoreSource& source, Store& into, const TransferProgress& progress)
      : index_(source.index()), source_(source), into_(into), progress_(progress) {}

  // In the order that the store asks for: what is named before what names it.
  Result<Imported> run() {
    TRY_STATUS(hear_revocations());
    TRY(const IndexTotals totals, index_.totals());
    stride_ = totals.blobs / kMergeSample + 1;
    TRY(lost_, source_.each_blob(progress_, [this](const Digest& digest, std::string bytes) {
      ++done_.blobs;
      done_.bytes += static_cast<int64_t>(bytes.size());
      const size_t size = bytes.size();
      if (done_.blobs % stride_ == 0) sample_.push_back(digest);
      into_.put_blob(std::move(bytes), puts_.one(size));
      return puts_.so_far();
    }));
    TRY_STATUS(each_row(EntryKind::kKernel, [this](const Entry& entry, bool is_there) {
      return kernel(entry, is_there);
    }));
    TRY_STATUS(each_row(EntryKind::kProgram, [this](const Entry& entry, bool is_there) {
      return program(entry, is_there);
    }));
    TRY_STATUS(records());
    TRY_STATUS(kin());
    TRY_STATUS(puts_.finish());
    into_.flush();
    TRY_STATUS(read_back());
    return done_;
  }

 private:
  Status hear_revocations() {
    TRY(const std::vector<Revocation> all, into_.revocations());
    for (const Revocation& each : all) {
      if (each.kind == Revocation::Kind::kProgram) {
        revoked_.revoke_program(each.key, each.through);
      } else {
        revoked_.revoke_kernel(each.key, each.through);
        revoked_kernels_.insert(each.key);
      }
    }
    return {};
  }

  using TakeRow = std::function<Status(const Entry&, bool is_there)>;
  // In pages, since the store may be far.
  Status each_row(EntryKind kind, const TakeRow& take) {
    for (Digest after;;) {
      TRY(const std::vector<Entry> page, index_.entries(kind, after, kRowPage));
      if (page.empty()) return {};
      std::vector<Digest> keys;
      for (const Entry& entry : page) keys.push_back(entry.id.key);
      TRY(const std::set<Digest> there,
          kind == EntryKind::kKernel ? into_.whole_kernels(keys) : into_.whole_programs(keys));
      for (const Entry& entry : page) TRY_STATUS(take(entry, there.contains(entry.id.key)));
      TRY_STATUS(puts_.so_far());
      after = page.back().id.key;
    }
  }

  // A row that the store has, and cannot read, is replaced.
  Status kernel(const Entry& entry, bool is_there) {
    const auto row = index_.kernel(entry.id.key);
    if (!row && row.error().code != Code::kCorruption) return fail(row.error());
    if (!row) return note(done_.damaged);
    if (lost_.contains(row->kernel.blob)) return note(done_.incomplete);
    if (revoked_kernels_.contains(entry.id.key)) return note(done_.revoked);
    if (is_there) return note(done_.present);
    ++done_.kernels;
    into_.put_kernel({row->kernel, row->tuned_on}, puts_.one(static_cast<size_t>(entry.bytes)));
    return {};
  }

  Status program(const Entry& entry, bool is_there) {
    const auto row = index_.program(entry.id.key);
    if (!row && row.error().code != Code::kCorruption) return fail(row.error());
    const auto parsed = row ? program_from_json(row->manifest) : fail(row.error());
    if (!parsed) return note(done_.damaged);
    for (const ProgramKernel& needed : parsed->kernels)
      if (lost_.contains(needed.blob)) return note(done_.incomplete);
    if (revoked_.cover(*parsed)) return note(done_.revoked);
    if (is_there) return note(done_.present);
    ++done_.programs;
    into_.put_program(*parsed, puts_.one(row->manifest.size()), row->audience);
    if (entry.held > 0) into_.pin(entry.id.key, puts_.one(0));
    return {};
  }

  Status records() {
    for (int64_t after = 0;;) {
      TRY(CacheIndex::RecordPage page, index_.check_records(after, kRowPage));
      if (page.good.empty() && page.damaged.empty()) return {};
      done_.records += static_cast<int64_t>(page.good.size());
      done_.damaged += static_cast<int64_t>(page.damaged.size());
      for (TuningRecord& record : page.good) {
        const size_t bytes = sizeof record + record.log.size();
        into_.put_record(std::move(record), puts_.one(bytes));
      }
      TRY_STATUS(puts_.so_far());
      after = page.last_id;
    }
  }

  Status kin() {
    for (Digest after;;) {
      TRY(std::vector<CacheIndex::Kin> page, index_.kin(after, kRowPage));
      if (page.empty()) return {};
      for (CacheIndex::Kin& each : page)
        into_.put_shape_generic_key(each.workload, std::move(each.key), puts_.one(sizeof each));
      TRY_STATUS(puts_.so_far());
      after = page.back().workload;
    }
  }

  // Every row that was taken over or was there, by its seal, and a sample of the binaries.
  Status read_back() {
    int64_t rows = 0;
    const TakeRow count = [&rows](const Entry&, bool is_there) {
      rows += is_there ? 1 : 0;
      return Status();
    };
    TRY_STATUS(each_row(EntryKind::kKernel, count));
    TRY_STATUS(each_row(EntryKind::kProgram, count));
    const int64_t wanted = done_.programs + done_.kernels + done_.present;
    if (rows < wanted)
      return fail(Code::kCorruption,
                  fmt::format("of {} programs and kernels the store gives back {}", wanted, rows));
    for (const Digest& digest : sample_) {
      TRY(const std::string bytes,
          wait_for_answer<std::string>([&](auto then) { into_.look_up_blob(digest, then); }));
      if (Digest::of(bytes) != digest)
        return fail(Code::kCorruption, "blob " + digest.short_hex() + " came back altered");
    }
    return {};
  }

  static Status note(int64_t& counter) {
    ++counter;
    return {};
  }

  CacheIndex& index_;
  StoreSource& source_;
  Store& into_;
  const TransferProgress& progress_;
  Revocations revoked_;
  std::set<Digest> revoked_kernels_, lost_;
  std::vector<Digest> sample_;  // every stride_-th binary
  int64_t stride_ = 1;
  Imported done_;
  Puts puts_;  // last: waits for what is on its way
};

}  // namespace

Result<Imported> merge_store(StoreSource& source, Store& into, const TransferProgress& progress) {
  return Merger(source, into, progress).run();
}

}  // namespace kiln
