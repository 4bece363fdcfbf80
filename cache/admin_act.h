// AdminAct: what an operator asked of a coordinator, or a coordinator did that operators must be able
// to look up: the audit trail. Plain values. A store keeps them (Store::note, Store::acts), those of
// pins and of what is taken back in the transaction of the act itself.
#pragma once

#include <cstdint>
#include <string>

#include "cache/taking_back.h"

namespace kiln {

struct AdminAct {
  int64_t number = 0;       // the store's, from 1, in the order of the acts; 0: not stored yet
  int64_t at_ms = 0;        // Unix time
  std::string coordinator;  // that did it, for people
  std::string who;          // the name of the key; empty: there are none, or nobody asked
  std::string request;      // "drain gpu7"
  bool done = false;
  std::string outcome;  // JSON of what came of it, or a sentence that says why nothing did

  bool operator==(const AdminAct&) const = default;
};
inline constexpr int64_t kMaxActs = 100'000;  // the oldest are dropped beyond

// Not done so far.
AdminAct act_of_now(std::string coordinator, std::string who, std::string request);
// The act, done, with what was taken back as its outcome: {"programs": 2, "kernels": 3, "records": 40,
// "blobs": 3}.
AdminAct came_to(AdminAct act, const TakenBack& taken);
// {"number", "at_ms", "coordinator", "who", "request", "done", "outcome"}, as one line.
std::string to_json(const AdminAct& act);
// The act in valid UTF-8 without NUL, as a store keeps it: what a client calls a worker need be neither.
AdminAct in_utf8(AdminAct act);

}  // namespace kiln
