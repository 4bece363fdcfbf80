#include "tests/system/faults/fault_control.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <new>

#include "compiler_core/base/check.h"
#include "tests/support/process.h"

namespace kiln::testing {

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

void FaultControl::arm(const Fault& fault) {
  disarm();
  board_->fault = fault;
  board_->to_skip = fault.skip;
  board_->to_strike = fault.times;
  board_->struck = 0;
  board_->struck_pid = 0;
  board_->armed = true;
}

void FaultControl::disarm() {
  board_->armed = false;
}

std::string describe(const Fault& fault) {
  constexpr const char* kActions[] = {"kill", "stop", "fail", "short", "torn", "delay"};
  std::string text = fmt::format("{} {} {}", kActions[static_cast<int>(fault.action)],
                                 fault.after ? "after" : "at",
                                 kFaultPoints[static_cast<size_t>(fault.point)].name);
  if (fault.error != 0) text += fmt::format(" ({})", std::strerror(fault.error));
  if (fault.times != 1) text += fmt::format(", {} times", fault.times);
  if (fault.skip != 0) text += fmt::format(", after {} passes", fault.skip);
  return text;
}

}  // namespace kiln::testing
