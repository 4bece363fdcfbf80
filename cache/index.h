// CacheIndex: the tables of a KernelCache as seen through one database connection. The format is
// written down in index.cc. Rows carry a seal, a digest of what is in them, so that a damaged row
// is noticed and never served. One thread at a time.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cache/sqlite.h"
#include "compiler_core/plan/kin.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/measurement.h"

namespace kiln {

struct ProgramRow {
  std::string manifest;
  std::vector<Digest> blobs;  // what the manifest needs
};

struct KernelRow {
  ProgramKernel kernel;
  Target tuned_on;
};

class CacheIndex {
 public:
  // The writer's: creates or checks the database. kCorruption when it is damaged, kUnsupported when
  // a newer Kiln wrote it.
  static Result<CacheIndex> open_for_writing(const Path& file);
  // REQUIRES: a writer has opened it before.
  static Result<CacheIndex> open_for_reading(const Path& file);

  // One transaction of the writer.
  Status begin() { return db_.run("BEGIN IMMEDIATE"); }
  Status commit() { return db_.run("COMMIT"); }
  void roll_back() { (void)db_.run("ROLLBACK"); }
  // A part of a transaction that can be undone alone.
  Status begin_part() { return Query(db_, "SAVEPOINT part").run(); }
  Status end_part() { return Query(db_, "RELEASE part").run(); }
  Status undo_part() { return db_.run("ROLLBACK TO part; RELEASE part;"); }

  // kNotFound; kCorruption when the row does not match its seal.
  Result<ProgramRow> program(const Digest& key);
  Result<KernelRow> kernel(const Digest& key);
  // Oldest first; damaged rows are left out, since the rest is still worth having.
  Result<std::vector<TuningRecord>> records(const Digest& kernel_key);
  // Newest first, each once.
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload);
  // Of winners of workloads that differ from this in sizes only, the nearest sizes first, each
  // once.
  Result<std::vector<Schedule>> kin_winners(const Kin& kin);
  struct Counts {
    int64_t programs = 0, kernels = 0, records = 0, blob_bytes = 0;
  };
  Result<Counts> counts();

  Status put_blob(const Digest& digest, int64_t bytes);
  Status put_program(const Digest& key, const ProgramRow& row);
  Status put_kernel(const KernelRow& row);
  Status put_kin(const Digest& workload, const Kin& kin);
  Status put_record(const TuningRecord& record);
  Status remove(const Digest& key);  // the program and the kernel of that key
  // Removes the rows of `key` that do not match their seal.
  Status remove_damaged(const Digest& key);

 private:
  explicit CacheIndex(Database db) : db_(std::move(db)) {}
  Status prepare_schema();

  Database db_;
};

}  // namespace kiln
