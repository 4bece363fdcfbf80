#include "compiler_core/kernels/matmul/joined_problem.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {

JoinedProblem JoinedProblem::of(const Graph& workload) {
  const JoinedProducts joined = *find_joined_products(workload);
  const Node& first = workload.node(joined.first_operand);
  JoinedProblem problem;
  problem.products = static_cast<int>(joined.outputs[0].products.size());
  problem.all.stored = first.dtype;
  problem.rows = first.shape[0];
  problem.all.m = size_at_hints(workload, problem.rows);
  problem.all.k = first.shape[1].constant();
  problem.all.rms_norm = find_rms_norm(workload, joined.first_operand);
  problem.all.a = *constant_operand(SizedMatmulOperand::of(
      workload, problem.all.rms_norm ? problem.all.rms_norm->rows : joined.first_operand));
  for (const JoinedOutput& output : joined.outputs) {
    Part part{output, {}, workload.node(output.output).shape[1].constant()};
    for (const NodeId product : output.products)
      part.b.push_back(MatmulOperand::of(workload, workload.node(product).operands[1]));
    problem.all.n += part.n * problem.products;
    problem.parts.push_back(std::move(part));
  }
  problem.all.b = problem.parts[0].b[0];
  problem.all.product = joined.outputs[0].products[0];
  return problem;
}

int64_t JoinedProblem::tiles_before(size_t part, int64_t columns) const {
  int64_t tiles = 0;
  for (size_t i = 0; i < part; ++i) tiles += ceil_div(parts[i].n, width(columns));
  return tiles;
}

std::set<int> JoinedProblem::second_operands() const {
  std::set<int> inputs;
  for (const Part& part : parts)
    for (const MatmulOperand& operand : part.b) inputs.insert(operand.input);
  return inputs;
}

std::string JoinedProblem::first_tile(std::string_view part, int64_t columns) const {
  std::vector<std::string> tiles;
  for (size_t i = 0; i < parts.size(); ++i)
    tiles.push_back(std::to_string(tiles_before(i, columns)));
  return by_part(part, tiles);
}

std::string JoinedProblem::part_of(std::string_view tile, int64_t columns) const {
  std::string text;
  for (size_t i = 0; i + 1 < parts.size(); ++i)
    text += fmt::format("{} < {} ? {} : ", tile, tiles_before(i + 1, columns), i);
  return text + std::to_string(parts.size() - 1);
}

std::string JoinedProblem::by_part(std::string_view part,
                                   const std::vector<std::string>& values) const {
  if (std::ranges::all_of(values, [&](const auto& value) { return value == values[0]; }))
    return values[0];
  std::string text;
  for (size_t i = 0; i + 1 < values.size(); ++i)
    text += fmt::format("{} == {} ? {} : ", part, i, values[i]);
  return text + values.back();
}

}  // namespace kiln
