#include "compiler_core/kernels/pointwise/cpu_pointwise.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "compiler_core/base/check.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"
#include "compiler_core/kernels/pointwise/written_row.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// More pieces of the innermost axis than this cost more code than they save selections.
constexpr size_t kMostCuts = 8;

class PointwiseKernel {
 public:
  // `row`: what is written of the outputs; all of them where there is none.
  PointwiseKernel(const Graph& graph, const CpuPointwiseSchedule& schedule,
                  std::optional<WrittenRow> row = {})
      : graph_(graph), schedule_(schedule), printer_(graph), row_(std::move(row)) {
    sizes_ = row_ ? row_->other_axes() : graph.node(graph.outputs()[0]).shape;
    for (size_t k = 0; k + 1 < sizes_.size(); ++k) rows_ = rows_ * sizes_[k];
    if (!sizes_.empty()) columns_ = sizes_.back();
    // A block is some whole rows, a piece of one, or a tile.
    const int64_t vector = int64_t{schedule.lanes} * schedule.unroll;
    const int64_t most = schedule.columns > 0 ? schedule.columns : schedule.block;
    block_columns_ = at_most(columns_, (most + vector - 1) / vector * vector);
    block_rows_ = at_most(rows_, std::max<int64_t>(schedule.block / block_columns_, 1));
  }

  Source print() {
    const std::vector<Dim> edges = pieces();
    stream_ = schedule_.stream &&
              std::all_of(edges.begin(), edges.end() - 1,
                          [&](const Dim& edge) { return is_multiple(edge, schedule_.lanes); }) &&
              (rows_.is(1) || is_multiple(columns_, schedule_.lanes));
    std::string loops;
    std::string outer = print_row_index();
    for (size_t i = 0; i + 1 < edges.size(); ++i) {
      print_stores({"j"}, edges[i], edges[i + 1]);
      VectorLoop loop{"j", "", "to", schedule_.unroll, printer_.take(Level::kInner, 10)};
      if (schedule_.unroll > 1) {
        print_stores(wide_names(), edges[i], edges[i + 1]);
        loop.wide_body = printer_.take(Level::kInner, 10);
      }
      outer += printer_.take(Level::kOuter, 6);
      loops += print_piece(edges[i], edges[i + 1], std::move(loop));
    }
    std::string body = printer_.take(Level::kKernel, 2);
    body += fmt::format(
        "  for (int64_t block = begin; block < end; ++block) {{\n"
        "    const int64_t row_begin = block / {0} * {1}, row_end = smaller(row_begin + {1}, "
        "{2});\n"
        "    const int64_t column_begin = block % {0} * {3};\n"
        "    const int64_t column_end = smaller(column_begin + {3}, {4});\n"
        "    for (int64_t row = row_begin; row < row_end; ++row) {{\n",
        ceil_text(columns_, block_columns_), block_rows_, rows_, block_columns_, columns_);
    body += outer + loops + "    }\n  }\n";
    if (stream_) body += "  finish_streams();\n";

    Source source;
    source.text = has_random_values(graph_) ? preamble(graph_, schedule_.lanes, {"random.h"})
                                            : preamble(graph_, schedule_.lanes);
    source.text += entry_function("kernel", graph_, body);
    source.recipe = argument_recipe(graph_);
    if (row_) source.recipe.kept = row_->kept_outputs();
    source.recipe.phases = {
        {"kernel", Grid(std::vector<GridAxis>{{rows_, block_rows_}, {columns_, block_columns_}})}};
    return source;
  }

 private:
  // A block takes `step` of `size`, or all of it where that is known to be less.
  static int64_t at_most(const Dim& size, int64_t step) {
    return size.is_constant() ? std::min(size.constant(), step) : step;
  }

  // The edges of the pieces of the innermost axis, within which every Pad and Concat along it is
  // decided: found by printing once and throwing the text away.
  std::vector<Dim> pieces() const {
    PointwiseKernel trial(*this, 0);
    trial.print_stores({"j"}, 0, columns_);
    std::vector<Dim> edges = {0};
    for (int64_t cut : trial.printer_.cuts())
      if (cut > 0 && !is_at_least(cut, columns_)) edges.emplace_back(cut);
    if (edges.size() > kMostCuts) edges.resize(1);
    edges.push_back(columns_);
    return edges;
  }

  PointwiseKernel(const PointwiseKernel& other, int)
      : graph_(other.graph_),
        schedule_(other.schedule_),
        printer_(other.graph_),
        row_(other.row_),
        sizes_(other.sizes_),
        rows_(other.rows_),
        columns_(other.columns_) {}

  // The row's place on each outer axis.
  std::string print_row_index() const {
    const size_t outer = sizes_.empty() ? 0 : sizes_.size() - 1;
    return declare_coordinates("int64_t", "row", named_axes(sizes_, 0, outer), 6);
  }

  std::vector<std::string> wide_names() const {
    std::vector<std::string> names;
    for (int u = 0; u < schedule_.unroll; ++u) names.push_back(fmt::format("j{}", u));
    return names;
  }

  // The outputs at vectors of the innermost axis, with values in [begin, end). Several vectors are
  // computed operation by operation, so that one's latency hides behind the others.
  void print_stores(const std::vector<std::string>& vectors, const Dim& begin, const Dim& end) {
    std::vector<std::vector<Index>> at(vectors.size());
    for (size_t v = 0; v < vectors.size(); ++v) {
      for (size_t k = 0; k + 1 < sizes_.size(); ++k)
        at[v].push_back(
            LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar, Level::kOuter, 0, sizes_[k]});
      if (!sizes_.empty())
        at[v].push_back(LoopVar{vectors[v], LoopVar::Kind::kVector, Level::kInner, begin, end});
      if (row_) row_->put(at[v], printer_);
    }
    if (vectors.size() > 1)
      for (NodeId id = 0; id < graph_.size(); ++id)
        if (in_space_[static_cast<size_t>(id)])
          for (const auto& place : at) printer_.value(id, place);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      for (const auto& place : at) printer_.store(static_cast<int>(i), place, stream_);
  }

  std::string print_piece(const Dim& begin, const Dim& end, VectorLoop loop) const {
    const bool whole = begin.is(0) && end == columns_;
    loop.from = whole ? "column_begin" : fmt::format("larger(column_begin, {})", begin);
    const std::string to = whole ? "column_end" : fmt::format("smaller(column_end, {})", end);
    return "      {\n" + fmt::format("        const int64_t to = {};\n", to) + loop.text(8) +
           "      }\n";
  }

  const Graph& graph_;
  const CpuPointwiseSchedule schedule_;
  ExpressionPrinter printer_;
  const std::vector<bool> in_space_ = nodes_in_space(graph_);
  std::optional<WrittenRow> row_;
  Shape sizes_;  // of what is written
  Dim rows_ = 1, columns_ = 1;
  int64_t block_rows_ = 1, block_columns_ = 1;
  bool stream_ = false;
};

}  // namespace

Result<Source> print_cpu_row_update(const Graph& graph, const CpuRowUpdateSchedule& schedule) {
  return PointwiseKernel(graph, {schedule.lanes, 1, schedule.block}, WrittenRow(graph)).print();
}

Result<Source> print_cpu_pointwise(const Graph& graph, const CpuPointwiseSchedule& schedule) {
  return PointwiseKernel(graph, schedule).print();
}

}  // namespace kiln
