// CompileTask: one program that clients wait for. Plain value; CompileRequests, its owner, moves
// it:
//
//   looking_up --hit (looked_up)--------------------------------------------> answered
//       | stale: whoever takes it is answered; the rest below is for its successor
//       | miss              | only check_only waiters, no worker: answered with the reason
//       v (looked_up)
//   wait_graph <--the graph was bad (plan_finished)--+
//       | a waiter sends it (start_plan)             |   who asked with `now` goes to another task
//       v                                            |
//   planning ----------------------------------------+--fails--> answered with the reason
//       | (plan_finished)
//       v
//   tuning --a kernel failed (kernel_settled)--> answered with the reason
//       | every kernel is built (kernel_built): who takes that is answered, and it goes on
//       | every kernel is done (kernel_settled), and none is being withdrawn (kernel_withdrawn)
//       v
//   storing --ProgramStored, or a kernel could not be stored--> answered
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/core/events.h"

namespace kiln {

using RequestId = std::pair<ClientId, uint64_t>;

struct CompileTask {
  enum class Stage : uint8_t { kLookingUp, kWaitGraph, kPlanning, kTuning, kStoring };
  struct Waiter {
    bool check_only = false;
    bool detach = false;  // answered as soon as the store has the task
    Priority priority = Priority::kInteractive;
    bool strict = false;  // takes no stale program
    bool early = false;   // takes one that is not verified yet
    Viewer viewer{};
    int times_asked = 0;  // for the graph
    // The request is for a kMaxAutotune program and goes to the kDefault task (tier0_answers.cc),
    // which answers it as tier 0.
    bool now = false;
  };
  // A program that is served at once to those who take it, while the task makes its successor.
  struct Provisional {
    std::string program_json;  // empty: there is none
    bool is_stale = false;     // templates of another version made it
    Audience audience{};       // who may have it
  };

  Digest key;  // task_key()
  Digest program_key, graph;
  Target target;
  Mode mode = Mode::kDefault;
  Audience audience;
  Stage stage = Stage::kLookingUp;
  int64_t started_ms = 0;
  std::map<RequestId, Waiter> waiters;
  std::optional<RequestId> starter;  // the request that caused the work; the others joined

  Provisional provisional;
  std::string early_json;      // kTuning: the program with what is built; empty: nobody took it yet
  std::set<Digest> unbuilt{};  // kTuning: kernels of `pending` that may not be answered yet
  // Goes on though nobody waits: somebody was answered with a program that is being verified.
  bool is_verifying = false;
  std::set<uint64_t> withdrawing{};  // tickets of WithdrawKernel, of its kernels
  // Goes on though nobody waits, until it is in the queue of detached programs: the successor of
  // `provisional`, or of a tier 0 that somebody was answered with.
  bool is_replacing = false;
  std::string uploaded;    // kLookingUp: the graph, if it came with a request
  std::string graph_text;  // since planning, if there is room and the store does not have it
  bool is_doomed = false;  // what it was made with is taken back: it fails, to be asked again
  bool saving = false;     // StoreDetached is on its way
  std::optional<RequestId> asked;  // kWaitGraph: was asked for the graph
  int64_t asked_ms = 0;
  std::optional<RequestId> uploader;  // whose graph it is
  std::string graph_user;             // the same by its user; a stored graph's: who queued it
  uint64_t plan_ticket = 0;

  Program program;  // see partition_choice.h while it is tuned
  std::vector<PlannedAlternative> alternatives;
  std::vector<Digest> failed;  // kTuning: kernels without a survivor, while an alternative is left
  // Why the choice is not final: some of `failed` only lacked a worker, or candidates were left
  // out. Empty: it is.
  std::string untried;
  std::vector<Digest> pending;   // kTuning: kernels not done, in the program's order
  std::vector<Digest> unstored;  // kTuning: kernels that are done but could not be stored
  std::string program_json;      // kStoring
  int64_t progress_ms = 0;       // last sent
};

}  // namespace kiln
