#include "tests/bench/servers.h"

#include <fmt/format.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <ctime>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "tests/bench/dialogue.h"
#include "tests/support/loopback.h"

namespace kiln::bench {
namespace {

using Clock = std::chrono::steady_clock;

// -1 when nobody listens.
int connect_to(int port) {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  if (connect_to_loopback(fd, port) == 0) return fd;
  close(fd);
  return -1;
}

// Until `ready`. Why a server ended before stands in the file `err`, and is passed on.
template <class Condition>
void wait_for(testing::Child& child, const std::string& program, const Path& err, int seconds,
              Condition ready) {
  for (int i = 0; i < seconds * 200; ++i) {
    if (ready()) return;
    if (!child.running()) {
      const std::string missing = std::filesystem::exists(program) ? "" : "; there is no such file";
      CHECK(false, fmt::format("{} ended with exit code {} before it was ready{}\n{}", program,
                               child.exit_code(), missing, read_file(err).value_or("")));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  CHECK(false, fmt::format("{} was not ready within {} s\n{}", program, seconds,
                           read_file(err).value_or("")));
}

struct Certificate {
  std::string certificate, key;  // files
};

Certificate make_certificate(const Path& directory) {
  Certificate made{(directory / "redis.crt").string(), (directory / "redis.key").string()};
  auto openssl =
      testing::Child::start({"/usr/bin/openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt",
                             "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2", "-subj",
                             "/CN=localhost", "-out", made.certificate, "-keyout", made.key},
                            directory / "openssl.out", directory / "openssl.err");
  openssl.wait();
  CHECK(std::filesystem::exists(made.certificate),
        "openssl makes a certificate (ops/setup --bench)");
  return made;
}

}  // namespace

Server Server::kiln(const Path& directory, const std::vector<std::string>& more,
                    const Path& program) {
  const Path ready_file = directory / "ready.json";
  std::filesystem::remove(ready_file);
  std::vector<std::string> arguments = {
      program.string(), "--data-dir",        (directory / "data").string(),
      "--listen",       "tcp://127.0.0.1:0", "--http",
      "none",           "--ready-file",      ready_file.string()};
  arguments.insert(arguments.end(), more.begin(), more.end());
  const auto start = Clock::now();
  const Path err = directory / "kiln.err";
  auto child = testing::Child::start(arguments, directory / "kiln.out", err);
  wait_for(child, program.string(), err, 120, [&] { return std::filesystem::exists(ready_file); });
  const double start_s = seconds_since(start);
  const std::string endpoint =
      nlohmann::json::parse(read_file(ready_file).value()).at("endpoint").get<std::string>();
  return {std::move(child), std::stoi(endpoint.substr(endpoint.rfind(':') + 1)), start_s};
}

Server Server::redis(const Path& directory, bool tls) {
  constexpr const char* kProgram = "/usr/bin/redis-server";
  CHECK(std::filesystem::exists(kProgram), "redis-server is installed: ops/setup --bench");
  const int port = free_port();
  std::vector<std::string> arguments = {kProgram,
                                        "--port",
                                        std::to_string(port),
                                        "--bind",
                                        "127.0.0.1",
                                        "--save",
                                        "",
                                        "--appendonly",
                                        "no",
                                        "--maxclients",
                                        "20000",
                                        "--tcp-backlog",
                                        "4096",
                                        "--dir",
                                        directory.string()};
  int tls_port = 0;
  if (tls) {
    const Certificate made = make_certificate(directory);
    tls_port = free_port();
    const std::vector<std::string> more = {
        "--tls-port",      std::to_string(tls_port), "--tls-auth-clients", "no",
        "--tls-cert-file", made.certificate,         "--tls-key-file",     made.key};
    arguments.insert(arguments.end(), more.begin(), more.end());
  }
  const auto start = Clock::now();
  auto child = testing::Child::start(arguments, directory / "redis.out", directory / "redis.err");
  wait_for(child, kProgram, directory / "redis.out", 20, [&] {  // it logs on stdout
    const int fd = connect_to(port);
    if (fd >= 0) close(fd);
    return fd >= 0;
  });
  Server server{std::move(child), port, seconds_since(start)};
  server.tls_port_ = tls_port;
  return server;
}

std::string Server::endpoint() const {
  return fmt::format("tcp://127.0.0.1:{}", port_);
}

ServerUse Server::use() const {
  ServerUse use;
  const std::string proc = fmt::format("/proc/{}/", child_.pid());
  double pages = 0;
  std::ifstream(proc + "statm") >> pages >> pages;  // all, then those in memory
  use.resident_bytes = pages * static_cast<double>(sysconf(_SC_PAGESIZE));
  clockid_t clock{};  // of its CPU time: nanoseconds, where /proc has hundredths of a second
  timespec cpu{};
  if (clock_getcpuclockid(child_.pid(), &clock) == 0) clock_gettime(clock, &cpu);
  use.cpu_s = static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
  for ([[maybe_unused]] const auto& fd : std::filesystem::directory_iterator(proc + "fd"))
    ++use.fds;
  return use;
}

void Server::stop() {
  child_.signal(SIGTERM);
  child_.wait();
}

void Server::kill() {
  child_.signal(SIGKILL);
  child_.wait();
}

void fill_redis(int port, const std::vector<std::pair<std::string, std::string>>& pairs) {
  const int fd = connect_to(port);
  CHECK(fd >= 0, "the Redis is there");
  for (const auto& [key, value] : pairs) {
    const std::string command = resp_command({"SET", key, value});
    CHECK(send(fd, command.data(), command.size(), 0) == std::ssize(command), "it takes a value");
    char answer[5];
    CHECK(recv(fd, answer, sizeof answer, MSG_WAITALL) == 5 && answer[0] == '+', "it says OK");
  }
  close(fd);
}

}  // namespace kiln::bench
