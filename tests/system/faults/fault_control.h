// FaultControl: the tests' end of the fault board. Makes the file, arms one fault at a time, says
// what was passed and struck. One thread.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/base/file.h"
#include "tests/system/faults/fault_board.h"

namespace kiln::testing {

class FaultControl {
 public:
  // Makes `file`, with nothing armed.
  explicit FaultControl(const Path& file);
  ~FaultControl();
  FaultControl(const FaultControl&) = delete;
  FaultControl& operator=(const FaultControl&) = delete;

  // What the programs that are to be hurt need in their environment.
  std::vector<std::string> environment() const;

  void arm(const Fault& fault);
  void disarm();
  int64_t struck() const { return board_->struck; }  // of the fault that was armed last
  pid_t struck_pid() const { return board_->struck_pid; }
  uint64_t passed(int point) const { return board_->passed[point]; }

 private:
  const Path file_;
  FaultBoard* board_;
};

// "kill before coordinator.blob.sync, pass 3": for people.
std::string describe(const Fault& fault);

}  // namespace kiln::testing
