// PoolCrowd: many clients, each with connections of its own to a pool's coordinators, who ask at once
// for one program that nobody has.
#pragma once

#include <string>

#include "tests/system/pool/pool.h"

namespace kiln::testing {

struct CrowdTally {
  int answered = 0;
  int tuned = 0;          // for whom it was made
  int joined = 0;         // who waited for the same
  int hits = 0;           // who came when it was there
  std::string error{};    // the first
  double longest_s = 0;   // a client waited
  Pool::Builds builds{};  // of this program
  int64_t hedged = 0;     // batches given to a second worker, because the first straggled
  // Builds by which another worker confirmed a winner, as it does one in a hundred.
  int64_t confirmed = 0;
};
// `number`: of small_program.h, which nobody has asked for.
CrowdTally ask_at_once(Pool& pool, int clients, int number);

}  // namespace kiln::testing
