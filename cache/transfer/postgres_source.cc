// Rows of PostgreSQL into an index of SQLite's, page after page within one snapshot: what coordinators
// write meanwhile is not seen, and what they remove is.
#include <fmt/format.h>

#include "cache/postgres/reads.h"
#include "cache/postgres/schema.h"
#include "cache/sealed_rows.h"
#include "cache/transfer/store_source.h"

namespace kiln {
namespace {

constexpr int64_t kSourcePage = 1000;  // rows
constexpr std::chrono::seconds kPatience{120};
constexpr int64_t kHourMs = 3'600'000;

class RowCopier {
 public:
  RowCopier(PgConnection& from, CacheIndex& to) : from_(from), to_(to) {}

  // Binaries before what names them, as the index wants it.
  Status run() {
    from_.set_patience(kPatience);
    TRY_STATUS(check_postgres_schema(from_, SchemaUse::kRead));
    from_.lazily("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
    from_.lazily("SET LOCAL statement_timeout = '100s'");
    from_.lazily("SET LOCAL idle_in_transaction_session_timeout = '100s'");
    TRY(const auto totals, reads::totals(from_));
    TRY_STATUS(
        pages("SELECT digest, bytes FROM blobs WHERE state = 'L' AND digest > $1"
              " ORDER BY digest LIMIT $2",
              [this](const PgRows& rows, int64_t row) { return blob(rows, row); }));
    TRY_STATUS(
        pages("SELECT k.key, k.kernel, k.target, k.seal, k.used_hour, b.state = 'L' FROM kernels k"
              " JOIN blobs b ON b.digest = k.blob WHERE k.key > $1 ORDER BY k.key LIMIT $2",
              [this](const PgRows& rows, int64_t row) { return kernel(rows, row); }));
    const int64_t kernels = std::exchange(rows_, 0);
    TRY_STATUS(pages(
        "SELECT key, manifest, blobs, audience, seal, used_hour, stamp, pinned, EXISTS (SELECT FROM"
        " program_blobs n JOIN blobs b ON b.digest = n.digest WHERE n.program = programs.key"
        " AND b.state <> 'L') FROM programs WHERE key > $1 ORDER BY key LIMIT $2",
        [this](const PgRows& rows, int64_t row) { return program(rows, row); }));
    const int64_t programs = std::exchange(rows_, 0);
    TRY_STATUS(
        pages("SELECT workload, kin, sizes FROM kin WHERE workload > $1"
              " ORDER BY workload LIMIT $2",
              [this](const PgRows& rows, int64_t row) { return kin(rows, row); }));
    TRY(const int64_t records, copy_records());
    TRY_STATUS(copy_revocations());
    TRY_STATUS(copy_acts());
    TRY_STATUS(from_.run("COMMIT"));
    if (programs == totals.programs && kernels == totals.kernels && records == totals.records)
      return {};
    return fail(
        Code::kCorruption,
        fmt::format("the database has {} programs, {} kernels and {} records, and gave {}, "
                    "{} and {}",
                    totals.programs, totals.kernels, totals.records, programs, kernels, records));
  }

 private:
  using TakeRow = std::function<Status(const PgRows&, int64_t row)>;
  // Each page is a transaction of the index. The first column is the key that the pages go by.
  Status pages(const char* sql, const TakeRow& take) {
    rows_ = 0;
    for (Digest after;;) {
      TRY(const PgRows rows, from_.run(sql, PgValues().add(after).add(kSourcePage)));
      const auto take_all = [&]() -> Status {
        for (int64_t row = 0; row < rows.size(); ++row) TRY_STATUS(take(rows, row));
        return {};
      };
      TRY_STATUS(in_transaction(take_all));
      rows_ += rows.size();
      if (rows.size() < kSourcePage) return {};
      TRY(after, rows.digest(rows.size() - 1, 0));
    }
  }
  template <class Write>
  Status in_transaction(Write write) {
    TRY_STATUS(to_.begin());
    if (Status written = write(); !written) {
      to_.roll_back();
      return written;
    }
    return to_.commit();
  }

  Status blob(const PgRows& rows, int64_t row) {
    TRY(const Digest digest, rows.digest(row, 0));
    return to_.put_blob(digest, rows.integer(row, 1));
  }

  // An entry that does not match its seal, or lacks a binary, is a miss to a coordinator: left out.
  Status kernel(const PgRows& rows, int64_t row) {
    TRY(const Digest key, rows.digest(row, 0));
    const auto seal = rows.digest(row, 3);
    const auto read =
        seal ? read_kernel(key, rows.bytes(row, 1), rows.bytes(row, 2), *seal) : fail(seal.error());
    if (!read || !rows.boolean(row, 5)) return {};
    TRY_STATUS(to_.put_kernel(*read));
    return to_.touch({EntryKind::kKernel, key}, rows.integer(row, 4) * kHourMs);
  }

  Status program(const PgRows& rows, int64_t row) {
    TRY(const Digest key, rows.digest(row, 0));
    const std::string_view manifest = rows.bytes(row, 1), blobs = rows.bytes(row, 2);
    const auto seal = rows.digest(row, 4);
    if (!seal || *seal != seal_program(key, manifest, blobs, rows.bytes(row, 3))) return {};
    if (rows.boolean(row, 8)) return {};
    TRY_STATUS(to_.put_program(
        key, {std::string(manifest), digests_in(blobs), std::string(rows.bytes(row, 6)),
              Audience::parse(rows.bytes(row, 3))}));
    TRY_STATUS(to_.touch({EntryKind::kProgram, key}, rows.integer(row, 5) * kHourMs));
    return rows.boolean(row, 7) ? to_.pin(key) : Status();
  }

  Status kin(const PgRows& rows, int64_t row) {
    TRY(const Digest workload, rows.digest(row, 0));
    TRY(const Digest digest, rows.digest(row, 1));
    return to_.put_shape_generic_key(workload, {digest, sizes_in(rows.bytes(row, 2))});
  }

  Result<int64_t> copy_records() {
    int64_t seen = 0;
    for (int64_t after = 0;;) {
      TRY(const auto page, reads::record_page(from_, after, kSourcePage));
      if (page.rows == 0) return seen;
      const auto put_all = [&]() -> Status {
        for (const TuningRecord& record : page.good) TRY_STATUS(to_.put_record(record));
        return {};
      };
      TRY_STATUS(in_transaction(put_all));
      seen += page.rows;
      after = page.last_id;
    }
  }

  Status copy_revocations() {
    TRY(const std::vector<Revocation> all, reads::revocations(from_));
    return in_transaction([&]() -> Status {
      for (const Revocation& each : all) TRY_STATUS(to_.revoke(each));
      return {};
    });
  }

  // Their order stays, their numbers begin with 1.
  Status copy_acts() {
    TRY(const bool there, reads::has_acts(from_));
    if (!there) return {};
    std::vector<AdminAct> all;
    for (int64_t before = INT64_MAX;;) {
      TRY(const std::vector<AdminAct> page, reads::acts(from_, before, kSourcePage));
      if (page.empty()) break;
      all.insert(all.end(), page.begin(), page.end());
      before = page.back().number;
    }
    return in_transaction([&]() -> Status {
      for (auto act = all.rbegin(); act != all.rend(); ++act) TRY_STATUS(to_.note(*act));
      return {};
    });
  }

  PgConnection& from_;
  CacheIndex& to_;
  int64_t rows_ = 0;  // of the last pages(), damaged ones too
};

}  // namespace

// A binary that was doomed since the snapshot is there for an hour more, and read by its name.
Result<StoreSource> StoreSource::of_postgres(const std::string& url,
                                             std::unique_ptr<ObjectStore> objects) {
  TRY(TempDir scratch, TempDir::create("kiln-transfer"));
  StoreSource source(std::move(scratch));
  const auto connection = std::make_shared<PgConnection>(url, "kiln cache export");
  {
    TRY(CacheIndex rows, CacheIndex::open_for_writing(source.scratch_.path() / "rows.sqlite"));
    TRY_STATUS(RowCopier(*connection, rows).run());
    TRY_STATUS(rows.copy_to(source.index_file_));
  }
  std::error_code ignored;
  std::filesystem::remove(source.scratch_.path() / "rows.sqlite", ignored);
  source.objects_ = std::move(objects);
  source.names_ = [connection](std::span<const Digest> digests) {
    return reads::object_names(*connection, {digests.begin(), digests.end()});
  };
  TRY_STATUS(source.open_index());
  return source;
}

}  // namespace kiln
