#include "cache/audit.h"

#include <fmt/core.h>

#include <set>
#include <utility>

#include "cache/blob_store.h"
#include "compiler_core/program/program.h"

namespace kiln {
namespace {

constexpr int kPage = 1000;

class Auditor {
 public:
  Auditor(const Path& directory, CacheIndex index, const AuditProgress& progress)
      : blob_root_(directory / "blobs"), index_(std::move(index)), progress_(progress) {}

  // Blobs first: a row is bad when a blob it names is.
  Result<AuditReport> run() {
    if (const Status checked = index_.check(); !checked) {
      if (checked.error().code != Code::kCorruption) return fail(checked.error());
      add(Finding::Kind::kIndex, {}, checked.error().message);
      return std::move(report_);  // a damaged index cannot be trusted about the rest
    }
    TRY(const IndexTotals totals, index_.totals());
    total_ = totals.blobs + totals.kernels + totals.programs + totals.records;
    TRY_STATUS(each(EntryKind::kBlob, [this](const Entry& entry) { check_blob(entry); }));
    TRY_STATUS(each(EntryKind::kKernel, [this](const Entry& entry) { check_kernel(entry); }));
    TRY_STATUS(each(EntryKind::kProgram, [this](const Entry& entry) { check_program(entry); }));
    TRY_STATUS(check_records());
    return std::move(report_);
  }

 private:
  template <class Check>
  Status each(EntryKind kind, Check check) {
    for (Digest after;;) {
      TRY(const std::vector<Entry> page, index_.entries(kind, after, kPage));
      if (page.empty()) return {};
      for (const Entry& entry : page) {
        check(entry);
        TRY_STATUS(count(1));
      }
      after = page.back().id.key;
    }
  }

  Status count(int64_t more) {
    const int64_t before = std::exchange(done_, done_ + more);
    if (!progress_ || before / kPage == done_ / kPage || progress_(done_, total_)) return {};
    return fail(Code::kDeadlineExceeded, "the audit was ended early");
  }

  void add(Finding::Kind kind, const Digest& key, std::string problem) {
    report_.findings.push_back({kind, key, std::move(problem)});
  }
  // The entry may have been evicted since its page was read.
  bool still_there(const EntryId& id) { return index_.entry(id).has_value(); }

  void check_blob(const Entry& entry) {
    const Result<std::string> bytes = read_file(BlobStore::path_of(blob_root_, entry.id.key));
    ++report_.blobs;
    if (bytes) report_.bytes += static_cast<int64_t>(bytes->size());
    if (bytes && Digest::of(*bytes) == entry.id.key) return;
    if (!still_there(entry.id)) return;
    // No row names it: a crash came before its kernel, or it was quarantined. It is evicted in
    // turn.
    if (!bytes && bytes.error().code == Code::kNotFound && entry.held == 0) return;
    bad_blobs_.insert(entry.id.key);
    add(Finding::Kind::kBlob, entry.id.key,
        bytes ? fmt::format("{} bytes whose digest is another", bytes->size())
              : bytes.error().message);
  }

  void check_kernel(const Entry& entry) {
    ++report_.kernels;
    const Result<StoredKernel> row = index_.kernel(entry.id.key);
    if (row && !bad_blobs_.contains(row->kernel.blob)) return;
    if (!still_there(entry.id)) return;
    add(Finding::Kind::kKernel, entry.id.key,
        row ? "its blob " + row->kernel.blob.short_hex() + " is bad" : row.error().message);
  }

  void check_program(const Entry& entry) {
    ++report_.programs;
    const Result<ProgramRow> row = index_.program(entry.id.key);
    std::string problem = row ? "" : row.error().message;
    if (row) {
      for (const Digest& blob : row->blobs)
        if (bad_blobs_.contains(blob)) problem = "its blob " + blob.short_hex() + " is bad";
      if (const auto program = program_from_json(row->manifest); !program)
        problem = program.error().message;
    }
    if (!problem.empty() && still_there(entry.id))
      add(Finding::Kind::kProgram, entry.id.key, std::move(problem));
  }

  Status check_records() {
    Finding bad{Finding::Kind::kRecords, {}, "", {}};
    for (int64_t after = 0;;) {
      TRY(const CacheIndex::RecordPage page, index_.check_records(after, kPage));
      const auto read = static_cast<int64_t>(page.good.size() + page.damaged.size());
      if (read == 0) break;
      report_.records += read;
      bad.records.insert(bad.records.end(), page.damaged.begin(), page.damaged.end());
      after = page.last_id;
      TRY_STATUS(count(read));
    }
    if (!bad.records.empty()) {
      bad.problem = fmt::format("{} records do not match their seals", bad.records.size());
      report_.findings.push_back(std::move(bad));
    }
    return {};
  }

  const Path blob_root_;
  CacheIndex index_;
  const AuditProgress& progress_;
  AuditReport report_;
  std::set<Digest> bad_blobs_;
  int64_t done_ = 0, total_ = 0;
};

Status drop(CacheIndex& index, const Finding& finding) {
  switch (finding.kind) {
    case Finding::Kind::kKernel:
    case Finding::Kind::kProgram:
      return index.remove(finding.key);
    case Finding::Kind::kRecords:
      for (const int64_t id : finding.records) TRY_STATUS(index.remove_record(id));
      return {};
    case Finding::Kind::kBlob:
    case Finding::Kind::kIndex:
      return {};
  }
  return {};
}

}  // namespace

std::string_view to_string(Finding::Kind kind) {
  switch (kind) {
    case Finding::Kind::kIndex:
      return "index";
    case Finding::Kind::kBlob:
      return "blob";
    case Finding::Kind::kKernel:
      return "kernel";
    case Finding::Kind::kProgram:
      return "program";
    case Finding::Kind::kRecords:
      return "records";
  }
  return "?";
}

Result<AuditReport> audit(const Path& directory, const AuditProgress& progress) {
  const Path file = directory / "index.sqlite";
  std::error_code ignored;
  if (!std::filesystem::exists(file, ignored))
    return fail(Code::kNotFound,
                fmt::format("{} holds no store (index.sqlite)", directory.string()));
  TRY(CacheIndex index, CacheIndex::open_for_reading(file));
  return Auditor(directory, std::move(index), progress).run();
}

Status repair(const Path& directory, const AuditReport& report) {
  const auto lock = FileLock::try_acquire(directory / "lock", FileLock::Mode::kExclusive);
  if (!lock && lock.error().code == Code::kUnavailable)
    return fail(Code::kUnavailable,
                fmt::format("a coordinator serves {}: stop it first", directory.string()));
  if (!lock) return fail(lock.error());
  for (const Finding& finding : report.findings)
    if (finding.kind == Finding::Kind::kIndex)
      return fail(Code::kCorruption, "the index itself is damaged (" + finding.problem +
                                         "): the next coordinator sets it aside and starts empty");
  TRY(const auto blobs, BlobStore::open(directory / "blobs"));
  TRY(CacheIndex index, CacheIndex::open_for_writing(directory / "index.sqlite"));
  for (const Finding& finding : report.findings)
    if (finding.kind == Finding::Kind::kBlob) (void)blobs->get(finding.key);  // moves it aside
  TRY_STATUS(index.begin());
  for (const Finding& finding : report.findings) TRY_STATUS(drop(index, finding));
  TRY_STATUS(index.rebuild_entries());
  return index.commit();
}

}  // namespace kiln
