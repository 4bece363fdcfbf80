// Trouble: what goes wrong in one round, as plain values; drawn from a seed, or named in full. A
// round is replayed by the command that replay() gives.
#pragma once

#include <random>
#include <string>
#include <vector>

#include "tests/system/faults/fault_board.h"
#include "tests/system/faults/tcp_proxy.h"

namespace kiln::testing {

enum class Victim : uint8_t { kNobody, kClient, kWorker, kRunner, kCoordinator, kCompiler };

struct Trouble {
  // At named points, each of another program when there are several.
  std::vector<Fault> faults;
  // At a moment: this long after the clients began.
  int after_ms = 0;
  Victim killed = Victim::kNobody;
  Victim stopped = Victim::kNobody;               // for `for_ms`, then it goes on
  TcpProxy::Mode cut = TcpProxy::Mode::kForward;  // for `for_ms`
  bool drops = false;                             // every connection, once
  bool rots = false;                              // one bit of one stored blob
  std::string fills;                              // this directory's disk, to the last byte
  int for_ms = 0;                                 // also of a stop at a point, from when it came

  bool is_nothing() const;
  // A fault of this program's ("kiln": clients).
  bool strikes(std::string_view program) const;
  bool stops_at_a_point() const;
  // The program (coordinator or worker) is asked to stop (SIGTERM) with the faults armed, and comes
  // back: for points that only a start or an end passes.
  bool restarts(std::string_view program) const;
  // Reads and writes of the coordinator's store are refused: what is answered meanwhile may be in
  // memory only.
  bool hurts_the_store() const;
  // Blobs of before can no longer be read: their programs are tuned again.
  bool loses_blobs() const;
  // At the program's making of a signing key, which there must be none of.
  bool makes_a_key(std::string_view program) const;
  // In the queue of programs that nobody waits for.
  bool meets_the_queue() const;
};

const FaultPoint& point_of(const Fault& fault);

// Any of them; `with_proxy`: the wire can be cut.
Trouble draw(std::mt19937_64& random, bool with_proxy);
// What makes sense at a point; errors, stops and delays once each.
std::vector<Fault> faults_of(int point);
std::string describe(const Trouble& trouble);
// Flags of `soak` that give this very trouble.
std::string replay(const Trouble& trouble);

std::string_view name(Victim victim);

}  // namespace kiln::testing
