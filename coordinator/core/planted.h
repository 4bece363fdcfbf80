// Planted bugs: places where the core can be made wrong on purpose, so that the simulation proves
// that its checker would notice (docs/simulation.md lists each with a seed that shows it). Only the
// simulation's own build of the core (KILN_PLANTED) can have any; elsewhere planted() is false when
// it is compiled, and nothing of this remains.
#pragma once

#include <cstdint>

namespace kiln {

enum class PlantedBug : uint8_t {
  kNone,
  kIgnoreEpoch,           // a result under another epoch of its lease counts
  kTakeResultsTwice,      // a result does not end what its lease waits for
  kAckAtOnce,             // a result is acknowledged before its record is durable
  kKeepTwin,              // when one of two leases of a candidate settles it, the other goes on
  kHedgeToSelf,           // a straggler is helped by itself
  kRetryTerminal,         // what fails for good is tried again
  kRetryForever,          // nothing is ever set aside
  kFirstComeFirstServed,  // shares count for nothing
  kStarveWarmUp,          // warm-up has no turn of its own
  kNoBounds,              // no queue has a bound
  kLeaseToDraining,       // a worker that drains gets new work
  kTrustQuarantined,      // so does one whose device fails
  kForgetToDrain,         // the worker is not told
  kLeaseAnywhere,         // targets are not compared
  kForgetJoiner,          // who joins a flight is not answered
  kStoreWithoutKernels,   // a program is stored though a kernel of it is not
  kSlowestWins,           // the final is read the wrong way round
  kSwapBinaries,          // a final is run with another candidate's binary
  kNoCalibration,         // times of unequal devices are compared as they are
  kForgetTooEarly,        // a flight is forgotten while a plan that may not know of it is made
  kRepeatMeasured,        // what was measured before a crash is measured again
  kHoardStale,            // results of leases that are over are never acknowledged
  kForgetSentinel,        // records are read again without the sentinels of their devices
  kFailWithOneWay,        // a program fails with a kernel that another way does not need
  kChooseTooEarly,        // a way is chosen for good while another one only lacked a worker
  kSlowestWay,            // the slowest of the ways to cut a program is answered
  kCountKernelsOnce,      // a kernel that a way launches twice counts once
  kBoundOnlyOnMiss,       // programs that were planned are tuned however many candidates wait
  kNoShareBound,          // one share may take every place
  kCallItStored,          // who waits is not told that only memory has the program
  kForgetQueued,          // a queued program whose flight ends early is not begun again
  kUncountedDetached,     // a flight that everybody left goes on outside max_detached_running
  kQueueWithoutBound,     // programs are queued beyond max_detached
  kRaceAgain,             // a final that was measured before a crash is measured again
  kBlameEveryone,         // who waits is told that the graph is bad which somebody else sent
  kForgiveFinals,         // what a candidate does in a final is not counted against it
  kForgetHealth,          // a worker that went away comes back as a new one
};

#ifdef KILN_PLANTED
inline thread_local PlantedBug planted_bug = PlantedBug::kNone;
inline bool planted(PlantedBug bug) {
  return planted_bug == bug;
}
#else
constexpr bool planted(PlantedBug) {
  return false;
}
#endif

}  // namespace kiln
