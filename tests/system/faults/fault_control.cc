#include "tests/system/faults/fault_control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <new>
#include <sstream>

#include "compiler_core/base/check.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

constexpr std::string_view kActions[] = {"kill", "stop", "fail", "short", "torn", "delay"};

}  // namespace

std::string_view name(FaultAction action) {
  return kActions[static_cast<size_t>(action)];
}

FaultControl::FaultControl(const Path& file) : file_(file) {
  const int fd = ::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  CHECK(fd >= 0 && ::ftruncate(fd, sizeof(FaultBoard)) == 0, "the test's own directory");
  void* memory = ::mmap(nullptr, sizeof(FaultBoard), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  ::close(fd);
  CHECK(memory != MAP_FAILED, "the fault board");
  board_ = new (memory) FaultBoard;
}

FaultControl::~FaultControl() {
  ::munmap(board_, sizeof(FaultBoard));
}

std::vector<std::string> FaultControl::environment() const {
  return {"LD_PRELOAD=" +
              (Path(binary("kiln")).parent_path().parent_path() / "tests" / "libkiln_fault_shim.so")
                  .string(),
          std::string(kFaultBoardVariable) + "=" + file_.string()};
}

void FaultControl::arm(const std::vector<Fault>& faults) {
  CHECK(faults.size() <= FaultBoard::kSlots, "the board has room for them");
  disarm();
  for (size_t n = 0; n < FaultBoard::kSlots; ++n) {
    FaultBoard::Slot& slot = board_->slots[n];
    slot.fault = n < faults.size() ? faults[n] : Fault{};
    slot.to_skip = slot.fault.skip;
    slot.to_strike = slot.fault.times;
    slot.struck = 0;
    slot.struck_pid = 0;
  }
  board_->faults = faults.size();
  board_->armed = true;
}

void FaultControl::disarm() {
  board_->armed = false;
}

int64_t FaultControl::struck() const {
  int64_t all = 0;
  for (const FaultBoard::Slot& slot : board_->slots) all += slot.struck;
  return all;
}

std::string describe(const Fault& fault) {
  std::string text = fmt::format("{} {} {}", name(fault.action), fault.after ? "after" : "before",
                                 kFaultPoints[static_cast<size_t>(fault.point)].name);
  if (fault.error != 0) text += fmt::format(" ({})", std::strerror(fault.error));
  if (fault.delay_ms != 0) text += fmt::format(" by {} ms", fault.delay_ms);
  if (fault.times != 1) text += fmt::format(", {} times", fault.times);
  if (fault.skip != 0) text += fmt::format(", after {} passes", fault.skip);
  return text;
}

std::string to_text(const Fault& fault) {
  std::string text = fmt::format("{}:{}:{}", name(fault.action), fault.after ? "after" : "before",
                                 kFaultPoints[static_cast<size_t>(fault.point)].name);
  if (fault.error != 0 || fault.skip != 0 || fault.times != 1 || fault.delay_ms != 0)
    text += fmt::format(":{}:{}:{}:{}", fault.error, fault.skip, fault.times, fault.delay_ms);
  return text;
}

Result<Fault> parse_fault(std::string_view text) {
  std::vector<std::string> words;
  std::istringstream in{std::string(text)};
  for (std::string word; std::getline(in, word, ':');) words.push_back(word);
  if (words.size() != 3 && words.size() != 7)
    return fail(Code::kInvalidArgument,
                "a fault is ACTION:before|after:POINT, or with "
                ":ERRNO:SKIP:TIMES:DELAY_MS");
  Fault fault;
  const auto action = std::ranges::find(kActions, words[0]);
  fault.action = static_cast<FaultAction>(action - std::begin(kActions));
  fault.after = words[1] == "after";
  fault.point = fault_point(words[2]);
  if (action == std::end(kActions) || (!fault.after && words[1] != "before") || fault.point < 0)
    return fail(Code::kInvalidArgument,
                fmt::format("no such fault: {}; docs/faults.md lists the points", text));
  if (words.size() == 7) {
    fault.error = std::atoi(words[3].c_str());
    fault.skip = std::atoi(words[4].c_str());
    fault.times = std::atoi(words[5].c_str());
    fault.delay_ms = std::atoi(words[6].c_str());
  }
  return fault;
}

}  // namespace kiln::testing
