// Column reductions whose rows are cut into pieces. Each piece streams through its rows and adds
// them to a row of partial results in the workspace; the next phase combines the pieces in a fixed
// order into the result, which later phases read as any other operand.
#include <fmt/core.h>

#include "compiler_core/kernels/column_reduction/cpu_column_reduction.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Partial results of this many columns stay in the first-level cache while the rows stream by.
constexpr int64_t kStrip = 4096;
constexpr int64_t kCombineColumns = 1024;  // columns a block combines

class SplitColumns {
 public:
  explicit SplitColumns(const Columns& columns) : columns_(columns) {
    pieces_ = columns.schedule.split;
    if (columns.rows.is_constant()) {
      const int64_t rows = columns.rows.constant(), piece = (rows + pieces_ - 1) / pieces_;
      pieces_ = (rows + piece - 1) / piece;
      piece_ = std::to_string(piece);
      filled_ = std::to_string(pieces_);
    }
    for (NodeId id = 0; id < columns.graph.size(); ++id) {
      if (traits(node(id).op).kind != OpKind::kReduce) continue;
      partials_[id] = allocate(pieces_, id);
      results_[id] = allocate(1, id);
    }
  }

  Source print() {
    source_.text = preamble(columns_.graph, columns_.schedule.lanes);
    source_.recipe = argument_recipe(columns_.graph);
    for (size_t p = 0; p < columns_.passes.passes.size(); ++p) {
      const ReductionPasses::Pass& pass = columns_.passes.passes[p];
      if (!pass.empty()) print_stream(p);
      if (!pass.reduces.empty()) print_combine(p);
    }
    source_.recipe.workspace_bytes = workspace_bytes_;
    return source_;
  }

 private:
  const Node& node(NodeId id) const { return columns_.graph.node(id); }

  // Room in the workspace for `copies` results of a reduction: the C text of a pointer to it.
  std::string allocate(int64_t copies, NodeId id) {
    const std::string_view type = memory_type(node(id).dtype);
    std::string pointer = fmt::format("reinterpret_cast<{}*>(static_cast<char*>(workspace) + {})",
                                      type, workspace_bytes_);
    const Dim elements = columns_.groups * columns_.columns * copies;
    // Sizes with symbols keep the next results aligned to their elements, whatever these are.
    workspace_bytes_ =
        workspace_bytes_ +
        (elements.is_constant() ? round_up(elements * size_of(node(id).dtype), 64) : elements * 8);
    return pointer;
  }

  // Rows of a number known at run time make pieces of a length known then; the last may be empty,
  // and leave their partial results unwritten.
  std::string piece_text() const {
    if (columns_.rows.is_constant()) return "";
    return fmt::format(
        "  const int64_t {0} = larger({1}, 1);\n"
        "  [[maybe_unused]] const int64_t {2} = ({3} + {0} - 1) / {0};\n",
        piece_, ceil_text(columns_.rows, pieces_), filled_, columns_.rows);
  }

  bool is_reduced(size_t axis) const {
    return static_cast<int>(axis) >= columns_.passes.space.reduced_begin &&
           static_cast<int>(axis) < columns_.passes.space.reduced_end;
  }

  // Reductions that are known before loop p are operands in memory.
  void bind_results(ExpressionPrinter& printer, size_t p) const {
    for (size_t q = 0; q < p; ++q)
      for (NodeId id : columns_.passes.passes[q].reduces)
        printer.bind_buffer(id, results_.at(id), contiguous_strides(node(id).shape));
  }

  std::vector<Index> indices(bool reduced_too) const {
    std::vector<Index> at;
    const size_t rank = columns_.sizes.size();
    for (size_t k = 0; k + 1 < rank; ++k)
      if (reduced_too || !is_reduced(k))
        at.push_back(LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar,
                             is_reduced(k) ? Level::kInner : Level::kOuter, 0, columns_.sizes[k]});
    at.push_back(LoopVar{"j", LoopVar::Kind::kVector, Level::kInner, 0, columns_.sizes.back()});
    return at;
  }

  // Loop p over each piece: a block is one piece of one group.
  void print_stream(size_t p) {
    const ReductionPasses::Pass& pass = columns_.passes.passes[p];
    ExpressionPrinter printer(columns_.graph);
    bind_results(printer, p);
    const std::vector<Index> at = indices(true);
    for (NodeId id : pass.reduces) {
      const Register x = printer.value(node(id).operands[0], at);
      printer.emit(Level::kInner, fmt::format("acc{0} = {1}::combine(acc{0}, {2});", id,
                                              combiner(node(id).op), x.name));
    }
    for (int output : pass.outputs) printer.store(output, at);
    const std::string inner = printer.take(Level::kInner, 12);
    const std::string outer = printer.take(Level::kOuter, 4);

    std::string body = printer.take(Level::kKernel, 2) + piece_text();
    body += "  for (int64_t block = begin; block < end; ++block) {\n";
    body += fmt::format(
        "    const int64_t group = block / {0};\n"
        "    const int64_t row_begin = block % {0} * {1};\n"
        "    const int64_t row_end = smaller(row_begin + {1}, {2});\n",
        pieces_, piece_, columns_.rows);
    body += columns_.coordinates("group", columns_.group_axes, 4) + outer;
    for (NodeId id : pass.reduces)
      body += fmt::format("    {}* partial{} = {} + block * {};\n", memory_type(node(id).dtype), id,
                          partials_.at(id), columns_.columns);
    body += fmt::format(
        "    for (int64_t strip = 0; strip < {0}; strip += {1}) {{\n"
        "      const int64_t strip_end = smaller(strip + {1}, {0});\n",
        columns_.columns, kStrip);
    body += "      const auto rows = [&](int64_t row, auto count, bool first) KILN_LAMBDA {\n" +
            rows_text(pass, inner) + "      };\n";
    const int unroll = columns_.schedule.unroll;
    body += fmt::format(
        "      int64_t row = row_begin;\n"
        "      for (; row + {0} <= row_end; row += {0}) rows(row, Rows<{0}>{{}}, row == "
        "row_begin);\n"
        "      for (; row < row_end; ++row) rows(row, Rows<1>{{}}, row == row_begin);\n",
        unroll);
    body += "    }\n  }\n";
    add_phase(fmt::format("stream{}", p), body, Grid(columns_.groups * pieces_));
  }

  // The strip's vectors through `count` rows at once, so that a partial result is read and written
  // once for all of them.
  std::string rows_text(const ReductionPasses::Pass& pass, const std::string& inner) const {
    std::string body;
    for (NodeId id : pass.reduces)
      body += fmt::format(
          "          {0} acc{1} = first ? splat<{0}>({2}) : load(partial{1} + j, live);\n",
          register_type(node(id).dtype), id, identity_text(node(id)));
    body +=
        "#pragma GCC unroll 16\n"
        "          for (int u = 0; u < count.value; ++u) {\n";
    body += columns_.coordinates("(row + u)", columns_.reduced_axes, 12) + inner + "          }\n";
    for (NodeId id : pass.reduces)
      body += fmt::format("          store(partial{0} + j, acc{0}, live);\n", id);
    const VectorLoop loop{"j", "strip", "strip_end", 1, body};
    return loop.text(8);
  }

  // The pieces of each result, in order; then, in the last such phase, the reduced outputs.
  void print_combine(size_t p) {
    const ReductionPasses::Pass& pass = columns_.passes.passes[p];
    ExpressionPrinter printer(columns_.graph);
    bind_results(printer, p);
    std::string body;
    for (NodeId id : pass.reduces) {
      const std::string_view type = register_type(node(id).dtype);
      body += fmt::format(
          "        {0} acc{1} = splat<{0}>({2});\n"
          "        for (int64_t piece = 0; piece < {9}; ++piece)\n"
          "          acc{1} = {4}::combine(acc{1}, load({5} + (group * {3} + piece) * {6} + j, "
          "live));\n"
          "        const {0} result{1} = {7};\n"
          "        store({8} + group * {6} + j, result{1}, live);\n",
          type, id, identity_text(node(id)), pieces_, combiner(node(id).op), partials_.at(id),
          columns_.columns, finished(node(id), fmt::format("acc{}", id)), results_.at(id), filled_);
      printer.bind(id, {fmt::format("result{}", id), Level::kInner, false});
    }
    // All reductions are known after the last loop but one: the last takes none.
    if (p + 2 == columns_.passes.passes.size())
      for (int output : columns_.passes.reduced_outputs) printer.store(output, indices(false));
    body += printer.take(Level::kInner, 8);
    std::string text = printer.take(Level::kKernel, 2) + piece_text();
    text += "  for (int64_t block = begin; block < end; ++block) {\n";
    text += fmt::format(
        "    const int64_t group = block / {0};\n"
        "    const int64_t column_begin = block % {0} * {1};\n"
        "    const int64_t column_end = smaller(column_begin + {1}, {2});\n",
        ceil_text(columns_.columns, kCombineColumns), kCombineColumns, columns_.columns);
    text += columns_.coordinates("group", columns_.group_axes, 4);
    text += printer.take(Level::kOuter, 4);
    text += VectorLoop{"j", "column_begin", "column_end", 1, body}.text(4) + "  }\n";
    add_phase(
        fmt::format("combine{}", p), text,
        Grid(std::vector<GridAxis>{{columns_.groups, 1}, {columns_.columns, kCombineColumns}}));
  }

  void add_phase(const std::string& entry, const std::string& body, Grid grid) {
    source_.text += entry_function(entry, columns_.graph, body);
    source_.recipe.phases.push_back({entry, std::move(grid)});
  }

  const Columns& columns_;
  int64_t pieces_ = 1;  // that there is room for
  std::string piece_ = "rows_a_piece",
              filled_ = "pieces";                     // C text: rows of one; those that have any
  std::map<NodeId, std::string> partials_, results_;  // pointers into the workspace
  Dim workspace_bytes_ = 0;
  Source source_;
};

}  // namespace

Source print_split_columns(const Columns& columns) {
  return SplitColumns(columns).print();
}

}  // namespace kiln
