// Trouble: what goes wrong in one round, as plain values; drawn from a seed, or named in full. A
// round is replayed by the command that replay() gives.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "compiler_core/base/result.h"
#include "tests/system/faults/fault_board.h"
#include "tests/system/faults/tcp_proxy.h"

namespace kiln::testing {

enum class Victim : uint8_t { kNobody, kClient, kWorker, kRunner, kCoordinator, kCompiler };

struct Trouble {
  // At a named point.
  bool at_point = false;
  Fault fault;
  // The coordinator is asked to stop (SIGTERM) with the fault armed, and comes back: for points
  // that only a start or an end passes.
  bool restarts = false;
  // At a moment: this long after the clients began.
  int after_ms = 0;
  Victim killed = Victim::kNobody;
  Victim stopped = Victim::kNobody;               // for `for_ms`, then it goes on
  TcpProxy::Mode cut = TcpProxy::Mode::kForward;  // for `for_ms`
  bool drops = false;                             // every connection, once
  bool rots = false;                              // one bit of one stored blob
  std::string fills;                              // this directory's disk, to the last byte
  int for_ms = 0;

  // Its name and its program's; empty when there is none.
  std::string_view point() const;
  std::string_view program() const;
  // Writes of the coordinator are refused: what is answered meanwhile may be in memory only.
  bool hurts_the_store() const;
  // Blobs of before can no longer be read: their programs are tuned again.
  bool loses_blobs() const;
  // At the making of a signing key, which there must be none of.
  bool makes_a_key() const;
  // In the queue of programs that nobody waits for.
  bool meets_the_queue() const;
};

// Any of them; `with_proxy`: the wire can be cut.
Trouble draw(std::mt19937_64& random, bool with_proxy);
// The actions that make sense at a point.
std::vector<Fault> faults_of(int point);
std::string describe(const Trouble& trouble);
// Flags of `soak` that give this very trouble.
std::string replay(const Trouble& trouble);

std::string_view name(Victim victim);

}  // namespace kiln::testing
