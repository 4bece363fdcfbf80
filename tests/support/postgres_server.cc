#include "tests/support/postgres_server.h"

#include <fmt/core.h>
#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <thread>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"

namespace kiln::testing {
namespace {

// The newest version's programs, which Debian puts on nobody's PATH.
Path programs() {
  Path newest;
  std::error_code none;
  for (const auto& version : std::filesystem::directory_iterator("/usr/lib/postgresql", none))
    if (std::filesystem::exists(version.path() / "bin" / "initdb") && version.path() > newest)
      newest = version.path();
  return newest.empty() ? newest : newest / "bin";
}

}  // namespace

Result<std::unique_ptr<PostgresServer>> PostgresServer::start() {
  std::unique_ptr<PostgresServer> server(new PostgresServer);
  server->bin_ = programs();
  if (server->bin_.empty())
    return fail(Code::kUnsupported, "no PostgreSQL here: ./ops/setup installs it");
  server->dir_ = std::make_unique<TempDir>(TempDir::create("kiln-postgres").value());
  const Path data = server->dir_->path() / "data";
  std::filesystem::permissions(server->dir_->path(), std::filesystem::perms(0755));
  server->as_postgres_ = ::geteuid() == 0;
  if (server->as_postgres_ && ::getpwnam("postgres") == nullptr)
    return fail(Code::kUnsupported, "there is no user 'postgres' here");
  server->make_data_folder();
  const Finished made = run(server->command(
      "initdb", {"-D", data, "-U", "kiln", "-A", "trust", "--no-locale", "-E", "UTF8", "-N"}));
  if (made.exit_code != 0) return fail(Code::kInternal, "initdb: " + made.out + made.err);
  // Another process may take the port between our look and the server's start.
  for (int tries = 0; tries < 5; ++tries) {
    server->port_ = free_port();
    if (server->serves()) return server;
  }
  return fail(Code::kInternal,
              "PostgreSQL does not start: " + read_file(server->dir_->path() / "log").value_or(""));
}

void PostgresServer::make_data_folder() const {
  const Path data = dir_->path() / "data";
  std::filesystem::remove_all(data);
  std::filesystem::create_directory(data);
  std::filesystem::permissions(data, std::filesystem::perms(0700));
  if (!as_postgres_) return;
  const passwd* const user = ::getpwnam("postgres");
  CHECK(::chown(data.c_str(), user->pw_uid, user->pw_gid) == 0, "root may do that");
}

PostgresServer::~PostgresServer() {
  if (server_.pid() > 0) kill();
}

std::vector<std::string> PostgresServer::command(const std::string& program,
                                                 std::vector<std::string> arguments) const {
  std::vector<std::string> all;
  if (as_postgres_)
    all = {"/usr/bin/setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups",
           "--pdeathsig=INT"};
  all.push_back(bin_ / program);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return all;
}

void PostgresServer::begin() {
  CHECK(serves(), "PostgreSQL starts again");
}

// No sync: what survives the loss of power is PostgreSQL's own business.
bool PostgresServer::serves() {
  const Path dir = dir_->path();
  server_ = Child::start(
      command("postgres", {"-D", dir / "data", "-p", std::to_string(port_), "-h", "127.0.0.1", "-k",
                           dir / "data", "-c", "fsync=off", "-c", "shared_buffers=16MB"}),
      dir / "log", dir / "log");
  for (int tries = 0; tries < 1'200; ++tries) {
    if (run(command("pg_isready",
                    {"-h", "127.0.0.1", "-p", std::to_string(port_), "-U", "kiln", "-q"}))
            .exit_code == 0)
      return server_.running();  // else another server has the port
    if (!server_.running()) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  return false;
}

void PostgresServer::signal_all(int number) const {
  server_.signal(number);
  for (const pid_t backend : descendants(server_.pid(), "postgres")) ::kill(backend, number);
}

// It stands still first, so that it forks none while its others are looked for.
void PostgresServer::kill() {
  server_.signal(SIGSTOP);
  const std::vector<pid_t> backends = descendants(server_.pid(), "postgres");
  server_.signal(SIGKILL);
  for (const pid_t backend : backends) ::kill(backend, SIGKILL);
  server_.wait();
  for (const pid_t backend : backends) ends(backend);
  std::filesystem::remove(dir_->path() / "data" / "postmaster.pid");
}

std::string PostgresServer::own_url() const {
  return fmt::format("postgresql://kiln@127.0.0.1:{}/postgres", port_);
}

// What it copies of the primary's settings may say that commits wait for a standby: it has none.
void PostgresServer::follow(const PostgresServer& primary) {
  if (server_.pid() > 0) kill();
  make_data_folder();
  const Path data = dir_->path() / "data";
  const Finished copied =
      run(command("pg_basebackup", {"-h", "127.0.0.1", "-p", std::to_string(primary.port_), "-U",
                                    "kiln", "-D", data, "-R", "-X", "stream", "-c", "fast", "-N"}));
  CHECK(copied.exit_code == 0, copied.err.c_str());
  std::ofstream(data / "postgresql.auto.conf", std::ios::app) << "synchronous_standby_names = ''\n";
  begin();
  (void)primary.ask(primary.own_url(), "ALTER SYSTEM SET synchronous_standby_names = '*'");
  (void)primary.ask(primary.own_url(), "SELECT pg_reload_conf()");
  for (int tries = 0; tries < 600; ++tries) {
    const auto state =
        primary.query(primary.own_url(), "SELECT sync_state FROM pg_stat_replication");
    if (state && *state == "sync") return;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  CHECK(false, "the standby is synchronous within a minute");
}

void PostgresServer::promote() {
  CHECK(ask(own_url(), "SELECT pg_promote(true, 60)") == "t", "it takes writes");
}

Result<std::string> PostgresServer::query(const std::string& url, const std::string& sql) const {
  const Finished asked =
      run({bin_ / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-c", sql, url},
          {"PGCONNECT_TIMEOUT=60"});
  if (asked.exit_code != 0) return fail(Code::kUnavailable, asked.err);
  std::string answer = asked.out;
  while (!answer.empty() && answer.back() == '\n') answer.pop_back();
  return answer;
}

std::string PostgresServer::ask(const std::string& url, const std::string& sql) const {
  const auto answer = query(url, sql);
  CHECK(answer.has_value(), answer ? "" : answer.error().message.c_str());
  return *answer;
}

std::string PostgresServer::new_database() {
  const std::string name = fmt::format("kiln_{}", ++databases_);
  (void)ask(own_url(), "CREATE DATABASE " + name);
  return fmt::format("postgresql://kiln@127.0.0.1:{}/{}", port_, name);
}

}  // namespace kiln::testing
