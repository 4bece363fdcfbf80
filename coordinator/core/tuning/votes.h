// Votes: what several workers found when each built and ran one candidate for itself. Nobody's word
// is taken alone where another may be asked: a result is confirmed when two voters built the same
// bytes and found them right, refuted when two found it wrong. Among owners a voter is a key, so
// that one key's many workers have one vote; among workers it is a worker. Plain value; one thread.
//
//   open (one voter) --a second agrees--> confirmed | refuted
//                    `--it does not--> disputed --a third decides--> confirmed | refuted
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "compiler_core/program/program.h"
#include "coordinator/core/events.h"

namespace kiln {

enum class Among : uint8_t { kOwners, kWorkers };

class TuningTask;

class Votes {
 public:
  enum class State : uint8_t { kOpen, kConfirmed, kRefuted, kDisputed };

  // `by` found it right and built these bytes (made_of()), or found it wrong.
  void good(const Reporter& by, const Digest& made) { good_[made].insert(by); }
  void bad(const Reporter& by) { bad_.insert(by); }
  // It was asked, and could not say.
  void excuse(const WorkerId& worker) { excused_.insert(worker); }
  bool empty() const { return good_.empty() && bad_.empty(); }

  State state(Among among) const;
  // Two voters found the candidate right, and differ in its bytes alone: their compilers may differ.
  bool differs_in_bytes_alone() const { return bad_.empty() && good_.size() > 1; }
  // Whether `worker` may be asked next: it has no vote yet. An owner's vote needs a key.
  bool may_ask(const Reporter& worker, Among among) const;

  Digest confirmed_bytes(Among among) const;           // REQUIRES: kConfirmed
  std::vector<Reporter> of(const Digest& made) const;  // that built these bytes
  // Reporters of the opposite of what was decided. REQUIRES: kConfirmed or kRefuted.
  std::vector<Reporter> minority(Among among) const;
  std::string describe() const;  // "a (key k) found it right, b found it wrong"

 private:
  std::map<Digest, std::set<Reporter>> good_;  // by the bytes
  std::set<Reporter> bad_;
  std::set<WorkerId> excused_;
};

// The digest of what a worker built: equal for two that built the same.
Digest made_of(const std::string& recipe_json, const std::string& binary);

// Jury: what a tuning task asks of the fleet; TuningScheduler answers.
class Jury {
 public:
  virtual ~Jury() = default;
  // Whether some worker that takes work may be asked about the candidate (TuningTask::may_vote),
  // and has its template.
  virtual bool has_voter(const TuningTask& task, int candidate, Among among) const = 0;
  // Whether some worker that takes work builds the candidate, and verifies what is built, as two
  // jobs.
  virtual bool has_builder(const TuningTask& task, int candidate) const = 0;
  // Whether the task's candidates are built by whoever has a compiler, and tried by others.
  virtual bool builds_apart(const TuningTask& task) const = 0;
  // Whether this winner, which no other owner can confirm, is in the sample that another worker
  // is to confirm. With nobody to ask, the builder's next one is in it too.
  virtual bool samples(const Digest& kernel, const WorkerId& builder, bool has_voter) = 0;
};

}  // namespace kiln
