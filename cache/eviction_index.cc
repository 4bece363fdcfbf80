#include "cache/eviction_index.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <unordered_map>

namespace kiln {
namespace {

constexpr int64_t number(EntryKind kind) {
  return static_cast<int64_t>(kind);
}

Result<Entry> read_entry(const Query& row) {
  Entry entry;
  const int64_t kind = row.integer(0);
  if (kind < number(EntryKind::kProgram) || kind > number(EntryKind::kBlob))
    return fail(Code::kCorruption, "index: an entry of no known kind");
  entry.id.kind = static_cast<EntryKind>(kind);
  TRY(entry.id.key, row.digest(1));
  entry.bytes = row.integer(2);
  entry.used_ms = row.integer(3);
  entry.held = row.integer(4);
  if (!row.bytes(5).empty()) {
    TRY(entry.blob, row.digest(5));
  }
  return entry;
}

Result<std::optional<Entry>> optional_entry(Database& db, const EntryId& id) {
  Result<Entry> entry = EvictionIndex::find(db, id);
  if (entry) return *std::move(entry);
  if (entry.error().code == Code::kNotFound) return std::nullopt;
  return fail(entry.error());
}

Result<int64_t> kernels_of(Database& db, const Digest& blob) {
  Query query(db, "SELECT count(*) FROM entries WHERE blob = ?");
  TRY([[maybe_unused]] const bool row, query.bind(blob).next());
  return query.integer(0);
}

}  // namespace

Status EvictionIndex::load(Database& db) {
  Query query(db, "SELECT programs, kernels, blobs, records, blob_bytes, bytes FROM totals");
  TRY(const bool found, query.next());
  if (!found) return fail(Code::kCorruption, "index: no totals");
  saved_ = {query.integer(0), query.integer(1), query.integer(2),
            query.integer(3), query.integer(4), query.integer(5)};
  now_ = saved_;
  return {};
}

Status EvictionIndex::save(Database& db) {
  if (now_ == saved_) return {};
  TRY_STATUS(Query(db,
                   "UPDATE totals SET programs = ?, kernels = ?, blobs = ?, records = ?,"
                   " blob_bytes = ?, bytes = ?")
                 .bind(now_.programs)
                 .bind(now_.kernels)
                 .bind(now_.blobs)
                 .bind(now_.records)
                 .bind(now_.blob_bytes)
                 .bind(now_.bytes)
                 .run());
  saved_ = now_;
  return {};
}

void EvictionIndex::count(EntryKind kind, int64_t entries, int64_t bytes) {
  now_.bytes += bytes;
  switch (kind) {
    case EntryKind::kProgram:
      now_.programs += entries;
      break;
    case EntryKind::kKernel:
      now_.kernels += entries;
      break;
    case EntryKind::kBlob:
      now_.blobs += entries;
      now_.blob_bytes += bytes;
      break;
  }
}

Result<Entry> EvictionIndex::find(Database& db, const EntryId& id) {
  Query query(db,
              "SELECT kind, key, bytes, used_ms, held, blob FROM entries"
              " WHERE kind = ? AND key = ?");
  TRY(const bool found, query.bind(number(id.kind)).bind(id.key).next());
  if (!found) return fail(Code::kNotFound, "no entry " + id.key.short_hex());
  return read_entry(query);
}

// `held` applies to a new entry only.
Status EvictionIndex::put(Database& db, const Entry& entry) {
  TRY(const auto old, optional_entry(db, entry.id));
  Query query(
      db,
      "INSERT INTO entries (kind, key, bytes, used_ms, held, blob) VALUES (?, ?, ?, ?, ?, ?)"
      " ON CONFLICT (kind, key) DO UPDATE SET"
      " bytes = excluded.bytes, used_ms = excluded.used_ms, blob = excluded.blob");
  query.bind(number(entry.id.kind))
      .bind(entry.id.key)
      .bind(entry.bytes)
      .bind(entry.used_ms)
      .bind(entry.held);
  if (entry.id.kind == EntryKind::kKernel)
    query.bind(entry.blob);
  else
    query.bind_null();
  TRY_STATUS(query.run());
  count(entry.id.kind, old ? 0 : 1, entry.bytes - (old ? old->bytes : 0));
  return {};
}

Status EvictionIndex::erase(Database& db, const Entry& entry) {
  TRY_STATUS(Query(db, "DELETE FROM entries WHERE kind = ? AND key = ?")
                 .bind(number(entry.id.kind))
                 .bind(entry.id.key)
                 .run());
  count(entry.id.kind, -1, -entry.bytes);
  return {};
}

Status EvictionIndex::put_blob(Database& db, const Digest& digest, int64_t bytes, int64_t now_ms) {
  return put(db, {{EntryKind::kBlob, digest}, bytes, now_ms, 0, {}});
}

Status EvictionIndex::remove_blob(Database& db, const Digest& digest) {
  TRY(const auto old, optional_entry(db, {EntryKind::kBlob, digest}));
  return old ? erase(db, *old) : Status{};
}

Status EvictionIndex::put_kernel(Database& db, const Digest& key, int64_t bytes, const Digest& blob,
                                 int64_t now_ms) {
  Entry entry{{EntryKind::kKernel, key}, bytes, now_ms, 0, blob};
  TRY(const auto old, optional_entry(db, entry.id));
  if (old && old->blob == blob) return put(db, entry);
  if (old) TRY_STATUS(remove_kernel(db, key));
  TRY(const auto file, optional_entry(db, {EntryKind::kBlob, blob}));
  TRY(const int64_t kernels, kernels_of(db, blob));
  // Holders of the file that are no kernels are programs.
  entry.held = std::max<int64_t>(file ? file->held - kernels : 0, 0);
  TRY_STATUS(hold_file(db, blob));
  return put(db, entry);
}

Status EvictionIndex::remove_kernel(Database& db, const Digest& key) {
  TRY(const auto old, optional_entry(db, {EntryKind::kKernel, key}));
  if (!old) return {};
  TRY_STATUS(erase(db, *old));
  return release_file(db, old->blob, old->used_ms);
}

Status EvictionIndex::put_program(Database& db, const Digest& key, int64_t bytes,
                                  std::span<const Digest> old_blobs, std::span<const Digest> blobs,
                                  int64_t now_ms) {
  for (const Digest& blob : blobs) TRY_STATUS(hold(db, blob));
  for (const Digest& blob : old_blobs) TRY_STATUS(release(db, blob, now_ms));
  Entry entry{{EntryKind::kProgram, key}, bytes, now_ms, 0, {}};
  Query pinned(db, "SELECT 1 FROM pins WHERE key = ?");
  TRY(const bool is_pinned, pinned.bind(key).next());
  entry.held = is_pinned ? 1 : 0;
  return put(db, entry);
}

Status EvictionIndex::remove_program(Database& db, const Digest& key,
                                     std::span<const Digest> blobs) {
  TRY(const auto old, optional_entry(db, {EntryKind::kProgram, key}));
  if (!old) return {};
  TRY_STATUS(erase(db, *old));
  for (const Digest& blob : blobs) TRY_STATUS(release(db, blob, old->used_ms));
  return {};
}

Status EvictionIndex::hold(Database& db, const Digest& blob) {
  TRY_STATUS(hold_file(db, blob));
  return Query(db, "UPDATE entries SET held = held + 1 WHERE blob = ?").bind(blob).run();
}

Status EvictionIndex::release(Database& db, const Digest& blob, int64_t used_ms) {
  TRY_STATUS(release_file(db, blob, used_ms));
  return Query(db,
               "UPDATE entries SET held = max(held - 1, 0), used_ms = max(used_ms, ?)"
               " WHERE blob = ?")
      .bind(used_ms)
      .bind(blob)
      .run();
}

// Makes the entry of a blob whose file has none (its row was lost with a transaction); its bytes
// are known when it is put again.
Status EvictionIndex::hold_file(Database& db, const Digest& blob) {
  TRY_STATUS(
      Query(db, "UPDATE entries SET held = held + 1 WHERE kind = 3 AND key = ?").bind(blob).run());
  if (db.changes() == 0) {
    TRY_STATUS(put(db, {{EntryKind::kBlob, blob}, 0, 0, 1, {}}));
  }
  return {};
}

Status EvictionIndex::release_file(Database& db, const Digest& blob, int64_t used_ms) {
  return Query(db,
               "UPDATE entries SET held = max(held - 1, 0), used_ms = max(used_ms, ?)"
               " WHERE kind = 3 AND key = ?")
      .bind(used_ms)
      .bind(blob)
      .run();
}

Status EvictionIndex::touch(Database& db, const EntryId& id, int64_t used_ms) {
  return Query(db, "UPDATE entries SET used_ms = ? WHERE kind = ? AND key = ?")
      .bind(used_ms)
      .bind(number(id.kind))
      .bind(id.key)
      .run();
}

Status EvictionIndex::pin(Database& db, const Digest& program, int64_t now_ms) {
  TRY_STATUS(
      Query(db, "UPDATE entries SET held = 1 WHERE kind = 1 AND key = ?").bind(program).run());
  if (db.changes() == 0) return fail(Code::kNotFound, "no program " + program.hex() + " is stored");
  return Query(db, "INSERT OR IGNORE INTO pins VALUES (?, ?)").bind(program).bind(now_ms).run();
}

Status EvictionIndex::unpin(Database& db, const Digest& program) {
  TRY_STATUS(Query(db, "DELETE FROM pins WHERE key = ?").bind(program).run());
  if (db.changes() == 0)
    return fail(Code::kNotFound, "program " + program.hex() + " is not pinned");
  return Query(db, "UPDATE entries SET held = 0 WHERE kind = 1 AND key = ?").bind(program).run();
}

Result<std::optional<Entry>> EvictionIndex::oldest(Database& db, int64_t before_ms) {
  // The index holds the key beside the time, so that of one time programs come before kernels, and
  // those before blobs.
  Query query(db,
              "SELECT kind, key, bytes, used_ms, held, blob FROM entries"
              " WHERE held = 0 AND used_ms < ? ORDER BY used_ms, kind, key LIMIT 1");
  TRY(const bool found, query.bind(before_ms).next());
  if (!found) return std::nullopt;
  TRY(Entry entry, read_entry(query));
  return entry;
}

Result<std::vector<Entry>> EvictionIndex::page(Database& db, EntryKind kind, const Digest& after,
                                               int limit) {
  Query query(db,
              "SELECT kind, key, bytes, used_ms, held, blob FROM entries"
              " WHERE kind = ? AND key > ? ORDER BY key LIMIT ?");
  query.bind(number(kind)).bind(after).bind(static_cast<int64_t>(limit));
  std::vector<Entry> entries;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return entries;
    TRY(const Entry entry, read_entry(query));
    entries.push_back(entry);
  }
}

// Blobs of no kernel and no program keep their entries, and are evicted in turn.
Status EvictionIndex::rebuild(Database& db, int64_t now_ms) {
  TRY_STATUS(
      db.run("UPDATE entries SET held = 0;"
             "DELETE FROM entries WHERE kind = 1 AND key NOT IN (SELECT key FROM programs);"
             "DELETE FROM entries WHERE kind = 2 AND key NOT IN (SELECT key FROM kernels);"));
  TRY_STATUS(Query(db,
                   "INSERT INTO entries (kind, key, bytes, used_ms, held, blob)"
                   " SELECT 1, key, length(CAST(manifest AS BLOB)) + length(blobs), ?,"
                   " key IN (SELECT key FROM pins), NULL FROM programs WHERE true"
                   " ON CONFLICT (kind, key) DO UPDATE"
                   " SET bytes = excluded.bytes, held = excluded.held")
                 .bind(now_ms)
                 .run());
  std::unordered_map<Digest, int64_t> by_programs, by_kernels;
  {
    Query query(db, "SELECT blobs FROM programs");
    for (;;) {
      TRY(const bool row, query.next());
      if (!row) break;
      const std::string_view blobs = query.bytes(0);
      for (size_t at = 0; at + sizeof(Digest) <= blobs.size(); at += sizeof(Digest)) {
        Digest blob;
        std::memcpy(blob.bytes.data(), blobs.data() + at, sizeof(Digest));
        ++by_programs[blob];
      }
    }
  }
  {
    Query query(db,
                "SELECT key, json_extract(kernel, '$.blob'), length(CAST(kernel AS BLOB)) +"
                " length(CAST(target AS BLOB)) FROM kernels WHERE json_valid(kernel)");
    for (;;) {
      TRY(const bool row, query.next());
      if (!row) break;
      const Result<Digest> key = query.digest(0), blob = Digest::parse(query.bytes(1));
      if (!key || !blob) continue;  // a damaged row: its seal shows it when it is read
      const auto held = by_programs.find(*blob);
      TRY_STATUS(Query(db,
                       "INSERT INTO entries VALUES (2, ?, ?, ?, ?, ?) ON CONFLICT (kind, key) DO"
                       " UPDATE SET bytes = excluded.bytes, held = excluded.held,"
                       " blob = excluded.blob")
                     .bind(*key)
                     .bind(query.integer(2))
                     .bind(now_ms)
                     .bind(held == by_programs.end() ? int64_t{0} : held->second)
                     .bind(*blob)
                     .run());
      ++by_kernels[*blob];
    }
  }
  for (const auto* holders : {&by_programs, &by_kernels})
    for (const auto& [blob, times] : *holders)
      TRY_STATUS(Query(db,
                       "INSERT INTO entries VALUES (3, ?, 0, ?, ?, NULL) ON CONFLICT (kind, key)"
                       " DO UPDATE SET held = held + excluded.held")
                     .bind(blob)
                     .bind(now_ms)
                     .bind(times)
                     .run());
  TRY_STATUS(
      db.run("DELETE FROM totals; INSERT INTO totals SELECT"
             " count(*) FILTER (WHERE kind = 1), count(*) FILTER (WHERE kind = 2),"
             " count(*) FILTER (WHERE kind = 3), (SELECT count(*) FROM records),"
             " coalesce(sum(bytes) FILTER (WHERE kind = 3), 0), coalesce(sum(bytes), 0)"
             " FROM entries"));
  return load(db);
}

}  // namespace kiln
