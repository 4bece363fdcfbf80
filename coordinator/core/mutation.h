// Mutations: places where the core can be made wrong on purpose, so that the simulation proves that
// its checker would notice (docs/simulation.md lists each with a seed that shows it). Only the
// simulation's own build of the core (KILN_MUTATIONS) contains them; in the product mutated() is a
// constant false and the compiler removes every use.
#pragma once

#include <cstdint>

namespace kiln {

enum class Mutation : uint8_t {
  kNone,
  kIgnoreEpoch,             // a result under another epoch of its lease counts
  kTakeResultsTwice,        // a result does not end what its lease waits for
  kAckAtOnce,               // a result is acknowledged before its record is durable
  kKeepDuplicate,           // when one of two leases of a candidate settles it, the other goes on
  kHedgeToSelf,             // a straggler is helped by itself
  kRetryTerminal,           // a terminal failure is tried again
  kRetryForever,            // nothing is ever abandoned
  kFirstComeFirstServed,    // tenants count for nothing
  kStarveWarmUp,            // warm-up has no turn of its own
  kNoBounds,                // no queue has a bound
  kLeaseToDraining,         // a worker that drains gets new work
  kTrustQuarantined,        // so does one whose device fails
  kForgetToDrain,           // the worker gets no order
  kLeaseAnywhere,           // targets are not compared
  kForgetJoiner,            // a client that joins a task is not answered
  kStoreWithoutKernels,     // a program is stored though a kernel of it is not
  kSlowestWins,             // the final is read the wrong way round
  kSwapBinaries,            // a final is run with another candidate's binary
  kNoCalibration,           // times of unequal devices are compared as they are
  kForgetTooEarly,          // a task is forgotten while a plan that may not know of it is made
  kRepeatMeasured,          // measurements from before a crash are repeated
  kHoardStale,              // results of leases that are over are never acknowledged
  kForgetCalibration,       // records are read back without their calibration times
  kFailWithOneAlternative,  // a program fails with a kernel that another partition does not need
  kChooseTooEarly,          // a partition is chosen for good while another one only lacked a worker
  kSlowestAlternative,      // the slowest of the partitions is answered
  kCountKernelsOnce,        // a kernel that a partition launches twice counts once
  kBoundOnlyOnMiss,         // programs that were planned are tuned however many candidates wait
  kNoTenantBound,           // one tenant may take every place
  kCallItStored,            // clients do not learn that only memory has the program
  kForgetQueued,            // a queued program whose task ends early is not begun again
  kUncountedDetached,       // a task that everybody left goes on outside max_detached_running
  kQueueWithoutBound,       // programs are queued beyond max_detached
  kRaceAgain,               // a final that was measured before a crash is measured again
  kBlameEveryone,           // every client is blamed for a bad graph, not only its sender
  kForgiveFinals,           // runners killed in a final do not count
  kForgetHealth,            // a worker that went away comes back as a new one
  kLeaseWithoutTemplate,    // a candidate goes to a worker that does not have its template
  kBelieveAnyBytes,         // who confirms need not have built the same
  kBelieveTimes,            // nor have taken as long
  kConfirmWithOneself,      // an owner confirms its own
  kTrustScreeners,          // a worker whose key may only screen times finals, and makes winners
  kKeepTainted,             // what is taken back goes on where it was begun
  kServeStaleToStrict,      // a stale program is served to a client that refuses it
  kNeverReplace,            // a stale program is served, and nobody tunes its successor
  kTrustBuilds,             // what is built counts as verified
  kEarlyOnOneWord,          // a build is answered though another owner is to confirm it
  kEarlyToAll,              // a program is answered early to who asked for a verified one
  kKeepRefuted,             // a program that was answered early and is wrong is answered on
  kNeverWithdraw,           // nor is it withdrawn
  kOldSerial,               // a program with the next choice has the serial of the one withdrawn
  kWaitForTuned,            // who asked with `now` waits until the program is tuned
  kTier0ToAll,              // who asked without is answered with tier 0
  kHideTier0,               // tier 0 is answered as if it were what was asked for
  kForgetTuned,             // tier 0 is answered, and nobody tunes the program
  kBuildTwice,              // a build that takes long is given to a second worker too
  kSwapBuilds,              // what was built is tried as another candidate
  kBuildForNobody,          // builders build for a target that nobody measures for
  kForgetReserves,          // what was kept in reserve is not tried where nothing else is right
};

#ifdef KILN_MUTATIONS
inline thread_local Mutation active_mutation = Mutation::kNone;
inline bool mutated(Mutation mutation) {
  return active_mutation == mutation;
}
#else
constexpr bool mutated(Mutation) {
  return false;
}
#endif

}  // namespace kiln
