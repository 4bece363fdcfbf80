// PostgresServer: a PostgreSQL of a test's own, from Debian's package: in a temporary folder, on a free
// port of the loopback, as the user `postgres` where the test runs as root.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"

namespace kiln::testing {

class PostgresServer {
 public:
  // kUnsupported, with a sentence, where the package is not installed.
  static Result<std::unique_ptr<PostgresServer>> start();
  ~PostgresServer();

  // A fresh database; its URL.
  std::string new_database();
  // The answer of psql to one statement, a line a row, columns separated by |; kUnavailable.
  Result<std::string> query(const std::string& url, const std::string& sql) const;
  std::string ask(const std::string& url, const std::string& sql) const;  // it answers
  int port() const { return port_; }

  void kill();   // -9, all of it
  void begin();  // starts it again, on the same port with the same data
  // Ends what there was, and begins anew as the synchronous standby of `primary`, from where on that
  // one's commits wait for it. The port stays.
  void follow(const PostgresServer& primary);
  void promote();  // a standby takes writes, and waits for no other
  // All of it stands still and keeps its connections, as on a machine that hangs; goes on.
  void signal_all(int number) const;

 private:
  PostgresServer() = default;
  bool serves();  // once it is started; false when it ended instead
  void make_data_folder() const;
  std::string own_url() const;  // of the database that is always there
  // A program of PostgreSQL's, as the user that runs the server.
  std::vector<std::string> command(const std::string& program,
                                   std::vector<std::string> arguments) const;

  std::unique_ptr<TempDir> dir_;
  Path bin_;
  bool as_postgres_ = false;
  int port_ = 0, databases_ = 0;
  Child server_ = Child::none();
};

}  // namespace kiln::testing
