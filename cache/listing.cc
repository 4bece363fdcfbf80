#include "cache/listing.h"

#include "cache/index.h"

namespace kiln {
namespace {

constexpr const char* sql_of(ProgramQuery::Order order) {
  switch (order) {
    case ProgramQuery::Order::kLatestUse:
      return "SELECT e.key, e.bytes, e.used_ms, pins.key IS NOT NULL FROM entries e LEFT JOIN pins"
             " ON pins.key = e.key WHERE e.kind = 1 AND (pins.key IS NOT NULL OR ? = 0)"
             " ORDER BY e.used_ms DESC, e.key LIMIT ? OFFSET ?";
    case ProgramQuery::Order::kOldestUse:
      return "SELECT e.key, e.bytes, e.used_ms, pins.key IS NOT NULL FROM entries e LEFT JOIN pins"
             " ON pins.key = e.key WHERE e.kind = 1 AND (pins.key IS NOT NULL OR ? = 0)"
             " ORDER BY e.used_ms, e.key LIMIT ? OFFSET ?";
    case ProgramQuery::Order::kSize:
      return "SELECT e.key, e.bytes, e.used_ms, pins.key IS NOT NULL FROM entries e LEFT JOIN pins"
             " ON pins.key = e.key WHERE e.kind = 1 AND (pins.key IS NOT NULL OR ? = 0)"
             " ORDER BY e.bytes DESC, e.key LIMIT ? OFFSET ?";
  }
  return "";
}

}  // namespace

Result<ListedProgram> CacheIndex::listed_program(const Digest& key) {
  TRY(ProgramRow row, program(key));
  if (!row.audience.is_all()) return fail(Code::kNotFound, "no program " + key.short_hex());
  TRY(const Entry entry, this->entry({EntryKind::kProgram, key}));
  Query pinned(db_, "SELECT 1 FROM pins WHERE key = ?");
  TRY(const bool is_pinned, pinned.bind(key).next());
  return ListedProgram{key, std::move(row.manifest), entry.bytes, entry.used_ms, is_pinned};
}

Result<ProgramList> CacheIndex::list_programs(const ProgramQuery& wanted) {
  ProgramList list;
  const bool searches = !wanted.text.empty();
  if (!searches) {
    Query counted(db_, wanted.pinned_only ? "SELECT count(*) FROM pins"
                                          : "SELECT count(*) FROM entries WHERE kind = 1");
    TRY([[maybe_unused]] const bool row, counted.next());
    list.total = counted.integer(0);
  }
  Query query(db_, sql_of(wanted.order));
  query.bind(int64_t{wanted.pinned_only})
      .bind(searches ? wanted.most_searched + 1 : wanted.limit)
      .bind(searches ? 0 : wanted.first);
  for (int64_t seen = 0;; ++seen) {
    TRY(const bool found, query.next());
    if (!found) return list;
    if (searches && seen == wanted.most_searched) {
      list.is_partial = true;
      return list;
    }
    TRY(const Digest key, query.digest(0));
    ListedProgram listed{key, {}, query.integer(1), query.integer(2), query.integer(3) != 0};
    Query manifest(db_, "SELECT manifest FROM programs WHERE key = ? AND audience = ''");
    TRY(const bool there, manifest.bind(key).next());
    if (!there) continue;
    const std::string_view text = manifest.bytes(0);
    if (searches && !key.hex().starts_with(wanted.text) &&
        text.find(wanted.text) == std::string_view::npos)
      continue;
    if (!searches || (list.total >= wanted.first && std::ssize(list.programs) < wanted.limit)) {
      listed.manifest = text;
      list.programs.push_back(std::move(listed));
    }
    list.total += searches ? 1 : 0;
  }
}

Result<RecordList> CacheIndex::list_records(const RecordQuery& wanted) {
  std::vector<Digest> kernels;
  if (wanted.program) {
    TRY(const ProgramRow row, program(*wanted.program));
    TRY(const Program found, program_from_json(row.manifest));
    for (const ProgramKernel& kernel : found.kernels) kernels.push_back(kernel.key);
  }
  TRY(RecordPage page, check_records(wanted.after, static_cast<int>(wanted.limit)));
  RecordList list;
  list.last_id = page.last_id;
  list.damaged = std::ssize(page.damaged);
  list.records = fitting(wanted, std::move(page.good), kernels,
                         [this](const Digest& key) -> std::optional<std::string> {
                           const auto stored = kernel(key);
                           if (!stored) return std::nullopt;
                           return stored->kernel.schedule;
                         });
  return list;
}

}  // namespace kiln
