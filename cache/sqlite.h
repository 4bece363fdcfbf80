// Database, Query: a thin layer over SQLite that cannot leak a statement or leave one running. The
// only place that includes sqlite3.h. A Database and its Queries belong to one thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"

struct sqlite3;
struct sqlite3_stmt;

namespace kiln {

class Database {
 public:
  enum class Access { kReadWrite, kReadOnly };  // kReadWrite creates the file

  static Result<Database> open(const Path& path, Access access);
  // Runs statements without parameters; rows are ignored.
  Status run(const char* sql);
  // Bounds how much of the file stays in memory.
  Status keep_pages(int64_t bytes);
  int64_t changes() const;  // rows that the last INSERT, UPDATE or DELETE touched
  // From any thread: the statement that runs now ends soon, with an error other than kCorruption.
  // A statement that has not begun is not affected.
  void interrupt();
  static int64_t memory_bytes();  // of all databases of this process, pages included

 private:
  friend class Query;
  struct Close {
    void operator()(sqlite3* db) const;
  };
  struct Finalize {
    void operator()(sqlite3_stmt* statement) const;
  };

  explicit Database(sqlite3* db) : db_(db) {}
  // Compiled once, kept. Null with the error when `sql` does not compile.
  Result<sqlite3_stmt*> statement(const char* sql);

  std::unique_ptr<sqlite3, Close> db_;
  std::unordered_map<std::string_view, std::unique_ptr<sqlite3_stmt, Finalize>> statements_;
};

// One run of a statement: bind the parameters in order, then call next() until it answers false.
// The destructor ends it, and with it the read transaction. next() reports errors of bind.
class Query {
 public:
  // REQUIRES: `sql` is a literal (its compiled form is kept under its text).
  Query(Database& db, const char* sql);
  Query(const Query&) = delete;
  Query& operator=(const Query&) = delete;
  ~Query();

  Query& bind(const Digest& digest);
  Query& bind(int64_t value);
  Query& bind_real(double value);
  Query& bind_text(std::string_view text);
  Query& bind_blob(std::string_view bytes);
  Query& bind_null();

  Result<bool> next();  // true: a row is there to read
  Status run();         // for statements without rows

  // Columns of the row, from 0. Views end with the next call of next().
  int64_t integer(int column) const;
  double real(int column) const;
  std::string_view bytes(int column) const;  // text or blob
  Result<Digest> digest(int column) const;   // kCorruption when it is not 32 bytes

 private:
  sqlite3* const db_;
  sqlite3_stmt* statement_ = nullptr;
  int parameter_ = 0;
  Status status_;
};

}  // namespace kiln
