// CacheIndex: the tables of a KernelCache through one database connection. index_schema.cc
// documents the format. Rows carry a seal, a digest of their contents, so that a damaged row is
// noticed and never served. One thread at a time.
#pragma once

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "cache/eviction_index.h"
#include "cache/sqlite.h"
#include "cache/store.h"
#include "cache/tune_log.h"
#include "compiler_core/base/clock.h"

namespace kiln {

// index_schema.cc: creates the tables in an empty file, and migrates those of an older version, in
// one transaction. kUnsupported when a newer Kiln wrote it. `now_ms`: the last use of entries that
// have none on record.
Status prepare_schema(Database& db, int64_t now_ms);
// kUnsupported unless the file is of this build's version: for connections that only read.
Status check_schema(Database& db);

struct ProgramRow {
  std::string manifest;
  std::vector<Digest> blobs;  // that the manifest names
  std::string stamp{};        // Program::template_stamp in hex; program() does not read it
  Audience audience{};
};

class CacheIndex {
 public:
  // A file up to this size is checked whole before it serves: some tens of milliseconds.
  static constexpr int64_t kCheckedAtOnceBytes = 32 << 20;

  using Clock = std::function<int64_t()>;  // milliseconds of the wall clock

  // For the writer: creates or checks the database. kCorruption when it is damaged (a large one is
  // checked in passing only; check() does the rest later), kUnsupported when a newer Kiln wrote it.
  // Keeps up to `memory_bytes` of pages, since keys come in no order.
  static Result<CacheIndex> open_for_writing(const Path& file, Clock clock = unix_ms,
                                             int64_t memory_bytes = int64_t{64} << 20);
  // REQUIRES: a writer has opened it before. kUnsupported when an older or a newer Kiln did.
  static Result<CacheIndex> open_for_reading(const Path& file);
  // Writes the database as it is now to a new file, while others write to it.
  Status copy_to(const Path& file) {
    return Query(db_, "VACUUM INTO ?").bind_text(file.string()).run();
  }
  // Reads every page; kCorruption when the database is damaged.
  Status check();
  // From any thread: a running check() ends soon, without a finding.
  void interrupt() { db_.interrupt(); }

  // A transaction of the writer.
  Status begin();
  Status commit();
  void roll_back();
  // A part of a transaction that can be undone alone.
  Status begin_part();
  Status end_part() { return Query(db_, "RELEASE part").run(); }
  Status undo_part();

  // kNotFound; kCorruption when the row does not match its seal.
  Result<ProgramRow> program(const Digest& key);
  Result<StoredKernel> kernel(const Digest& key);
  // Oldest first; damaged rows are left out.
  Result<std::vector<TuningRecord>> records(const Digest& kernel_key);
  // One page of the shape-generic keys, by workload, after `after`.
  struct Kin {
    Digest workload;
    ShapeGenericKey key;
  };
  Result<std::vector<Kin>> kin(const Digest& after, int limit);
  // Newest first, each once.
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload);
  // Winners of workloads that differ from this in sizes only, nearest sizes first, each once.
  Result<std::vector<Schedule>> nearest_winners(const ShapeGenericKey& key);
  // For people (listing.h). kNotFound.
  Result<ListedProgram> listed_program(const Digest& key);
  Result<ProgramList> list_programs(const ProgramQuery& wanted);
  // One page of the tuning log (tune_log.h). kNotFound: no such program.
  Result<RecordList> list_records(const RecordQuery& wanted);
  // How many programs have another stamp.
  Result<int64_t> programs_not_of(const Digest& stamp);
  // Within a transaction of the writer, its own changes count; else the committed state.
  Result<IndexTotals> totals();

  Status put_blob(const Digest& digest, int64_t bytes);
  Status put_program(const Digest& key, const ProgramRow& row);
  Status put_kernel(const StoredKernel& row);
  Status put_shape_generic_key(const Digest& workload, const ShapeGenericKey& key);
  Status put_record(const TuningRecord& record);
  Status remove(const Digest& key);  // the program and the kernel of that key
  // Removes the rows of `key` that do not match their seal.
  Status remove_damaged(const Digest& key);

  // Evicts the least recently used entries that were not used since `before_ms`, until `bytes` are
  // free or `limit` entries are gone. Records stay.
  struct Evicted {
    int64_t bytes = 0;
    int entries = 0;
    std::vector<Digest> programs;  // keys
    std::vector<Digest> blobs;     // remove their files after the commit
  };
  Result<Evicted> evict(int64_t bytes, int64_t before_ms, int limit);

  // Lists without removing: the blobs are those that may be needed elsewhere still. Reads every
  // program.
  Result<TakenBack> would_take_back(const TakeBack& what);
  // Removes the rows, also of what is pinned, and notes a revocation for each program named and
  // each kernel, of all issued up to `through`. Remove the files of `blobs` after the commit.
  Result<TakenBack> take_back(const TakeBack& what, int64_t through);
  Result<std::vector<Revocation>> revocations();  // oldest first
  Status revoke(const Revocation& revoked);       // notes it; take_back() does so by itself

  Status note(const AdminAct& act);
  // The latest first.
  Result<std::vector<AdminAct>> acts(int64_t before, int64_t limit);

  Status touch(const EntryId& id, int64_t used_ms) { return eviction_.touch(db_, id, used_ms); }
  Status pin(const Digest& program) { return eviction_.pin(db_, program, clock_()); }
  Status unpin(const Digest& program) { return eviction_.unpin(db_, program); }
  // One page of the entries of a kind, by key, after `after`: for reading all of them.
  Result<std::vector<Entry>> entries(EntryKind kind, const Digest& after, int limit) {
    return EvictionIndex::page(db_, kind, after, limit);
  }
  struct RecordPage {
    int64_t last_id = 0;  // 0: there are no more
    std::vector<TuningRecord> good;
    std::vector<int64_t> damaged;  // ids
  };
  Result<RecordPage> check_records(int64_t after_id, int limit);
  Status remove_record(int64_t id);
  // Makes entries and totals anew from the rows, for repair. Within a transaction.
  Status rebuild_entries() { return eviction_.rebuild(db_, clock_()); }
  // kNotFound when there is none.
  Result<Entry> entry(const EntryId& id) { return EvictionIndex::find(db_, id); }

 private:
  CacheIndex(Database db, Clock clock) : db_(std::move(db)), clock_(std::move(clock)) {}
  Result<std::vector<Digest>> blobs_of(const Digest& program);
  Status remove_program(const Digest& key);
  Status remove_kernel(const Digest& key);
  Status evict(const Entry& entry, Evicted& evicted);
  // taking_back.cc
  Result<std::set<Digest>> kernels_meant(const TakeBack& what);
  Status drop_unneeded(TakenBack& taken);

  Database db_;
  Clock clock_;
  EvictionIndex eviction_;  // of the transaction
  bool in_transaction_ = false;
};

}  // namespace kiln
