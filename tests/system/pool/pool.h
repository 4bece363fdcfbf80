// Pool: coordinators of one store as real processes, one of which leads, with workers, PostgreSQL
// (a primary and, if wanted, its synchronous standby) and a small S3, and on every way between them a
// wire that can be cut. One thread.
#pragma once

#include <signal.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/postgres_server.h"
#include "tests/system/faults/tcp_proxy.h"
#include "tests/system/pool/packet_filter.h"
#include "tests/system/pool/small_s3.h"
#include "tests/system/pool/statement_tap.h"

namespace kiln::testing {

class Pool {
 public:
  struct Options {
    Path root;
    int coordinators = 3, workers = 2;
    bool has_standby = false;  // of PostgreSQL
    bool has_history = true;   // of terms and of what was published: complaints()
    bool has_filter = false;   // it runs in a network of its own (PacketFilter)
  };
  // kUnsupported, with a sentence, where there is no PostgreSQL.
  static Result<std::unique_ptr<Pool>> start(Options options);
  ~Pool();

  size_t size() const { return coordinators_.size(); }
  const std::string& endpoints() const { return all_; }  // as clients and workers name them
  std::string direct_endpoints() const;                  // without the wires
  const Path& root() const { return options_.root; }
  // Who has the term; none: nobody, or PostgreSQL does not say.
  std::optional<size_t> leader() const;
  // Waits for one that runs and has the term, with patience; dead ones are started again meanwhile.
  std::optional<size_t> await_leader();
  void kill(size_t coordinator) { coordinators_[coordinator].child.signal(SIGKILL); }
  void signal(size_t coordinator, int number) { coordinators_[coordinator].child.signal(number); }
  pid_t pid(size_t coordinator) const { return coordinators_[coordinator].child.pid(); }
  bool running(size_t coordinator) { return coordinators_[coordinator].child.running(); }
  // Starts again who has ended; what each should not have ended with is a complaint.
  void tend();
  // Everything forwards, goes on and is there again.
  void mend();

  TcpProxy& to_clients(size_t coordinator) { return *coordinators_[coordinator].clients; }
  // Every way of a coordinator to PostgreSQL.
  void set_postgres(size_t coordinator, TcpProxy::Mode mode);
  // What a coordinator says to the primary.
  StatementTap& statements(size_t coordinator) {
    return *coordinators_[coordinator].taps[primary_];
  }
  TcpProxy& to_s3() { return *to_s3_; }
  // Packets are lost on the same ways. REQUIRES: has_filter.
  void lose_postgres(size_t coordinator, PacketFilter::Cut cut);
  void lose_clients(size_t coordinator, PacketFilter::Cut cut);
  void lose_s3(PacketFilter::Cut cut);
  SmallS3& s3() { return s3_; }
  // kill -9 of the primary; its standby takes writes, and has a new standby of its own once mended.
  void fail_over();

  // How often each candidate was compiled, by what the workers keep: at most once by each.
  struct Builds {
    int64_t builds = 0, candidates = 0;
  };
  Builds builds() const;
  // A question to PostgreSQL; "" when it is away.
  std::string ask(const std::string& sql) const;
  std::string insist(const std::string& sql) const;  // with patience, until it answers
  // What is not as promised of the store: two terms with one epoch, something that was published
  // under another term than the last, a live blob without an object.
  std::vector<std::string> complaints() const;
  std::vector<std::string> take_bad_ends() { return std::exchange(bad_ends_, {}); }
  int restarts() const { return restarts_; }
  std::string log_of(size_t coordinator) const;

 private:
  struct Coordinator {
    std::string endpoint;  // its own
    std::unique_ptr<TcpProxy> clients;
    // One for each server of PostgreSQL.
    std::vector<std::unique_ptr<StatementTap>> taps;
    std::vector<std::unique_ptr<TcpProxy>> postgres;
    Child child = Child::none();
    bool started = false;
  };
  explicit Pool(Options options) : options_(std::move(options)) {}
  Status start_all();
  void start_coordinator(size_t number);
  void start_worker(size_t number);
  void keep_history() const;
  std::string url_of(size_t coordinator) const;  // of its store, through its wires

  Options options_;
  std::vector<std::unique_ptr<PostgresServer>> postgres_;
  size_t primary_ = 0;
  bool standby_is_gone_ = false;
  std::string database_;  // its name
  SmallS3 s3_;
  std::unique_ptr<TcpProxy> to_s3_;
  std::vector<Coordinator> coordinators_;
  std::vector<Child> workers_;  // all started
  std::string all_;
  std::vector<std::string> bad_ends_;
  int restarts_ = 0;
};

}  // namespace kiln::testing
