#include "tests/system/faults/trouble.h"

#include <fmt/format.h>

#include <cerrno>
#include <iterator>

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
  Trouble trouble;
  trouble.at_point = true;
  trouble.fault.point = fault_point(kPoints[random() % std::size(kPoints)]);
  trouble.fault.action = FaultAction::kFail;
  trouble.fault.error = trouble.point().ends_with(".sync") ? EIO : ENOSPC;
  trouble.fault.times = 50;
  return trouble;
}

// Mostly at the first pass: most points are passed only a few times in a round.
Trouble at_any_point(std::mt19937_64& random) {
  Trouble trouble;
  trouble.at_point = true;
  const int point = pick(random, 0, static_cast<int>(kFaultPoints.size()) - 1);
  const std::vector<Fault> faults = faults_of(point);
  trouble.fault = faults[random() % faults.size()];
  trouble.fault.skip = pick(random, 0, 3) == 0 ? pick(random, 1, 12) : 0;
  if (trouble.fault.action == FaultAction::kFail && pick(random, 0, 1) == 0)
    trouble.fault.times = pick(random, 2, convicts(trouble.point()) ? 2 : 50);
  trouble.restarts = kFaultPoints[static_cast<size_t>(point)].needs_restart;
  trouble.for_ms = pick(random, 200, 3000);
  return trouble;
}

}  // namespace

std::string_view name(Victim victim) {
  constexpr std::string_view kNames[] = {"nobody", "client",      "worker",
                                         "runner", "coordinator", "compiler"};
  return kNames[static_cast<int>(victim)];
}

std::string_view Trouble::point() const {
  return at_point ? kFaultPoints[static_cast<size_t>(fault.point)].name : std::string_view();
}

std::string_view Trouble::program() const {
  return at_point ? kFaultPoints[static_cast<size_t>(fault.point)].program : std::string_view();
}

bool Trouble::loses_blobs() const {
  return rots || (fault.action == FaultAction::kFail && point() == "coordinator.blob.read");
}

bool Trouble::makes_a_key() const {
  return point().find(".signing.") != std::string_view::npos && !point().ends_with(".read");
}

bool Trouble::meets_the_queue() const {
  return point().starts_with("coordinator.flights");
}

bool Trouble::hurts_the_store() const {
  if (rots || !fills.empty()) return true;
  if (!at_point) return false;
  const FaultCall call = kFaultPoints[static_cast<size_t>(fault.point)].call;
  return program() == "kiln-coordinator" && on_disk(call) && fault.action == FaultAction::kFail;
}

std::vector<Fault> faults_of(int point) {
  const FaultCall call = kFaultPoints[static_cast<size_t>(point)].call;
  std::vector<Fault> faults;
  const auto add = [&](FaultAction action, bool after, int error) {
    faults.push_back({point, action, after, error, 0, 0, 1});
  };
  add(FaultAction::kKill, false, 0);
  add(FaultAction::kKill, true, 0);
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
  if (trouble.restarts) add("the coordinator is restarted");
  if (trouble.at_point) add(describe(trouble.fault));
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
  const Fault& fault = trouble.fault;
  std::string text = "soak --rounds 1";
  if (trouble.at_point)
    text += fmt::format(" --point {} --action {} --after {} --error {} --skip {} --times {}",
                        kFaultPoints[static_cast<size_t>(fault.point)].name,
                        static_cast<int>(fault.action), fault.after ? 1 : 0, fault.error,
                        fault.skip, fault.times);
  if (trouble.restarts) text += " --restart";
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
