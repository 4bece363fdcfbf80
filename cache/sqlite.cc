#include "cache/sqlite.h"

#include <fmt/core.h>
#include <sqlite3.h>

#include <cerrno>
#include <cstring>

namespace kiln {
namespace {

// Maps SQLite's result to a Code. A failed write (disk full, over a quota, broken disk) means "go
// on without storing"; only damage to the file itself is corruption.
Code code_of(int result) {
  switch (result & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
      return Code::kCorruption;
    case SQLITE_FULL:
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN:
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
    case SQLITE_NOMEM:
      return Code::kUnavailable;
    case SQLITE_READONLY:
    case SQLITE_PERM:
      return Code::kPermissionDenied;
    default:
      return Code::kInternal;
  }
}

// Whether the file was last refused by the disk: SQLite calls a read that ended so damage.
bool is_failed_read(sqlite3* db) {
  int system = 0;
  if (db == nullptr ||
      sqlite3_file_control(db, nullptr, SQLITE_FCNTL_LAST_ERRNO, &system) != SQLITE_OK)
    return false;
  return system == EIO || system == ENXIO || system == ERANGE;
}

tl::unexpected<Error> sqlite_error(sqlite3* db, int result) {
  const char* detail = db != nullptr ? sqlite3_errmsg(db) : sqlite3_errstr(result);
  const int system = db != nullptr ? sqlite3_system_errno(db) : 0;
  std::string message = fmt::format("index: {}", detail);
  if ((result & 0xff) == SQLITE_FULL)
    message += " (no space left)";
  else if (system != 0)
    message += fmt::format(" ({})", std::strerror(system));
  const Code code = code_of(result);
  if (code == Code::kCorruption && is_failed_read(db))
    return fail(Code::kUnavailable, std::move(message) + " (the disk did not give it)");
  return fail(code, std::move(message));
}

constexpr int kBusyTimeoutMs = 5000;

}  // namespace

void Database::Close::operator()(sqlite3* db) const {
  sqlite3_close_v2(db);
}
void Database::Finalize::operator()(sqlite3_stmt* statement) const {
  sqlite3_finalize(statement);
}

Result<Database> Database::open(const Path& path, Access access) {
  // NOMUTEX: a connection is used by one thread at a time, which the owner sees to.
  const int flags = SQLITE_OPEN_NOMUTEX |
                    (access == Access::kReadOnly ? SQLITE_OPEN_READONLY
                                                 : SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE);
  sqlite3* raw = nullptr;
  const int result = sqlite3_open_v2(path.c_str(), &raw, flags, nullptr);
  Database database(raw);  // also after a failure, there is something to close
  if (result != SQLITE_OK) return sqlite_error(raw, result);
  sqlite3_extended_result_codes(raw, 1);
  sqlite3_busy_timeout(raw, kBusyTimeoutMs);
  return database;
}

Status Database::run(const char* sql) {
  const int result = sqlite3_exec(db_.get(), sql, nullptr, nullptr, nullptr);
  if (result != SQLITE_OK) return sqlite_error(db_.get(), result);
  return {};
}

int64_t Database::changes() const {
  return sqlite3_changes64(db_.get());
}

Status Database::keep_pages(int64_t bytes) {
  const std::string sql = fmt::format("PRAGMA cache_size = -{}", bytes >> 10);  // KiB
  return run(sql.c_str());
}

int64_t Database::memory_bytes() {
  return sqlite3_memory_used();
}

void Database::interrupt() {
  sqlite3_interrupt(db_.get());
}

Result<sqlite3_stmt*> Database::statement(const char* sql) {
  if (const auto found = statements_.find(sql); found != statements_.end())
    return found->second.get();
  sqlite3_stmt* compiled = nullptr;
  const int result =
      sqlite3_prepare_v3(db_.get(), sql, -1, SQLITE_PREPARE_PERSISTENT, &compiled, nullptr);
  if (result != SQLITE_OK) return sqlite_error(db_.get(), result);
  statements_.emplace(sql, compiled);
  return compiled;
}

Query::Query(Database& db, const char* sql) : db_(db.db_.get()) {
  const Result<sqlite3_stmt*> compiled = db.statement(sql);
  if (compiled)
    statement_ = *compiled;
  else
    status_ = fail(compiled.error());
}

Query::~Query() {
  if (statement_ == nullptr) return;
  sqlite3_reset(statement_);
  sqlite3_clear_bindings(statement_);
}

Query& Query::bind(const Digest& digest) {
  return bind_blob({reinterpret_cast<const char*>(digest.bytes.data()), digest.bytes.size()});
}

Query& Query::bind_real(double value) {
  if (!status_) return *this;
  const int result = sqlite3_bind_double(statement_, ++parameter_, value);
  if (result != SQLITE_OK) status_ = sqlite_error(db_, result);
  return *this;
}

Query& Query::bind(int64_t value) {
  if (!status_) return *this;
  const int result = sqlite3_bind_int64(statement_, ++parameter_, value);
  if (result != SQLITE_OK) status_ = sqlite_error(db_, result);
  return *this;
}

Query& Query::bind_text(std::string_view text) {
  if (!status_) return *this;
  const int result = sqlite3_bind_text64(statement_, ++parameter_, text.data(), text.size(),
                                         SQLITE_TRANSIENT, SQLITE_UTF8);
  if (result != SQLITE_OK) status_ = sqlite_error(db_, result);
  return *this;
}

Query& Query::bind_blob(std::string_view bytes) {
  if (!status_) return *this;
  // A null pointer would bind NULL instead of nothing.
  const int result = bytes.empty() ? sqlite3_bind_zeroblob(statement_, ++parameter_, 0)
                                   : sqlite3_bind_blob64(statement_, ++parameter_, bytes.data(),
                                                         bytes.size(), SQLITE_TRANSIENT);
  if (result != SQLITE_OK) status_ = sqlite_error(db_, result);
  return *this;
}

Query& Query::bind_null() {
  if (!status_) return *this;
  const int result = sqlite3_bind_null(statement_, ++parameter_);
  if (result != SQLITE_OK) status_ = sqlite_error(db_, result);
  return *this;
}

Result<bool> Query::next() {
  if (!status_) return fail(status_.error());
  const int result = sqlite3_step(statement_);
  if (result == SQLITE_ROW) return true;
  if (result == SQLITE_DONE) return false;
  status_ = sqlite_error(db_, result);
  return fail(status_.error());
}

Status Query::run() {
  TRY([[maybe_unused]] const bool row, next());
  return {};
}

double Query::real(int column) const {
  return sqlite3_column_double(statement_, column);
}

int64_t Query::integer(int column) const {
  return sqlite3_column_int64(statement_, column);
}

std::string_view Query::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  const auto size = static_cast<size_t>(sqlite3_column_bytes(statement_, column));
  return data == nullptr ? std::string_view{}
                         : std::string_view(static_cast<const char*>(data), size);
}

Result<Digest> Query::digest(int column) const {
  const std::string_view data = bytes(column);
  Digest digest;
  if (data.size() != digest.bytes.size())
    return fail(Code::kCorruption, "index: a digest has the wrong length");
  std::memcpy(digest.bytes.data(), data.data(), data.size());
  return digest;
}

}  // namespace kiln
