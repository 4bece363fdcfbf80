// PgConnection: one connection to PostgreSQL. It connects when it is first used and again after it
// broke, waiting longer after each failure, during which it answers kUnavailable at once. No call
// takes longer than its patience, whatever the network or the server do. One thread at a time.
//
// Every error is kUnavailable, with PostgreSQL's words: nothing follows from an answer that did not
// come.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/digest.h"

struct pg_conn;  // libpq's, which only .cc files here know
struct pg_result;

namespace kiln {

// The rows that a statement returned, in binary. Columns and rows count from 0.
class PgRows {
 public:
  PgRows() = default;
  explicit PgRows(pg_result* result);

  int64_t size() const { return rows_; }
  int64_t changed() const { return changed_; }  // rows inserted, updated, deleted
  std::string_view tag() const;                 // "COMMIT"; a statement's first word or two
  std::string_view bytes(int64_t row, int column) const;  // text and bytea; lives as long as this
  int64_t integer(int64_t row, int column) const;         // of 2, 4 or 8 bytes
  double real(int64_t row, int column) const;             // float8
  bool boolean(int64_t row, int column) const;
  Result<Digest> digest(int64_t row, int column) const;  // kCorruption: not 32 bytes

 private:
  std::shared_ptr<pg_result> result_;
  int64_t rows_ = 0, changed_ = 0;
};

// The values of $1, $2 ... in order.
class PgValues {
 public:
  PgValues& add(int64_t value);
  PgValues& add(bool value) { return add(int64_t{value}); }
  PgValues& add_real(double value);
  PgValues& add_text(std::string_view value);   // valid UTF-8 without NUL
  PgValues& add_bytes(std::string_view value);  // bytea
  PgValues& add(const Digest& value);
  PgValues& add(const std::vector<Digest>& values);   // bytea[]
  PgValues& add(const std::vector<int64_t>& values);  // bigint[]

  size_t size() const { return values_.size(); }

 private:
  friend class PgConnection;
  struct Value {
    std::string bytes;
    bool is_binary = false;
  };
  std::vector<Value> values_;
};

class PgConnection {
 public:
  // `url`: postgresql://..., as libpq takes it; secrets may also come from its PG* variables and
  // ~/.pgpass. `name`: shown in pg_stat_activity.
  PgConnection(std::string url, std::string name);
  ~PgConnection();
  PgConnection(PgConnection&&) noexcept;
  PgConnection& operator=(PgConnection&&) noexcept;

  // Whether it is connected, after trying to be.
  Status connect();
  bool is_connected() const { return connection_ != nullptr; }
  void disconnect();

  // One statement. What lazily() was given goes first, in the same way to the server and back.
  Result<PgRows> run(const char* sql, const PgValues& values = {});
  // To go with the next run(), which answers its error: for BEGIN, SAVEPOINT and the like, which
  // return nothing, and for many writes at once. `rows`: an error, too, is another number of rows
  // changed or found.
  static constexpr int64_t kAnyRows = -1;
  void lazily(const char* sql, PgValues values = {}, int64_t rows = kAnyRows) {
    lazy_.push_back({sql, std::move(values), rows});
  }
  void drop_lazy() { lazy_.clear(); }

  // With one way to the server and back, and with each statement that goes along.
  static constexpr std::chrono::milliseconds kPatience{4'000}, kPatienceEach{10};
  // For one statement of much work, instead of kPatience and its statement_timeout.
  void set_patience(std::chrono::milliseconds patience) { patience_ = patience; }

 private:
  struct Statement {
    std::string sql;
    PgValues values;
    int64_t rows = kAnyRows;
  };
  Status send(const Statement& statement);
  Result<PgRows> receive(const std::vector<Statement>& statements);
  Status wait_until_readable(std::chrono::steady_clock::time_point until);
  Status flush(std::chrono::steady_clock::time_point until);
  tl::unexpected<Error> broken(const std::string& why);

  std::string url_, name_;
  pg_conn* connection_ = nullptr;
  std::vector<Statement> lazy_;
  std::chrono::milliseconds patience_{kPatience};
  std::chrono::milliseconds backoff_{0};
  std::chrono::steady_clock::time_point not_before_{};
  std::string last_error_;
  size_t failed_connects_ = 0;  // each begins with the next of several hosts
};

}  // namespace kiln
