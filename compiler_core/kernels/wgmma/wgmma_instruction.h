// print_wgmma: the device function that starts one wgmma, whose registers are counted in its text. Pure.
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/base/dtype.h"

namespace kiln {

// name(d, a, b, adds) of a warpgroup: d [64, columns] (+)= a [64, 16] * b [16, columns]. Operands lie
// in shared memory as the copy engine has them: contiguous by depth (`inner`), or in 64 lines by 64
// of depth after one another.
struct WgmmaInstruction {
  std::string_view name;
  DType stored;
  int columns = 64;  // a multiple of 8, at most 256
  bool a_inner = true, b_inner = true;
  bool a_in_registers = false;  // four words of halves, as mma.m16n8k16 has them
};

std::string print_wgmma(const WgmmaInstruction& instruction);

}  // namespace kiln
