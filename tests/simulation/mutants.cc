#include "tests/simulation/mutants.h"

namespace kiln::simulation {
namespace {

NamedMutant in_core(const char* name, Mutation mutant) {
  return {name, {WorldMutation::kNone, mutant}};
}

NamedMutant in_world(const char* name, WorldMutation mutant) {
  return {name, {mutant, Mutation::kNone}};
}

NamedMutant in_pool(const char* name, WorldMutation mutant) {
  return {name, {mutant, Mutation::kNone}, Cast::kPool};
}

}  // namespace

const std::vector<NamedMutant>& all_mutants() {
  static const std::vector<NamedMutant> mutants = {
      in_core("IgnoreEpoch", Mutation::kIgnoreEpoch),
      in_core("TakeResultsTwice", Mutation::kTakeResultsTwice),
      in_core("AckAtOnce", Mutation::kAckAtOnce),
      in_core("KeepDuplicate", Mutation::kKeepDuplicate),
      in_core("HedgeToSelf", Mutation::kHedgeToSelf),
      in_core("RetryTerminal", Mutation::kRetryTerminal),
      in_core("RetryForever", Mutation::kRetryForever),
      in_core("FirstComeFirstServed", Mutation::kFirstComeFirstServed),
      in_core("StarveWarmUp", Mutation::kStarveWarmUp),
      in_core("NoBounds", Mutation::kNoBounds),
      in_core("LeaseToDraining", Mutation::kLeaseToDraining),
      in_core("TrustQuarantined", Mutation::kTrustQuarantined),
      in_core("ForgetToDrain", Mutation::kForgetToDrain),
      in_core("LeaseAnywhere", Mutation::kLeaseAnywhere),
      in_core("ForgetJoiner", Mutation::kForgetJoiner),
      in_core("StoreWithoutKernels", Mutation::kStoreWithoutKernels),
      in_core("SlowestWins", Mutation::kSlowestWins),
      in_core("SwapBinaries", Mutation::kSwapBinaries),
      in_core("NoCalibration", Mutation::kNoCalibration),
      in_core("ForgetTooEarly", Mutation::kForgetTooEarly),
      in_core("RepeatMeasured", Mutation::kRepeatMeasured),
      in_core("HoardStale", Mutation::kHoardStale),
      in_core("ForgetCalibration", Mutation::kForgetCalibration),
      in_core("FailWithOneAlternative", Mutation::kFailWithOneAlternative),
      in_core("ChooseTooEarly", Mutation::kChooseTooEarly),
      in_core("SlowestAlternative", Mutation::kSlowestAlternative),
      in_core("CountKernelsOnce", Mutation::kCountKernelsOnce),
      in_core("BoundOnlyOnMiss", Mutation::kBoundOnlyOnMiss),
      in_core("NoTenantBound", Mutation::kNoTenantBound),
      in_core("CallItStored", Mutation::kCallItStored),
      in_core("ForgetQueued", Mutation::kForgetQueued),
      in_core("UncountedDetached", Mutation::kUncountedDetached),
      in_core("QueueWithoutBound", Mutation::kQueueWithoutBound),
      in_core("BlameEveryone", Mutation::kBlameEveryone),
      in_core("RaceAgain", Mutation::kRaceAgain),
      in_core("ForgiveFinals", Mutation::kForgiveFinals),
      in_core("ForgetHealth", Mutation::kForgetHealth),
      in_core("LeaseWithoutTemplate", Mutation::kLeaseWithoutTemplate),
      in_core("ServeStaleToStrict", Mutation::kServeStaleToStrict),
      in_core("NeverReplace", Mutation::kNeverReplace),
      in_core("TrustBuilds", Mutation::kTrustBuilds),
      in_core("EarlyToAll", Mutation::kEarlyToAll),
      in_core("KeepRefuted", Mutation::kKeepRefuted),
      in_core("NeverWithdraw", Mutation::kNeverWithdraw),
      in_core("OldSerial", Mutation::kOldSerial),
      in_core("BuildTwice", Mutation::kBuildTwice),
      in_core("SwapBuilds", Mutation::kSwapBuilds),
      in_core("BuildForNobody", Mutation::kBuildForNobody),
      in_core("ForgetReserves", Mutation::kForgetReserves),
      in_core("WaitForTuned", Mutation::kWaitForTuned),
      in_core("Tier0ToAll", Mutation::kTier0ToAll),
      in_core("HideTier0", Mutation::kHideTier0),
      in_core("ForgetTuned", Mutation::kForgetTuned),
      in_world("AcceptStale", WorldMutation::kAcceptStale),
      in_world("AnswerTwice", WorldMutation::kAnswerTwice),
      in_world("AnswerUnstored", WorldMutation::kAnswerUnstored),
      in_world("AckUnstored", WorldMutation::kAckUnstored),
      in_world("ForgetRecords", WorldMutation::kForgetRecords),
      in_world("ReuseLeaseIds", WorldMutation::kReuseLeaseIds),
      in_world("LoseDeaths", WorldMutation::kLoseDeaths),
      in_world("QueueUnstored", WorldMutation::kQueueUnstored),
      in_world("ForgetTasks", WorldMutation::kForgetTasks),
      in_world("TrustWallClock", WorldMutation::kTrustWallClock),
      in_world("EvictKernels", WorldMutation::kEvictKernels),
      in_world("TrustStale", WorldMutation::kTrustStale),
      in_pool("Unfenced", WorldMutation::kUnfenced),
      in_pool("ReuseEpochs", WorldMutation::kReuseEpochs),
      in_pool("ReuseNames", WorldMutation::kReuseNames),
      in_pool("AwayIsLost", WorldMutation::kAwayIsLost),
  };
  return mutants;
}

std::optional<NamedMutant> mutant_named(std::string_view name) {
  for (const NamedMutant& named : all_mutants())
    if (named.name == name) return named;
  return std::nullopt;
}

}  // namespace kiln::simulation
