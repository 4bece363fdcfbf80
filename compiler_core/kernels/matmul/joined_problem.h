// JoinedProblem: products of one first operand (the family kProducts) in numbers. A tile of
// a kernel belongs to one output, and has equally many columns of each of its products, side by side.
// Tiles are numbered output after output. A value.
#pragma once

#include <set>
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
  // With the columns of all products, and the first one's second operand; where the number of rows has
  // symbols, with that at the measured sizes.
  MatmulProblem all;
  Dim rows;

  // REQUIRES: `workload` keeps the rules of kProducts.
  static JoinedProblem of(const Graph& workload);

  // Columns of an output in a tile of so many columns.
  int64_t width(int64_t columns) const { return columns / products; }
  // The number of tiles, of so many columns each, in front of those of `part`. For the number of parts:
  // of all tiles.
  int64_t tiles_before(size_t part, int64_t columns) const;

  // The inputs that second operands are read from.
  std::set<int> second_operands() const;

  // C text: the part that tile number `tile` is of.
  std::string part_of(std::string_view tile, int64_t columns) const;
  // C text: the number of the first tile of part number `part`.
  std::string first_tile(std::string_view part, int64_t columns) const;
  // C text: the one of `values` that belongs to number `part`.
  std::string by_part(std::string_view part, const std::vector<std::string>& values) const;
  // The same, of what a function says of each part.
  template <class Value>
  std::string by_part(std::string_view part, Value value) const {
    std::vector<std::string> values;
    for (const Part& each : parts) values.push_back(value(each));
    return by_part(part, values);
  }
};

}  // namespace kiln
