// Drill: rounds of trouble. In each one clients ask a live service for programs old and new while
// something goes wrong; then all is mended, everything is asked for again, and the round says what
// was not as promised:
//   - a client without an answer in time, or with an error that no document names, or with one
//     though nothing had gone wrong;
//   - a wrong answer;
//   - an answer from memory alone though the coordinator's disk took everything;
//   - a program that was answered as stored, or queued, and is a miss afterwards for whoever asks
//     next, or whose blob does not match its digest;
//   - a process or a temporary file left behind, descriptors without end.
// One thread.
#pragma once

#include <filesystem>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/system/faults/client_ask.h"
#include "tests/system/faults/live_service.h"
#include "tests/system/faults/trouble.h"

namespace kiln::testing {

struct DrillTally {
  int rounds = 0, struck = 0;
  int64_t answers = 0, hits = 0, errors = 0, killed = 0;  // of clients
  int64_t memory_only = 0;  // answers that were not stored, and said so
  int64_t queued = 0;       // for nobody
  int64_t wrong = 0, lost = 0, unanswered = 0;
  double longest_s = 0;  // a client waited
};

class Drill {
 public:
  Drill(LiveService& service, FaultControl& faults, uint64_t seed);

  // What was not as promised; usually nothing.
  std::vector<std::string> round(const Trouble& trouble);
  // kill -9 of everybody; then every program that was ever answered must be there and right.
  std::vector<std::string> after_kill();
  // SIGTERM to everybody; then nothing must be left.
  std::vector<std::string> after_stop();

  const DrillTally& tally() const { return tally_; }
  // Programs there may be; beyond it old ones are asked for in place of new ones. 0: no end.
  void limit_programs(int count) { max_programs_ = count; }
  // The service may give up what it answered: a miss is no loss any more, all else is.
  void allow_eviction() { evicts_ = true; }
  // A process of the test's own, which may run on between rounds.
  void welcome(pid_t guest) { guests_.insert(guest); }

 private:
  using Key = ClientAsk::Key;
  void prepare(const Trouble& trouble);
  void restart(const Trouble& trouble, std::string_view program);
  std::vector<ClientAsk> begin(const Trouble& trouble);
  bool wants_a_search(const Trouble& trouble);
  void wait_for(std::vector<ClientAsk>& asks, const Trouble& trouble);
  void strike(const Trouble& trouble, std::vector<ClientAsk>& asks);
  void mend(const Trouble& trouble, std::vector<ClientAsk>& asks);
  bool came(const Trouble& trouble) const;
  void judge(const ClientAsk& ask, const Trouble& trouble);
  void judge_answer(const ClientAsk& ask, const Trouble& trouble);
  void await_queue(const std::vector<ClientAsk>& asks);
  void settle();
  void heal();
  ClientAsk insist(const Key& key);
  void ask_again(const std::vector<ClientAsk>& asks);
  void check_tier();
  void check_stored();
  void check_stored(bool tuned);
  void complain(std::string what);
  void complain(std::vector<std::string> all);
  Key new_key(bool tuned);

  LiveService& service_;
  FaultControl& faults_;
  std::mt19937_64 random_;
  DrillTally tally_;
  std::set<Key> answered_;  // hits from now on
  std::set<Key> promised_;  // of them, when the round began
  std::set<Key> kept_;      // in the clients' tier
  std::set<Path> rotten_;   // damaged by us
  std::set<pid_t> guests_;
  std::vector<std::string> tier_left_;  // half-written there after the last round
  std::filesystem::file_time_type round_began_;
  bool swept_ = false;  // a client has put something into the tier since
  bool evicts_ = false;
  std::vector<std::string> complaints_;
  int next_program_ = 0, max_programs_ = 0;
};

}  // namespace kiln::testing
