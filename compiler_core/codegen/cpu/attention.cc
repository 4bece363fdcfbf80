#include "compiler_core/codegen/cpu/attention.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/codegen/cpu/kernel_text.h"
#include "compiler_core/codegen/embedded.h"
#include "compiler_core/codegen/expression.h"

namespace kiln {
namespace {

int64_t round_up(int64_t a, int64_t b) {
  return (a + b - 1) / b * b;
}

class AttentionKernel {
 public:
  AttentionKernel(const Graph& graph, const AttentionSchedule& schedule)
      : graph_(graph), schedule_(schedule), problem_(AttentionProblem::of(graph)) {}

  Source print() const {
    Source source;
    source.text = preamble(schedule_.lanes) + print_problem() + print_tiling();
    source.text += template_text("transpose.h");
    source.text += template_text("attention.h");
    source.text += print_scores() + print_epilogue() + print_entry();
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"attend_blocks", problem_.batches * row_blocks()}};
    source.recipe.scratch_bytes = scratch_floats() * 4;
    return source;
  }

 private:
  int64_t row_blocks() const { return (problem_.rows + schedule_.queries - 1) / schedule_.queries; }

  // As Scratch in templates/cpu/attention.h.
  int64_t scratch_floats() const {
    const int64_t lanes = schedule_.lanes, columns = round_up(problem_.columns, lanes);
    return schedule_.queries * (round_up(problem_.depth, lanes) + lanes) +
           schedule_.keys * (problem_.depth + columns) +
           schedule_.queries * (schedule_.keys + lanes + columns + 3);
  }

  // Coordinate `axis` of the number `batch`.
  std::string batch_coordinate(size_t axis) const {
    int64_t inner = 1;
    for (size_t i = axis + 1; i < problem_.batch.size(); ++i) inner *= problem_.batch[i];
    const std::string text = inner == 1 ? "batch" : fmt::format("batch / {}", inner);
    return axis == 0 ? text : fmt::format("{} % {}", text, problem_.batch[axis]);
  }

  std::string print_operand(std::string_view name, const AttentionOperand& operand) const {
    std::string offset = fmt::format("{}L", operand.offset);
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      if (operand.batch_strides[axis] != 0)
        offset += fmt::format(" + {} * {}L", batch_coordinate(axis), operand.batch_strides[axis]);
    return fmt::format(
        "  static constexpr int64_t {0}_row = {1}, {0}_column = {2};\n"
        "  KILN_INLINE const stored* {0}(void* const* args, int64_t batch) {{\n"
        "    return static_cast<const stored*>(args[{3}]) + ({4});\n  }}\n",
        name, operand.row_stride, operand.column_stride, operand.input, offset);
  }

  std::string print_problem() const {
    return fmt::format(
               "struct Problem {{\n  using stored = {};\n"
               "  static constexpr int64_t rows = {}, keys = {}, depth = {}, columns = {};\n"
               "  static constexpr bool has_reach = {}, has_within = {};\n"
               "  static constexpr int64_t reach = {};\n"
               "  static constexpr bool normalised = {}, guarded = {};\n",
               memory_type(problem_.stored), problem_.rows, problem_.keys, problem_.depth,
               problem_.columns, problem_.reach.has_value(), has_within(),
               problem_.reach.value_or(0), problem_.pattern.normalised, problem_.pattern.guarded) +
           print_operand("query", problem_.query) + print_operand("key", problem_.key) +
           print_operand("value", problem_.value) + "};\n";
  }

  std::string print_tiling() const {
    return fmt::format(
        "struct Tiling {{\n  static constexpr int mr = {}, vectors = {};\n"
        "  static constexpr int64_t queries = {}, keys = {};\n}};\n",
        schedule_.mr, schedule_.vectors, schedule_.queries, schedule_.keys);
  }

  bool has_within() const { return problem_.scores_within != kInvalidNode; }

  // Statements that declare batch0.., indented by 4.
  std::string coordinates() const {
    std::string text;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      text += fmt::format("    [[maybe_unused]] const int64_t batch{} = {};\n", axis,
                          batch_coordinate(axis));
    return text;
  }

  // [batch..., row, column], where columns are `width` keys or elements of a head.
  std::vector<Index> place(int64_t width) const {
    std::vector<Index> at;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      at.push_back(LoopVar{fmt::format("batch{}", axis), LoopVar::Kind::kScalar, Level::kOuter, 0,
                           problem_.batch[axis]});
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.rows});
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, width});
    return at;
  }

  static std::string statements(ExpressionPrinter& printer) {
    const std::string kernel = printer.take(Level::kKernel, 4);
    const std::string outer = printer.take(Level::kOuter, 4);
    return kernel + outer + printer.take(Level::kInner, 4);
  }

  std::string print_score(std::string_view name, NodeId scores) const {
    ExpressionPrinter printer(graph_);
    printer.bind(problem_.pattern.query_key, {"sums", Level::kInner});
    const std::string result = printer.value(scores, place(problem_.keys)).name;
    return fmt::format(
        "  template <class Live>\n"
        "  __attribute__((always_inline)) vf32 {}(vf32 sums, [[maybe_unused]] int64_t batch,\n"
        "      [[maybe_unused]] int64_t row, [[maybe_unused]] int64_t column,\n"
        "      [[maybe_unused]] Live live) const {{\n{}{}{}    return {};\n  }}\n",
        name, argument_pointers(graph_), coordinates(), statements(printer), result);
  }

  std::string print_scores() const {
    return "struct Scores {\n  void* const* args;\n" +
           print_score("operator()", problem_.pattern.scores) +
           print_score("within", has_within() ? problem_.scores_within : problem_.pattern.scores) +
           "};\n";
  }

  std::string print_epilogue() const {
    ExpressionPrinter printer(graph_);
    printer.bind(problem_.result, {"value", Level::kInner});
    if (problem_.sum_view != kInvalidNode)
      printer.bind(problem_.sum_view, {"sum", Level::kInner, true});
    const std::vector<Index> place_of_product = place(problem_.columns);
    std::vector<Index> at;
    for (int axis : problem_.result_axes) at.push_back(place_of_product[static_cast<size_t>(axis)]);
    printer.store(0, at);
    return fmt::format(
        "struct Epilogue {{\n  void* const* args;\n"
        "  template <class Live>\n"
        "  __attribute__((always_inline)) void operator()(vf32 value, [[maybe_unused]] vf32 sum,\n"
        "      [[maybe_unused]] int64_t batch, int64_t row, int64_t column, Live live) const {{\n"
        "{}{}{}  }}\n}};\n",
        argument_pointers(graph_), coordinates(), statements(printer));
  }

  std::string print_entry() const {
    return fmt::format(
        R"(
extern "C" void attend_blocks(void* const* args, const int64_t*, int64_t begin, int64_t end, void*,
                              void* scratch) {{
  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {0}, row = block % {0} * Tiling::queries;
    attend(Problem::query(args, batch), Problem::key(args, batch), Problem::value(args, batch),
           batch, row, static_cast<float*>(scratch), Scores{{args}}, Epilogue{{args}});
  }}
}}
)",
        row_blocks());
  }

  const Graph& graph_;
  const AttentionSchedule schedule_;
  const AttentionProblem problem_;
};

}  // namespace

Result<Source> lower_attention(const Graph& graph, const AttentionSchedule& schedule) {
  return AttentionKernel(graph, schedule).print();
}

}  // namespace kiln
