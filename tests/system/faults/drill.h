// Drill: rounds of trouble. In each one clients ask a live service for programs old and new while
// something goes wrong; then all is mended, everything is asked for again, and the round says what
// was not as promised:
//   - a client without an answer in time, or with an error that no document names;
//   - a wrong answer;
//   - a program that was answered and is a miss afterwards, or whose blob does not match its
//   digest;
//   - a process or a temporary file left behind, descriptors without end.
// One thread.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "tests/system/faults/live_service.h"
#include "tests/system/faults/small_program.h"
#include "tests/system/faults/trouble.h"

namespace kiln::testing {

struct DrillTally {
  int rounds = 0, struck = 0;
  int64_t answers = 0, hits = 0, errors = 0, killed = 0;  // of clients
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
  const Path& programs() const { return programs_; }
  // Programs there may be; beyond it old ones are asked for in place of new ones. 0: no end.
  void limit_programs(int count) { max_programs_ = count; }
  // The service may give up what it answered: a miss is no loss any more, all else is.
  void allow_eviction() { evicts_ = true; }

 private:
  struct Key {
    int program;
    bool tuned;
    auto operator<=>(const Key&) const = default;
  };
  struct Ask {
    std::string name;
    Key key;
    bool tier;  // with the client's own disk tier
    Path out, err;
    Child child;
    double seconds = 0;
  };
  Ask ask(std::string name, Key key, bool tier);
  std::vector<Ask> begin(const Trouble& trouble);
  bool wants_a_search(const Trouble& trouble);
  void wait_for(std::vector<Ask>& asks, const Trouble& trouble);
  void strike(const Trouble& trouble, std::vector<Ask>& asks);
  void mend(const Trouble& trouble, std::vector<Ask>& asks);
  void restart(const Trouble& trouble);
  void judge(const Ask& ask, const Trouble& trouble);
  Ask insist(const Key& key);
  void ask_again(const std::vector<Ask>& asks);
  void check_house();
  void check_tier();
  void settle();
  void heal();
  void check_blobs();
  void check_stored(const std::set<Key>& keys);
  void complain(std::string what);
  Key new_key(bool tuned);

  LiveService& service_;
  FaultControl& faults_;
  std::mt19937_64 random_;
  const Path programs_;
  DrillTally tally_;
  std::set<Key> answered_;              // hits from now on
  std::set<Path> rotten_;               // damaged by us
  std::set<Key> kept_;                  // in the clients' tier
  std::vector<std::string> tier_left_;  // half-written there after the last round
  bool evicts_ = false;
  bool swept_ = false;  // a client has put something there in this one
  std::vector<std::string> complaints_;
  int next_program_ = 0, max_programs_ = 0;
};

}  // namespace kiln::testing
