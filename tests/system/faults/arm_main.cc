// arm_faults BOARD [FAULT...]: makes the fault board, or changes it for the programs that have it open, so
// that these faults (fault_control.h: to_text) strike from now on, and nothing else does. Prints the
// environment of programs that are to be hurt.
#include <fmt/format.h>

#include "tests/system/faults/fault_control.h"

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  std::vector<kiln::testing::Fault> faults;
  for (int i = 2; i < argc; ++i) {
    const auto fault = kiln::testing::parse_fault(argv[i]);
    if (!fault) {
      fmt::print(stderr, "{}\n", fault.error().message);
      return 2;
    }
    faults.push_back(*fault);
  }
  kiln::testing::FaultControl board(argv[1]);
  board.arm(faults);
  for (const std::string& variable : board.environment()) fmt::print("{}\n", variable);
  return 0;
}
