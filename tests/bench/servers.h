// The servers that service_bench measures, each a process of its own on a free port of loopback.
#pragma once

#include <string>
#include <vector>

#include "tests/support/process.h"

namespace kiln::bench {

struct ServerUse {
  double cpu_s = 0;           // user and system, so far
  double resident_bytes = 0;  // now
  int fds = 0;
};

class Server {
 public:
  // A coordinator on `directory`/data, this build's unless another `program` is named; waits until
  // it is ready (`start_s`: how long that took). CHECKs, with what it wrote to stderr, that it does
  // not end before.
  static Server kiln(const Path& directory, const std::vector<std::string>& more = {},
                     const Path& program = testing::binary("kiln-coordinator"));
  // redis-server, which keeps nothing on disk. CHECKs that it is installed (ops/setup --bench).
  // `tls`: on a second port too, with a certificate made for it.
  static Server redis(const Path& directory, bool tls = false);

  int port() const { return port_; }
  int tls_port() const { return tls_port_; }
  std::string endpoint() const;  // "tcp://127.0.0.1:PORT"
  double start_s() const { return start_s_; }
  ServerUse use() const;
  void stop();
  void kill();  // SIGKILL

 private:
  Server(testing::Child child, int port, double start_s)
      : child_(std::move(child)), port_(port), start_s_(start_s) {}
  testing::Child child_;
  int port_, tls_port_ = 0;
  double start_s_;
};

// Puts `pairs` (key, value) into a Redis.
void fill_redis(int port, const std::vector<std::pair<std::string, std::string>>& pairs);

}  // namespace kiln::bench
