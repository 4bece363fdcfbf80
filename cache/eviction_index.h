// EvictionIndex: size, last use and holders of each entry of a CacheIndex: the tables entries, pins
// and totals (index_schema.cc has their columns). It decides which entry goes when there is too
// much; index.cc removes the rows. One thread at a time; the caller owns the Database.
//
// Invariants, of every committed state:
//  1. every row of programs and of kernels has an entry, and so has every published blob;
//  2. each program and each kernel that names a blob holds the blob's entry once, each program that
//     names a kernel's blob holds the kernel once, and a pin its program: held entries stay;
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
  Digest key;  // a blob's digest
};

struct Entry {
  EntryId id;
  int64_t bytes = 0;    // on disk, of the row or the file
  int64_t used_ms = 0;  // wall clock
  int64_t held = 0;     // how many entries hold it
  Digest blob;          // a kernel's binary
};

struct IndexTotals {
  int64_t programs = 0, kernels = 0, blobs = 0, records = 0;
  int64_t blob_bytes = 0;
  int64_t bytes = 0;  // of all entries; a bound on the size counts these
  bool operator==(const IndexTotals&) const = default;
};

class EvictionIndex {
 public:
  // Totals follow the transaction: load() when it begins and when it is undone, save() before it
  // commits; begin_part() and undo_part() with a part of it.
  Status load(Database& db);
  Status save(Database& db);
  void begin_part() { before_part_ = now_; }
  void undo_part() { now_ = before_part_; }
  const IndexTotals& totals() const { return now_; }

  // For each row or file written, now or again. `old_blobs`: the blobs that the program's previous
  // row named.
  Status put_blob(Database& db, const Digest& digest, int64_t bytes, int64_t now_ms);
  Status put_kernel(Database& db, const Digest& key, int64_t bytes, const Digest& blob,
                    int64_t now_ms);
  Status put_program(Database& db, const Digest& key, int64_t bytes,
                     std::span<const Digest> old_blobs, std::span<const Digest> blobs,
                     int64_t now_ms);
  // For each row or file removed; nothing happens when it has no entry. The entries it held count
  // as used when it was last used itself.
  Status remove_blob(Database& db, const Digest& digest);
  Status remove_kernel(Database& db, const Digest& key);
  Status remove_program(Database& db, const Digest& key, std::span<const Digest> blobs);
  void add_records(int64_t count) { now_.records += count; }

  Status touch(Database& db, const EntryId& id, int64_t used_ms);
  // kNotFound when no such program is stored.
  Status pin(Database& db, const Digest& program, int64_t now_ms);
  Status unpin(Database& db, const Digest& program);

  // The least recently used entry that nothing holds and that was last used before `before_ms`.
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
