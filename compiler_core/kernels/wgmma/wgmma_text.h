// The text that kernels on wgmma share: the device function that starts one wgmma, and what tensor
// maps have in common.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/base/dtype.h"
#include "compiler_core/ir/graph.h"
#include "compiler_core/program/artifact.h"

namespace kiln {

// The device function name(d, a, b, adds) of a warpgroup, whose registers are counted in its text:
// d [64, columns] (+)= a [64, depth] * b [depth, columns], where the depth is 32 bytes of either. d is
// of f32, or of i32 where operands are integers. Operands lie in shared memory as the copy engine has
// them: contiguous by depth (`inner`), or, of halves alone, in 64 lines by 64 of depth after one
// another.
struct WgmmaInstruction {
  std::string_view name;
  DType a, b;        // both halves of one type, both 8-bit floats or both 8-bit integers
  int columns = 64;  // a multiple of 8 (of integers, beyond 32, of 16), at most 256
  bool a_inner = true, b_inner = true;
  bool a_in_registers = false;  // four words of halves, as mma.m16n8k16 has them
};

std::string print_wgmma(const WgmmaInstruction& instruction);

// An axis of a tensor that is read one by one, of `stride` elements of the map's dtype. Without a
// stride all are the same, and the map has no such axis.
void add_batch_axis(TensorMap& map, const Dim& size, const Dim& stride);
// Completes a map with its axes, as wgmma reads its boxes: dense, swizzled by their width.
void finish_map(TensorMap& map);

}  // namespace kiln
