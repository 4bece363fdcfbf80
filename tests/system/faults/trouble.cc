#include "tests/system/faults/trouble.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <iterator>

#include "compiler_core/base/file.h"
#include "tests/system/faults/fault_control.h"

namespace kiln::testing {
namespace {

bool writes(FaultCall call) {
  return call == FaultCall::kMakeDirectory || call == FaultCall::kCreate ||
         call == FaultCall::kWrite || call == FaultCall::kSync || call == FaultCall::kRename;
}

bool on_disk(FaultCall call) {
  return writes(call) || call == FaultCall::kRead;
}

int pick(std::mt19937_64& random, int from, int to) {  // both included
  return from + static_cast<int>(random() % static_cast<uint64_t>(to - from + 1));
}

// A candidate that cost three runners is set aside for good, as it should be: whose connection
// fails more often than that is told so.
bool convicts(std::string_view point) {
  return point.starts_with("runner.") || point.starts_with("worker.runner.");
}

// The coordinator's disk takes nothing for as long as the clients ask: who is answered is told so.
Trouble full_store(std::mt19937_64& random) {
  constexpr std::string_view kPoints[] = {"coordinator.blob.create", "coordinator.blob.write",
                                          "coordinator.blob.sync", "coordinator.log.write",
                                          "coordinator.log.sync"};
  const std::string_view point = kPoints[random() % std::size(kPoints)];
  Fault fault;
  fault.point = fault_point(point);
  fault.action = FaultAction::kFail;
  fault.error = point.ends_with(".sync") ? EIO : ENOSPC;
  fault.times = 50;
  Trouble trouble;
  trouble.faults = {fault};
  return trouble;
}

// Mostly at the first pass: most points are passed only a few times in a round.
Trouble at_any_point(std::mt19937_64& random) {
  const int point = pick(random, 0, static_cast<int>(kFaultPoints.size()) - 1);
  const std::vector<Fault> all = faults_of(point);
  Fault fault = all[random() % all.size()];
  fault.skip = pick(random, 0, 3) == 0 ? pick(random, 1, 12) : 0;
  if (fault.action == FaultAction::kFail && pick(random, 0, 1) == 0)
    fault.times = pick(random, 2, convicts(point_of(fault).name) ? 2 : 50);
  Trouble trouble;
  trouble.for_ms = pick(random, 200, 3000);
  if (fault.action == FaultAction::kDelay) fault.delay_ms = trouble.for_ms;
  trouble.faults = {fault};
  return trouble;
}

bool any_of(const Trouble& trouble, bool (*holds)(const Fault&)) {
  return std::ranges::any_of(trouble.faults, holds);
}

}  // namespace

const FaultPoint& point_of(const Fault& fault) {
  return kFaultPoints[static_cast<size_t>(fault.point)];
}

std::string_view name(Victim victim) {
  constexpr std::string_view kNames[] = {"nobody", "client",      "worker",
                                         "runner", "coordinator", "compiler"};
  return kNames[static_cast<int>(victim)];
}

bool Trouble::is_nothing() const {
  return faults.empty() && killed == Victim::kNobody && stopped == Victim::kNobody &&
         cut == TcpProxy::Mode::kForward && !drops && !rots && fills.empty();
}

bool Trouble::strikes(std::string_view program) const {
  return std::ranges::any_of(
      faults, [&](const Fault& fault) { return point_of(fault).program == program; });
}

bool Trouble::stops_at_a_point() const {
  return any_of(*this, [](const Fault& fault) { return fault.action == FaultAction::kStop; });
}

bool Trouble::restarts(std::string_view program) const {
  return program != "kiln" && std::ranges::any_of(faults, [&](const Fault& fault) {
           return point_of(fault).program == program && point_of(fault).needs_restart;
         });
}

bool Trouble::loses_blobs() const {
  return rots || any_of(*this, [](const Fault& fault) {
           return fault.action == FaultAction::kFail &&
                  point_of(fault).name == "coordinator.blob.read";
         });
}

bool Trouble::makes_a_key(std::string_view program) const {
  return std::ranges::any_of(faults, [&](const Fault& fault) {
    const FaultPoint& point = point_of(fault);
    return point.program == program && !point.name.ends_with(".read") &&
           point.name.find(".signing.") != std::string_view::npos;
  });
}

bool Trouble::meets_the_queue() const {
  return any_of(*this, [](const Fault& fault) {
    return point_of(fault).name.starts_with("coordinator.flights");
  });
}

bool Trouble::hurts_the_store() const {
  if (rots || Path(fills).filename() == "data") return true;
  return any_of(*this, [](const Fault& fault) {
    const FaultPoint& point = point_of(fault);
    const bool stores = point.name.starts_with("coordinator.blob.") ||
                        point.name.starts_with("coordinator.log.") ||
                        point.name.starts_with("coordinator.index.");
    return stores && on_disk(point.call) && fault.action == FaultAction::kFail;
  });
}

std::vector<Fault> faults_of(int point) {
  const FaultCall call = kFaultPoints[static_cast<size_t>(point)].call;
  std::vector<Fault> faults;
  const auto add = [&](FaultAction action, bool after, int error) {
    faults.push_back({point, action, after, error, 0, 0, 1});
  };
  for (const bool after : {false, true}) {
    add(FaultAction::kKill, after, 0);
    add(FaultAction::kStop, after, 0);
  }
  add(FaultAction::kDelay, false, 0);
  if (call == FaultCall::kWrite || call == FaultCall::kSend) {
    add(FaultAction::kTorn, false, 0);
    add(FaultAction::kShort, false, 0);
  }
  if (writes(call)) add(FaultAction::kFail, false, call == FaultCall::kSync ? EIO : ENOSPC);
  if (call == FaultCall::kWrite || call == FaultCall::kRead || call == FaultCall::kCreate)
    add(FaultAction::kFail, false, EIO);
  if (call == FaultCall::kSpawn) add(FaultAction::kFail, false, EAGAIN);
  if (call == FaultCall::kSend || call == FaultCall::kReceive)
    add(FaultAction::kFail, false, ECONNRESET);
  return faults;
}

Trouble draw(std::mt19937_64& random, bool with_proxy) {
  const int kind = pick(random, 0, with_proxy ? 99 : 74);
  if (kind < 46) return at_any_point(random);
  if (kind < 50) return full_store(random);
  Trouble trouble;
  trouble.after_ms = pick(random, 0, 300);
  trouble.for_ms = pick(random, 50, 3500);
  const auto victim = static_cast<Victim>(pick(random, 1, 5));
  if (kind < 62) {
    trouble.killed = victim;
  } else if (kind < 72) {
    trouble.stopped = victim;
  } else if (kind < 75) {
    trouble.rots = true;
  } else if (kind < 82) {
    trouble.drops = true;
  } else {
    trouble.cut = static_cast<TcpProxy::Mode>(pick(random, 1, TcpProxy::kModes - 1));
    trouble.after_ms = pick(random, 0, 1) == 0 ? 0 : trouble.after_ms;
  }
  return trouble;
}

std::string describe(const Trouble& trouble) {
  std::string text;
  const auto add = [&text](std::string_view more) {
    if (!text.empty()) text += "; ";
    text += more;
  };
  for (const char* program : {"kiln-coordinator", "kiln-worker"})
    if (trouble.restarts(program)) add(fmt::format("{} is restarted", program));
  for (const Fault& fault : trouble.faults) add(describe(fault));
  if (trouble.killed != Victim::kNobody)
    add(fmt::format("kill the {} after {} ms", name(trouble.killed), trouble.after_ms));
  if (trouble.stopped != Victim::kNobody)
    add(fmt::format("stop the {} after {} ms for {} ms", name(trouble.stopped), trouble.after_ms,
                    trouble.for_ms));
  if (trouble.cut != TcpProxy::Mode::kForward)
    add(fmt::format("wire: {} after {} ms for {} ms", TcpProxy::name(trouble.cut), trouble.after_ms,
                    trouble.for_ms));
  if (trouble.drops) add(fmt::format("wire: dropped after {} ms", trouble.after_ms));
  if (trouble.rots) add("a bit of a blob flips");
  if (!trouble.fills.empty()) add("no space left in " + trouble.fills);
  return text.empty() ? "nothing goes wrong" : text;
}

std::string replay(const Trouble& trouble) {
  std::string text = "soak --rounds 1";
  for (const Fault& fault : trouble.faults) text += " --fault " + to_text(fault);
  if (trouble.killed != Victim::kNobody) text += fmt::format(" --kill {}", name(trouble.killed));
  if (trouble.stopped != Victim::kNobody) text += fmt::format(" --stop {}", name(trouble.stopped));
  if (trouble.cut != TcpProxy::Mode::kForward)
    text += fmt::format(" --cut {}", static_cast<int>(trouble.cut));
  if (trouble.drops) text += " --drop";
  if (trouble.rots) text += " --rot";
  if (!trouble.fills.empty()) return "no flags for a full disk";
  return text + fmt::format(" --after-ms {} --for-ms {}", trouble.after_ms, trouble.for_ms);
}

}  // namespace kiln::testing
