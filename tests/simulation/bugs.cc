#include "tests/simulation/bugs.h"

namespace kiln::simulation {
namespace {

NamedBug in_core(const char* name, PlantedBug bug) {
  return {name, {Planted::kNone, bug}};
}

NamedBug in_world(const char* name, Planted bug) {
  return {name, {bug, PlantedBug::kNone}};
}

}  // namespace

const std::vector<NamedBug>& all_bugs() {
  static const std::vector<NamedBug> bugs = {
      in_core("IgnoreEpoch", PlantedBug::kIgnoreEpoch),
      in_core("TakeResultsTwice", PlantedBug::kTakeResultsTwice),
      in_core("AckAtOnce", PlantedBug::kAckAtOnce),
      in_core("KeepTwin", PlantedBug::kKeepTwin),
      in_core("HedgeToSelf", PlantedBug::kHedgeToSelf),
      in_core("RetryTerminal", PlantedBug::kRetryTerminal),
      in_core("RetryForever", PlantedBug::kRetryForever),
      in_core("FirstComeFirstServed", PlantedBug::kFirstComeFirstServed),
      in_core("StarveWarmUp", PlantedBug::kStarveWarmUp),
      in_core("NoBounds", PlantedBug::kNoBounds),
      in_core("LeaseToDraining", PlantedBug::kLeaseToDraining),
      in_core("TrustQuarantined", PlantedBug::kTrustQuarantined),
      in_core("ForgetToDrain", PlantedBug::kForgetToDrain),
      in_core("LeaseAnywhere", PlantedBug::kLeaseAnywhere),
      in_core("ForgetJoiner", PlantedBug::kForgetJoiner),
      in_core("StoreWithoutKernels", PlantedBug::kStoreWithoutKernels),
      in_core("SlowestWins", PlantedBug::kSlowestWins),
      in_core("SwapBinaries", PlantedBug::kSwapBinaries),
      in_core("NoCalibration", PlantedBug::kNoCalibration),
      in_core("ForgetTooEarly", PlantedBug::kForgetTooEarly),
      in_core("RepeatMeasured", PlantedBug::kRepeatMeasured),
      in_core("HoardStale", PlantedBug::kHoardStale),
      in_core("ForgetSentinel", PlantedBug::kForgetSentinel),
      in_core("FailWithOneWay", PlantedBug::kFailWithOneWay),
      in_core("ChooseTooEarly", PlantedBug::kChooseTooEarly),
      in_core("SlowestWay", PlantedBug::kSlowestWay),
      in_core("CountKernelsOnce", PlantedBug::kCountKernelsOnce),
      in_core("BoundOnlyOnMiss", PlantedBug::kBoundOnlyOnMiss),
      in_core("NoShareBound", PlantedBug::kNoShareBound),
      in_core("CallItStored", PlantedBug::kCallItStored),
      in_core("ForgetQueued", PlantedBug::kForgetQueued),
      in_core("UncountedDetached", PlantedBug::kUncountedDetached),
      in_core("QueueWithoutBound", PlantedBug::kQueueWithoutBound),
      in_core("BlameEveryone", PlantedBug::kBlameEveryone),
      in_core("RaceAgain", PlantedBug::kRaceAgain),
      in_core("ForgiveFinals", PlantedBug::kForgiveFinals),
      in_core("ForgetHealth", PlantedBug::kForgetHealth),
      in_world("AcceptStale", Planted::kAcceptStale),
      in_world("AnswerTwice", Planted::kAnswerTwice),
      in_world("AnswerUnstored", Planted::kAnswerUnstored),
      in_world("AckUnstored", Planted::kAckUnstored),
      in_world("ForgetRecords", Planted::kForgetRecords),
      in_world("ReuseLeaseIds", Planted::kReuseLeaseIds),
      in_world("LoseDeaths", Planted::kLoseDeaths),
      in_world("QueueUnstored", Planted::kQueueUnstored),
      in_world("ForgetFlights", Planted::kForgetFlights),
      in_world("TrustWallClock", Planted::kTrustWallClock),
      in_world("EvictKernels", Planted::kEvictKernels),
  };
  return bugs;
}

std::optional<Bug> bug_named(std::string_view name) {
  for (const NamedBug& named : all_bugs())
    if (named.name == name) return named.bug;
  return std::nullopt;
}

}  // namespace kiln::simulation
