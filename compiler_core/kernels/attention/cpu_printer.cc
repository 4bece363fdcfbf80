#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/attention/cpu_attention.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class AttentionKernel {
 public:
  AttentionKernel(const Graph& graph, const CpuAttentionSchedule& schedule)
      : graph_(graph), schedule_(schedule), problem_(AttentionProblem::of(graph)) {}

  Source print() const {
    Source source;
    source.text = preamble(graph_, schedule_.lanes) + print_problem() + print_tiling();
    source.text += device_text("transpose.h");
    source.text += device_text("attention.h");
    source.text += print_scores() + print_epilogue() + print_entry();
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"attend_blocks", Grid({GridAxis{problem_.batches},
                                                    GridAxis{problem_.rows, schedule_.queries}})}};
    source.recipe.scratch_bytes = scratch_floats() * 4;
    return source;
  }

 private:
  bool has_symbols() const { return !graph_.symbols().empty(); }
  // "int64_t s0, s1;", or nothing: what members of the kernel's structs read.
  std::string symbols() const {
    std::string text;
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      text += fmt::format("{}s{}", i == 0 ? "  int64_t " : ", ", i);
    return text.empty() ? "" : text + ";\n";
  }
  // ", s0, s1": what they are made of.
  std::string symbol_values() const {
    std::string text;
    for (size_t i = 0; i < graph_.symbols().size(); ++i) text += fmt::format(", s{}", i);
    return text;
  }

  // As Scratch in device/attention.h.
  int64_t scratch_floats() const {
    const int64_t lanes = schedule_.lanes, columns = round_up(problem_.columns, lanes);
    return schedule_.queries * (round_up(problem_.depth, lanes) + lanes) +
           schedule_.keys * (problem_.depth + columns) +
           schedule_.queries * (schedule_.keys + lanes + columns + 3);
  }

  std::string print_operand(std::string_view name, const AttentionOperand& operand) const {
    std::string offset = long_text(operand.offset);
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      if (!operand.batch_strides[axis].is(0))
        offset += fmt::format(" + {} * {}", coordinate_text("batch", problem_.batch, axis),
                              long_text(operand.batch_strides[axis]));
    const std::string begins =
        fmt::format("const stored* {}(void* const* args, int64_t batch)", name);
    return print_size(fmt::format("{}_row", name), operand.row_stride) +
           print_size(fmt::format("{}_column", name), operand.column_stride) +
           fmt::format("  {} {{\n    return static_cast<const stored*>(args[{}]) + ({});\n  }}\n",
                       has_symbols() ? "__attribute__((always_inline)) " + begins + " const"
                                     : "KILN_INLINE " + begins,
                       operand.input, offset);
  }

  static std::string print_size(std::string_view name, const Dim& size) {
    return size.is_constant()
               ? fmt::format("  static constexpr int64_t {} = {};\n", name, size.constant())
               : fmt::format("  int64_t {};\n", name);
  }
  // Gives the problem's open sizes their values.
  std::string set_sizes() const {
    std::string text;
    const auto set = [&](std::string_view name, const Dim& size) {
      if (!size.is_constant()) text += fmt::format("  problem.{} = {};\n", name, size);
    };
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      text += fmt::format("  problem.s{0} = s{0};\n", i);
    set("rows", problem_.rows);
    set("keys", problem_.keys);
    set("reach", problem_.mask.reach.value_or(0));
    set("past", problem_.mask.past.value_or(0));
    set("query_row", problem_.query.row_stride);
    set("query_column", problem_.query.column_stride);
    set("key_row", problem_.key.row_stride);
    set("key_column", problem_.key.column_stride);
    set("value_row", problem_.value.row_stride);
    set("value_column", problem_.value.column_stride);
    return text;
  }

  std::string print_problem() const {
    return fmt::format(
               "struct Problem {{\n  using stored = {};\n"
               "  static constexpr int64_t depth = {}, columns = {};\n"
               "  static constexpr bool has_reach = {}, has_past = {}, has_within = {};\n"
               "  static constexpr bool normalised = {}, guarded = {}, one_tile = {};\n"
               "  static constexpr bool has_log_sums = {};\n",
               memory_type(problem_.stored), problem_.depth, problem_.columns,
               problem_.mask.reach.has_value(), problem_.mask.past.has_value(), has_within(),
               problem_.pattern.normalised, problem_.pattern.guarded, has_one_tile(),
               problem_.outputs.log_sums >= 0) +
           symbols() + print_size("rows", problem_.rows) + print_size("keys", problem_.keys) +
           print_size("reach", problem_.mask.reach.value_or(0)) +
           print_size("past", problem_.mask.past.value_or(0)) +
           print_operand("query", problem_.query) + print_operand("key", problem_.key) +
           print_operand("value", problem_.value) + "};\n";
  }

  std::string print_tiling() const {
    return fmt::format(
        "struct Tiling {{\n  static constexpr int mr = {}, vectors = {};\n"
        "  static constexpr int64_t queries = {}, keys = {};\n}};\n",
        schedule_.mr, schedule_.vectors, schedule_.queries, schedule_.keys);
  }

  bool has_one_tile() const {
    return problem_.keys.is_constant() && problem_.keys.constant() <= schedule_.keys;
  }
  bool has_within() const { return problem_.mask.within != kInvalidNode; }

  // Statements that declare batch0.., indented by 4.
  std::string coordinates() const {
    std::string text;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      text += fmt::format("    [[maybe_unused]] const int64_t batch{} = {};\n", axis,
                          coordinate_text("batch", problem_.batch, axis));
    return text;
  }

  // [batch..., row, column], where columns are `width` keys or elements of a head.
  std::vector<Index> place(const Dim& width) const {
    std::vector<Index> at;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      at.push_back(LoopVar{fmt::format("batch{}", axis), LoopVar::Kind::kScalar, Level::kOuter, 0,
                           problem_.batch[axis]});
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.rows});
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, width});
    return at;
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
    return "struct Scores {\n  void* const* args;\n" + symbols() +
           print_score("operator()", problem_.pattern.scores) +
           print_score("within", has_within() ? problem_.mask.within : problem_.pattern.scores) +
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
    printer.store(problem_.outputs.result, at);
    return fmt::format(
        "struct Epilogue {{\n  void* const* args;\n{}"
        "  template <class Live>\n"
        "  __attribute__((always_inline)) void operator()(vf32 value, [[maybe_unused]] vf32 sum,\n"
        "      [[maybe_unused]] int64_t batch, int64_t row, int64_t column, Live live) const {{\n"
        "{}{}{}  }}\n{}}};\n",
        symbols(), argument_pointers(graph_), coordinates(), statements(printer), print_log_sum());
  }

  std::string print_log_sum() const {
    std::string stores;
    if (problem_.outputs.log_sums >= 0) {
      ExpressionPrinter printer(graph_);
      printer.bind(problem_.pattern.log_sums, {"log_sum", Level::kInner, true});
      std::vector<Index> at = place(problem_.columns);
      at.pop_back();
      const NodeId wanted = graph_.outputs()[static_cast<size_t>(problem_.outputs.log_sums)];
      if (graph_.node(wanted).shape.size() > at.size()) at.emplace_back(0);  // an axis of size 1
      printer.store_one(problem_.outputs.log_sums, at);
      stores = argument_pointers(graph_) + coordinates() + statements(printer);
    }
    return fmt::format(
        "  __attribute__((always_inline)) void store_log_sum([[maybe_unused]] vf32 log_sum,\n"
        "      [[maybe_unused]] int64_t batch, [[maybe_unused]] int64_t row) const {{\n{}  }}\n",
        stores);
  }

  std::string print_entry() const {
    std::string sizes;
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      sizes += fmt::format("  const int64_t s{0} = dims[{0}];\n", i);
    return fmt::format(
        R"(
extern "C" void attend_blocks(void* const* args, [[maybe_unused]] const int64_t* dims,
                              int64_t begin, int64_t end, void*, void* scratch) {{
{1}  Problem problem;
{2}  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {0}, row = block % {0} * Tiling::queries;
    attend(problem, problem.query(args, batch), problem.key(args, batch),
           problem.value(args, batch), batch, row, static_cast<float*>(scratch),
           Scores{{args{3}}}, Epilogue{{args{3}}});
  }}
}}
)",
        ceil_text(problem_.rows, schedule_.queries), sizes, set_sizes(), symbol_values());
  }

  const Graph& graph_;
  const CpuAttentionSchedule schedule_;
  const AttentionProblem problem_;
};

}  // namespace

Result<Source> print_cpu_attention(const Graph& graph, const CpuAttentionSchedule& schedule) {
  return AttentionKernel(graph, schedule).print();
}

}  // namespace kiln
