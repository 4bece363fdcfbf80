#include "compiler_core/kernels/wgmma/attention_result.h"

#include <fmt/format.h>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/wgmma/operand_maps.h"

namespace kiln {
namespace {

constexpr int64_t kBoxRows = 16;  // a warp's

// Whether results are rounded and nothing else, and fit where queries were.
bool ends_in_boxes(const Graph& graph, const AttentionProblem& problem) {
  const Node& out = graph.node(graph.outputs()[static_cast<size_t>(problem.outputs.result)]);
  return out.op == Op::kCast && out.operands[0] == problem.result && out.dtype == problem.stored &&
         problem.columns % 8 == 0 &&
         round_up(problem.columns, kBoxWidth) <= round_up(problem.depth, kBoxWidth) &&
         problem.result_axes.back() + 1 == static_cast<int>(problem.result_axes.size());
}

}  // namespace

AttentionResult::AttentionResult(const Graph& graph, const AttentionText& text)
    : graph_(graph),
      text_(text),
      problem_(text.problem()),
      boxes_(ends_in_boxes(graph, problem_)) {}

AttentionOperand AttentionResult::output() const {
  const std::vector<Dim> strides = contiguous_strides(graph_.node(problem_.result).shape);
  AttentionOperand out;
  out.input = static_cast<int>(graph_.inputs().size()) + problem_.outputs.result;
  out.column_stride = 1;
  out.batch_strides.resize(problem_.batch.size());
  for (size_t i = 0; i + 1 < strides.size(); ++i) {
    const auto axis = static_cast<size_t>(problem_.result_axes[i]);
    (axis < problem_.batch.size() ? out.batch_strides[axis] : out.row_stride) = strides[i];
  }
  return out;
}

void AttentionResult::add_map(KernelParameters& parameters) const {
  if (boxes_)
    parameters.add_map("out", operand_map(output(), problem_.batch, problem_.stored, problem_.rows,
                                          problem_.columns, kBoxRows));
}

std::string AttentionResult::print_out() const {
  if (!boxes_) return "";
  const auto [rank, at] = print_box_place(output(), problem_.batch);
  return fmt::format(
             "struct Out {{\n"
             "  const CUtensorMap* map;\n"
             "  KILN_MEMBER void store(const char* from, int token, int column,\n"
             "                         [[maybe_unused]] int batch) const {{\n"
             "    const int at[{}] = {{{}}};\n"
             "    store_box(map, from, at);\n  }}\n}};\n",
             rank, at) +
         std::string(device_text("wgmma_attention_boxes.cuh"));
}

std::string AttentionResult::print_end() const {
  return (boxes_ ? "" : text_.print_store()) + (has_log_sums() ? text_.print_store_log_sum() : "") +
         "  const auto end_with = [&](const Rows& rows, [[maybe_unused]] char* query,\n"
         "                            [[maybe_unused]] int row, [[maybe_unused]] int own_row) "
         "{\n" +
         (boxes_ ? "    store_boxes(rows, query, Out{&out_map}, row, batch);\n"
                 : "    rows.store(problem, own_row, store_result);\n") +
         (has_log_sums() ? "    rows.store_log_sums(problem, own_row, store_log_sum);\n" : "") +
         "  };\n";
}

}  // namespace kiln
