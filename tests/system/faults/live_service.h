// LiveService: a coordinator and workers as real processes with the fault shim in them, kept alive
// as an init system would: whoever ends is started again. Everything they write lies below one
// directory, so that what is left behind can be seen. One thread: it calls tend() often.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/support/process.h"
#include "tests/system/faults/fault_control.h"
#include "tests/system/faults/tcp_proxy.h"

namespace kiln::testing {

class LiveService {
 public:
  struct Options {
    Path root;
    int workers = 1;
    bool proxied = false;  // everybody reaches the coordinator through proxy()
    std::vector<std::string> coordinator_flags = {};
    bool unread_logs = false;  // they go to pipes, full already, that nobody reads
    // As on a cluster: CURVE on the wire, a key for each role that has something to do here
    // (worker, submit for those who ask for programs, read for all other questions), and HTTP
    // ports.
    bool keyed = false;
  };
  LiveService(Options options, const FaultControl& faults);
  ~LiveService();

  const std::string& endpoint() const { return endpoint_; }
  TcpProxy* proxy() { return proxy_.get(); }
  Child& coordinator() { return coordinator_; }
  Child& worker(size_t n) { return workers_[n]; }
  size_t workers() const { return workers_.size(); }
  std::vector<pid_t> runners() const;
  std::vector<pid_t> compilers() const;  // the passes of g++ that run now
  // Of the coordinator and each worker; none unless keyed.
  const std::vector<std::string>& http_endpoints() const { return http_; }
  // What a client that asks for programs gives as its key; empty: it needs none.
  std::string submit_key() const { return key_file("submit"); }

  // One more, as on a machine of its own: nobody else locks its device. REQUIRES: not keyed.
  void add_worker();
  // Starts again whoever ended.
  void tend();
  // Tends until the coordinator answers and every worker has reported to it.
  bool await(int timeout_s = 90);
  // SIGCONT to everybody.
  void wake();
  // kill -9 of everybody, started again by tend().
  void kill();
  // SIGTERM to all; empty, or who did not end well.
  std::string stop();

  // `kiln` with this service and the shim: in the background, with the key that may start work; to
  // its end, with one that may not.
  Child start_client(std::vector<std::string> arguments, const Path& out, const Path& err) const;
  Finished run_client(std::vector<std::string> arguments, int timeout_s) const;

  const Path& root() const { return options_.root; }
  Path data() const { return options_.root / "data"; }
  Path objects() const { return options_.root / "objects"; }
  Path temp() const { return options_.root / "tmp"; }
  Path log(const std::string& who) const { return options_.root / (who + ".log"); }
  int restarts() const { return restarts_; }

 private:
  void fill_logs();
  void make_keys() const;
  std::string key_file(const char* role) const;
  std::vector<std::string> client_environment(const char* role) const;
  std::string http_of(size_t process) const;
  void start_coordinator();
  void start_worker(size_t n);

  const Options options_;
  const std::vector<std::string> environment_;
  std::unique_ptr<TcpProxy> proxy_;
  std::string direct_, endpoint_;  // the coordinator's own, and what others are told
  std::vector<std::string> http_;  // the coordinator's, then the workers'
  Child coordinator_ = Child::none();
  std::vector<Child> workers_;
  int restarts_ = 0;
  std::vector<int> unread_;  // our ends of the logs' pipes
};

}  // namespace kiln::testing
