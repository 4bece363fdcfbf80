#include "cache/taking_back.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>
#include <unordered_set>

#include "cache/index.h"
#include "cache/sealed_rows.h"

namespace kiln {
namespace {

constexpr char kOfReports[] =
    " FROM records WHERE (? = '' OR worker = ?) AND (? = '' OR owner = ?)"
    " AND taken_at_ms BETWEEN ? AND ?";

Query& bind_reports(Query& query, const TakeBack& what) {
  return query.bind_text(what.worker)
      .bind_text(what.worker)
      .bind_text(what.owner)
      .bind_text(what.owner)
      .bind(what.since_ms)
      .bind(what.until_ms);
}

Status add_keys(Query& query, std::set<Digest>& keys) {
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return {};
    if (const auto key = query.digest(0)) keys.insert(*key);
  }
}

}  // namespace

Result<std::set<Digest>> CacheIndex::kernels_meant(const TakeBack& what) {
  std::set<Digest> kernels(what.kernels.begin(), what.kernels.end());
  for (const Digest& program : what.programs) {
    Query query(db_, "SELECT manifest FROM programs WHERE key = ?");
    TRY(const bool found, query.bind(program).next());
    if (!found) continue;
    for (const Digest& key : keys_in(query.bytes(0)))
      if (key != program) kernels.insert(key);
  }
  if (!what.means_reports()) return kernels;
  static const std::string kSelect = fmt::format("SELECT DISTINCT kernel_key{}", kOfReports);
  Query reports(db_, kSelect.c_str());
  TRY_STATUS(add_keys(bind_reports(reports, what), kernels));
  if (what.since_ms > 0 || what.until_ms < INT64_MAX) return kernels;  // winners have no time
  // A kernel whose records are gone is found too.
  for (const auto& [name, value] :
       {std::pair{"worker", what.worker}, std::pair{"key", what.owner}}) {
    if (value.empty()) continue;
    Query winners(db_, "SELECT key FROM kernels WHERE instr(kernel, ?) > 0");
    TRY_STATUS(add_keys(winners.bind_text(json_member(name, value)), kernels));
  }
  return kernels;
}

Result<TakenBack> CacheIndex::would_take_back(const TakeBack& what) {
  TakenBack found;
  TRY(const std::set<Digest> kernels, kernels_meant(what));
  found.kernels.assign(kernels.begin(), kernels.end());
  const std::unordered_set<Digest> meant(kernels.begin(), kernels.end());
  const std::set<Digest> named(what.programs.begin(), what.programs.end());
  std::set<Digest> blobs;
  Query programs(db_, "SELECT key, manifest, blobs FROM programs");
  for (;;) {
    TRY(const bool row, programs.next());
    if (!row) break;
    const auto key = programs.digest(0);
    if (!key) continue;
    if (!named.contains(*key) &&
        std::ranges::none_of(keys_in(programs.bytes(1)),
                             [&](const Digest& each) { return meant.contains(each); }))
      continue;
    found.programs.push_back(*key);
    for (const Digest& blob : digests_in(programs.bytes(2))) blobs.insert(blob);
  }
  for (const Digest& key : found.kernels) {
    if (const auto held = entry({EntryKind::kKernel, key})) blobs.insert(held->blob);
    const bool is_named = std::ranges::find(what.kernels, key) != what.kernels.end();
    if (!what.takes_records() || (!is_named && what.programs.empty())) continue;
    Query of_kernel(db_, "SELECT count(*) FROM records WHERE kernel_key = ?");
    TRY([[maybe_unused]] const bool counted, of_kernel.bind(key).next());
    found.records += of_kernel.integer(0);
  }
  if (what.means_reports()) {
    static const std::string kCount = fmt::format("SELECT count(*){}", kOfReports);
    Query reports(db_, kCount.c_str());
    TRY([[maybe_unused]] const bool counted, bind_reports(reports, what).next());
    found.records += reports.integer(0);
  }
  found.blobs.assign(blobs.begin(), blobs.end());
  return found;
}

Result<TakenBack> CacheIndex::take_back(const TakeBack& what, int64_t through) {
  TRY(TakenBack taken, would_take_back(what));
  taken.records = 0;
  for (const Digest& program : taken.programs) TRY_STATUS(remove_program(program));
  for (const Digest& kernel : taken.kernels) {
    TRY_STATUS(remove_kernel(kernel));
    if (!what.takes_records()) continue;
    TRY_STATUS(Query(db_, "DELETE FROM records WHERE kernel_key = ?").bind(kernel).run());
    taken.records += db_.changes();
  }
  if (what.means_reports()) {
    static const std::string kDelete = fmt::format("DELETE{}", kOfReports);
    Query reports(db_, kDelete.c_str());
    TRY_STATUS(bind_reports(reports, what).run());
    taken.records += db_.changes();
  }
  eviction_.add_records(-taken.records);
  TRY_STATUS(drop_unneeded(taken));
  for (const Digest& program : what.programs)
    TRY_STATUS(revoke({Revocation::Kind::kProgram, program, through, clock_()}));
  for (const Digest& kernel : taken.kernels)
    TRY_STATUS(revoke({Revocation::Kind::kKernel, kernel, through, clock_()}));
  TRY_STATUS(Query(db_, "DELETE FROM revoked WHERE id <= (SELECT max(id) FROM revoked) - ?")
                 .bind(kMaxRevocations)
                 .run());
  return taken;
}

// Leaves in `taken.blobs` those that are gone.
Status CacheIndex::drop_unneeded(TakenBack& taken) {
  std::vector<Digest> gone;
  for (const Digest& blob : taken.blobs) {
    const auto file = entry({EntryKind::kBlob, blob});
    if (!file && file.error().code != Code::kNotFound) return fail(file.error());
    if (!file || file->held > 0) continue;
    TRY_STATUS(eviction_.remove_blob(db_, blob));
    taken.bytes += file->bytes;
    gone.push_back(blob);
  }
  taken.blobs = std::move(gone);
  return {};
}

Status CacheIndex::revoke(const Revocation& revoked) {
  return Query(db_, "INSERT INTO revoked (kind, key, through, at_ms) VALUES (?, ?, ?, ?)")
      .bind(static_cast<int64_t>(revoked.kind))
      .bind(revoked.key)
      .bind(revoked.through)
      .bind(revoked.at_ms)
      .run();
}

Result<std::vector<Revocation>> CacheIndex::revocations() {
  Query query(db_, "SELECT kind, key, through, at_ms FROM revoked ORDER BY id");
  std::vector<Revocation> all;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return all;
    Revocation revoked;
    revoked.kind = static_cast<Revocation::Kind>(query.integer(0));
    TRY(revoked.key, query.digest(1));
    revoked.through = query.integer(2);
    revoked.at_ms = query.integer(3);
    all.push_back(revoked);
  }
}

}  // namespace kiln
