// CandidateTable: the candidates of one tuning task: which wait, which are leased, what is known of
// each. A candidate takes some 24 bytes besides its packed schedule; what only few have (a binary,
// a history of failures) is kept in maps. Every operation is O(log n) or better, except where
// marked. Plain value; one thread.
//
//   idle --want--> queued --take--> leased --release--> idle        (lease_again: leased twice,
//     any but queued --measured, reject--> settled                   when hedged)
//
// Queued candidates wait in one line for devices, which build what they are to try. While building is
// apart there is a second line, of what is to be built first: all that is not built, calls no
// library and is not offered.
#pragma once

#include <array>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/core/events.h"
#include "coordinator/core/tuning/schedule_list.h"

namespace kiln {

struct CandidateState {
  double screened_us = 0;  // calibrated median of the screening; 0: not timed
  Verdict verdict = Verdict::kOk;
  uint8_t leases = 0;  // open ones; 2 when hedged
  bool queued = false;
  bool measured = false;    // screening is over for it (its samples may be none)
  bool rejected = false;    // a terminal verdict, or abandoned after too many transient ones
  bool withdrawn = false;   // rejected as if it had not been listed
  bool is_library = false;  // it calls a library; constant
  bool is_offered = false;  // somebody's finished binary, which nobody builds; constant
  bool settled() const { return measured || rejected; }
};

// A candidate that failed on a worker is left to another one, while there is one.
struct CandidateTrouble {
  int failures = 0, time_outs = 0;  // since its last success
  int runner_deaths = 0;            // in all, not reset by a success: each cost a runner
  WorkerId avoid;
};

struct CandidateBinary {
  Recipe recipe;
  std::string bytes;
  Target device;  // where it was compiled
  Reporter built_by{};
  std::string toolkit{};  // with what
  Digest made{};          // of recipe and bytes (votes.h)
  Standing standing{};    // of who built it
  bool is_verified = true;
  int64_t local_bytes = 0;  // CandidateResult
};

enum class Line : uint8_t { kDevice, kBuild };

class CandidateTable {
 public:
  // `libraries`, `offered`: PlannedKernel's.
  explicit CandidateTable(const std::vector<Schedule>& schedules,
                          const std::map<std::string, std::string>& libraries = {},
                          const std::map<std::string, OfferedKernel>& offered = {});

  int size() const { return schedules_.size(); }
  Schedule schedule(int i) const { return schedules_.at(i); }
  const std::string& template_of(int i) const { return schedules_.template_of(i); }
  int find(const Schedule& schedule) const { return schedules_.find(schedule); }  // O(n)
  double distance(int a, int b) const { return schedules_.distance(a, b); }
  const CandidateState& operator[](int i) const { return states_[static_cast<size_t>(i)]; }
  int settled() const { return settled_; }
  int waiting() const { return waiting(Line::kDevice) + waiting(Line::kBuild); }
  int waiting(Line line) const { return static_cast<int>(of(line).size()); }
  bool waits_fresh(Line line) const { return !of(line).fresh.empty(); }  // that never failed
  // The least time of candidates that are not rejected and call no library; 0: none was timed. A
  // library that is far ahead must not drop all others: its winner needs the best of them beside it.
  double best_us() const { return best_us_; }

  // ---- work ----
  void want(int i);              // queues it, unless it is queued or leased
  void build_apart(bool apart);  // O(n) when it changes
  bool is_built_apart() const { return apart_; }
  // Takes up to `limit` off a line; they count as leased. A candidate that failed before comes
  // alone, and not to the worker that it failed on while `others` can have it. `lacks`: templates
  // of which the worker gets none; O(n) where there are some.
  std::vector<int> take(Line line, const WorkerId& worker, int limit, bool others,
                        const std::vector<std::string>& lacks = {});
  std::vector<int> take_all();
  std::set<std::string> queued_templates() const;  // O(n)
  // Takes those of one template off the queue. O(n).
  std::vector<int> unqueue(std::string_view template_name);
  void lease_again(int i) { ++state(i).leases; }
  void release(int i);  // a lease of it ended
  void recall();        // unqueues all and ends their leases; O(n)

  // ---- knowledge ----
  void measured(int i, double calibrated_us);
  void reject(int i, Verdict verdict);  // O(n) when it was the best
  void reconsider(int i);               // a rejected one is as if it had never been tried
  // Rejects those of one template that are not settled or leased, as if they had not been listed.
  // O(n).
  void withdraw(std::string_view template_name);
  void withdraw(int i);  // one. REQUIRES: it is not queued, leased or settled
  CandidateTrouble& trouble(int i) { return troubles_[i]; }
  void recovered(int i);  // it succeeded

  void keep_binary(int i, CandidateBinary binary) { binaries_[i] = std::move(binary); }
  const CandidateBinary* binary(int i) const;
  CandidateBinary* binary(int i);
  void drop_binary(int i) { binaries_.erase(i); }
  void drop_unverified();  // that are not leased
  void drop_binaries() { binaries_.clear(); }
  // Keeps the binaries of the `count` best medians that call a library, and of those that do not.
  void keep_best_binaries(size_t count);
  int64_t unverified_bytes() const;  // of binaries; O(their number)
  bool has_unverified() const;       // likewise

 private:
  struct Queue {
    std::deque<int> fresh, again;  // never failed, failed before
    size_t size() const { return fresh.size() + again.size(); }
  };
  Line line_of(int i) const;
  Queue& of(Line line) { return lines_[static_cast<size_t>(line)]; }
  const Queue& of(Line line) const { return lines_[static_cast<size_t>(line)]; }
  void find_best();
  CandidateState& state(int i) { return states_[static_cast<size_t>(i)]; }
  std::vector<int> unqueue_all();
  std::vector<int> take_retried(Queue& queue, const WorkerId& worker, bool others,
                                const std::vector<std::string>& lacks);

  ScheduleList schedules_;
  std::vector<CandidateState> states_;
  std::array<Queue, 2> lines_;
  bool apart_ = false;
  std::map<int, CandidateTrouble> troubles_;
  std::map<int, CandidateBinary> binaries_;
  int settled_ = 0;
  double best_us_ = 0;
};

}  // namespace kiln
