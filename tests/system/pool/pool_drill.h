// PoolDrill: rounds of trouble for a pool of coordinators. In each one clients ask for programs new
// and old while something goes wrong; then all is mended, what was asked for is asked for again, and
// the round says what was not as promised:
//   - a client that has no answer even after all is mended, or an error that no document names;
//   - a wrong answer;
//   - a program that was answered as stored and is no hit afterwards;
//   - something published when the publisher's term was over, or a stored program without binaries.
// One thread.
#pragma once

#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/system/pool/pool.h"

namespace kiln::testing {

struct PoolTrouble {
  enum class Kind : uint8_t {
    kNothing,
    kKillAtStatement,  // the leader, at `point`
    kKillAtTake,       // the leader, and who takes the term after it, at that
    kKillAtPut,        // the leader, when it puts a binary
    kStop,             // SIGSTOP for the leader
    kCutPostgres,      // the leader from PostgreSQL
    kCutClients,       // clients and workers from the leader
    kCutS3,            // all from S3
    kFailOver,         // PostgreSQL's primary dies, its synchronous standby takes over
    kS3,               // S3 answers, badly
    kLosePostgres,     // packets between the leader and PostgreSQL are lost
    kLoseClients,      // those between the leader and clients and workers
    kLoseS3,           // those between all and S3
  };
  static constexpr int kKinds = 13;
  Kind kind = Kind::kNothing;
  StatementTap::Point point{};  // `after` also for kKillAtTake and kKillAtPut
  int after_ms = 0;             // of what comes at a moment: how long clients have been asking
  int for_ms = 0;               // of what ends by itself; kS3: once it was met
  TcpProxy::Mode wire = TcpProxy::Mode::kForward;
  PacketFilter::Cut lost = PacketFilter::Cut::kNone;
  SmallS3::Fault s3 = SmallS3::Fault::kNone;
};
std::string_view name(PoolTrouble::Kind kind);
bool takes_filter(PoolTrouble::Kind kind);  // Pool::Options::has_filter
std::string describe(const PoolTrouble& trouble);
// One of `kind`: the `round`-th takes the next of its points, the rest is at random.
PoolTrouble draw(PoolTrouble::Kind kind, int round, std::mt19937_64& random);

class PoolDrill {
 public:
  struct Tally {
    int rounds = 0, struck = 0, takeovers = 0;
    int64_t answers = 0, hits = 0, errors = 0, memory_only = 0;
    int64_t lost = 0, wrong = 0, unanswered = 0;
    int64_t builds = 0, candidates = 0;
    double longest_s = 0;  // a client waited
  };

  PoolDrill(Pool& pool, uint64_t seed) : pool_(pool), random_(seed) {}
  // What was not as promised; usually nothing.
  std::vector<std::string> round(const PoolTrouble& trouble);
  // kill -9 of every coordinator; then all that was ever answered must be a hit, and right.
  std::vector<std::string> after_kill();
  const Tally& tally() const { return tally_; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Ask {
    std::string name;
    int program = 0;
    Child child = Child::none();
    Clock::time_point began{};
  };
  Ask begin(std::string name, int program) const;
  std::vector<Ask> begin_all();
  void forget_memory();
  void arm(const PoolTrouble& trouble, size_t leader);
  void strike(const PoolTrouble& trouble, size_t leader);
  bool is_struck(const PoolTrouble& trouble, size_t leader);
  void wait_for(std::vector<Ask>& asks, const PoolTrouble& trouble, size_t leader);
  nlohmann::json answer(const Ask& ask) const;  // what --json printed; empty when nothing
  void judge(const Ask& ask, const PoolTrouble& trouble);
  void insist(int program);
  void count();
  std::string told(const Ask& ask) const;
  void complain(std::string what) { complaints_.push_back(std::move(what)); }

  Pool& pool_;
  std::mt19937_64 random_;
  Tally tally_;
  std::set<int> answered_;  // hits from now on
  std::set<int> promised_;  // of them, when the clients began
  int next_program_ = 0, asks_ = 0;
  std::vector<std::string> complaints_;
};

}  // namespace kiln::testing
