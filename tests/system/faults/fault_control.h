// FaultControl: the tests' end of the fault board. Makes the file, arms faults, says what was
// passed and struck. One thread.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/base/file.h"
#include "compiler_core/base/result.h"
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

  // REQUIRES: at most FaultBoard::kSlots of them, each of another point.
  void arm(const std::vector<Fault>& faults);
  void disarm();
  // Of what was armed last: the n-th fault, and all together.
  int64_t struck(size_t n) const { return board_->slots[n].struck; }
  int64_t struck() const;
  pid_t struck_pid(size_t n) const { return board_->slots[n].struck_pid; }

 private:
  const Path file_;
  FaultBoard* board_;
};

std::string_view name(FaultAction action);
// "kill before coordinator.blob.sync, after 3 passes": for people.
std::string describe(const Fault& fault);
// "kill:after:coordinator.blob.sync", and when they are not 0, 0, 1 and 0:
// ":ERRNO:SKIP:TIMES:DELAY_MS". kInvalidArgument names what is wrong.
std::string to_text(const Fault& fault);
Result<Fault> parse_fault(std::string_view text);

}  // namespace kiln::testing
