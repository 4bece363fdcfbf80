// JoinedProblem: products of one first operand (the family kProducts) in numbers. A kernel's tiles have
// columns of one output, as many of each of its products, side by side; those of all outputs are
// numbered after one another. A value.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/kernels/matmul/matmul_problem.h"
#include "compiler_core/plan/joined_products.h"

namespace kiln {

struct JoinedProblem {
  struct Part {
    JoinedOutput nodes;
    std::vector<MatmulOperand> b;  // of each product
    int64_t n = 0;                 // columns of the output
  };
  std::vector<Part> parts;  // one an output
  int products = 1;         // of each output
  MatmulProblem all;        // with the columns of all products, and the first one's second operand

  // REQUIRES: `workload` keeps the rules of kProducts.
  static JoinedProblem of(const Graph& workload);

  // Columns of an output in a tile of so many columns.
  int64_t width(int64_t columns) const { return columns / products; }
  // Tiles of so many columns in the parts in front of this one; of all parts, for their number.
  int64_t tiles_before(size_t part, int64_t columns) const;

  // C text: the part that tile number `tile` is of.
  std::string part_of(std::string_view tile, int64_t columns) const;
  // C text: the one of `values` that belongs to number `part`.
  std::string by_part(std::string_view part, const std::vector<std::string>& values) const;
  // The same, of what a function says of each part.
  template <class Value>
  std::string by_part(std::string_view part, Value value) const {
    std::vector<std::string> values;
    for (const Part& each : parts) values.push_back(value(each));
    return by_part(part, values);
  }
  // C text: whether all second operands may be read early, as parameters ready`input` say.
  std::string are_ready() const;
};

}  // namespace kiln
