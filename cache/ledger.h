// Ledger: what the entries of a CacheIndex weigh, when each was last used, and what holds it: the
// tables entries, pins and totals (index_schema.cc has their columns). It decides who is given up
// when there is too much; index.cc removes the rows. One thread at a time; the Database is the
// caller's.
//
// Invariants, of every committed state:
//  1. every row of programs and of kernels has an entry, and so has every published blob;
//  2. a blob's entry is held once by each program and by each kernel that names the blob, a
//     kernel's once by each program that names its blob, a program's by its pin: what is held is
//     not given up;
//  3. totals are the sums over the entries, and count the records.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "cache/sqlite.h"

namespace kiln {

enum class EntryKind : uint8_t { kProgram = 1, kKernel = 2, kBlob = 3 };  // persisted

struct EntryId {
  EntryKind kind = EntryKind::kProgram;
  Digest key;  // of a blob: its digest
};

struct Entry {
  EntryId id;
  int64_t bytes = 0;    // on disk: of the row, or of the file
  int64_t used_ms = 0;  // wall clock
  int64_t held = 0;     // by how many
  Digest blob;          // of a kernel: its binary
};

struct IndexTotals {
  int64_t programs = 0, kernels = 0, blobs = 0, records = 0;
  int64_t blob_bytes = 0;
  int64_t bytes = 0;  // of all entries: what a bound on the size is about
  bool operator==(const IndexTotals&) const = default;
};

class Ledger {
 public:
  // With the transaction: read when it begins, written before it commits, read again when it is
  // undone; the same for a part of one.
  Status load(Database& db);
  Status save(Database& db);
  void begin_part() { before_part_ = now_; }
  void undo_part() { now_ = before_part_; }
  const IndexTotals& totals() const { return now_; }

  // What was written now, or again. `old_blobs`: what the program's row named before.
  Status put_blob(Database& db, const Digest& digest, int64_t bytes, int64_t now_ms);
  Status put_kernel(Database& db, const Digest& key, int64_t bytes, const Digest& blob,
                    int64_t now_ms);
  Status put_program(Database& db, const Digest& key, int64_t bytes,
                     std::span<const Digest> old_blobs, std::span<const Digest> blobs,
                     int64_t now_ms);
  // What was removed; nothing happens when it has no entry. What it gives back counts as used when
  // it was itself.
  Status remove_blob(Database& db, const Digest& digest);
  Status remove_kernel(Database& db, const Digest& key);
  Status remove_program(Database& db, const Digest& key, std::span<const Digest> blobs);
  void add_records(int64_t count) { now_.records += count; }

  Status touch(Database& db, const EntryId& id, int64_t used_ms);
  // kNotFound when no such program is stored.
  Status pin(Database& db, const Digest& program, int64_t now_ms);
  Status unpin(Database& db, const Digest& program);

  // The least recently used of what nothing holds and was last used before `before_ms`.
  static Result<std::optional<Entry>> oldest(Database& db, int64_t before_ms);
  // kNotFound when there is none.
  static Result<Entry> find(Database& db, const EntryId& id);

  // Entries of a kind by key, after `after`.
  static Result<std::vector<Entry>> page(Database& db, EntryKind kind, const Digest& after,
                                         int limit);

  // Makes entries and totals anew from the rows of programs and kernels, and from the blobs that
  // entries name. For an index of an older version, and for repair. Within a transaction.
  Status rebuild(Database& db, int64_t now_ms);

 private:
  Status put(Database& db, const Entry& entry);
  Status erase(Database& db, const Entry& entry);
  // One program more, or less, names this blob.
  Status hold(Database& db, const Digest& blob);
  Status release(Database& db, const Digest& blob, int64_t used_ms);
  // One kernel more, or less, does.
  Status hold_file(Database& db, const Digest& blob);
  Status release_file(Database& db, const Digest& blob, int64_t used_ms);
  void count(EntryKind kind, int64_t entries, int64_t bytes);

  IndexTotals saved_, now_, before_part_;
};

}  // namespace kiln
