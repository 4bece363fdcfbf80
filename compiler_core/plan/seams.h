// Why a plan has the kernels it has: for each value that one kernel stores and others read, what
// kept it from being computed where it is read. Found out after the fact, from the partition.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/plan/partition.h"

namespace kiln {

struct Seam {
  NodeId value = kInvalidNode;  // of the partition's graph
  int writer = 0;               // kernels, by position
  std::vector<int> readers;     // ascending
  std::string reason;           // "read by 2 kernels, and one of them is a matmul"
};

// In the order of the kernels that write the values.
std::vector<Seam> find_seams(const Partition& partition);

}  // namespace kiln
