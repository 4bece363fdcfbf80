#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"

#include <fmt/core.h>

#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Sums are taken in stretches of so many rows, whose sums are then added: the error grows with the
// length of a stretch and their number, not with their product.
constexpr int kStretch = 64;

class SymbolicColumnKernel {
 public:
  SymbolicColumnKernel(const Graph& graph, int threads)
      : graph_(graph),
        threads_(threads),
        passes_(ReductionPasses::of(graph, ReductionPasses::Keep::kNothing)),
        sizes_(passes_.space.shape),
        printer_(graph, Dialect::kCuda) {
    for (size_t k = 0; k < sizes_.size(); ++k) {
      const bool inner = k + 1 == sizes_.size();
      at_.push_back(LoopVar{name(k), inner ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                            is_reduced(k) ? Level::kInner : Level::kOuter, 0, sizes_[k]});
      (is_reduced(k) ? reduced_axes_ : kept_axes_).push_back(k);
      Dim& product = is_reduced(k) ? rows_ : columns_;
      product = product * sizes_[k];
    }
  }

  Source print() {
    std::string column = coordinates("f", kept_axes_, 2);
    for (const ReductionPasses::Pass& pass : passes_.passes) column += loop(pass);
    column += reduced_outputs();
    std::string body = "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2);
    body += fmt::format(
        "  const index_t f = static_cast<index_t>(block_index()) * {} + thread_index();\n"
        "  if (f >= {}) return;\n",
        threads_, columns_);
    Source source;
    source.text =
        cuda_preamble(graph_, 1) + cuda_kernel("kernel", graph_, threads_, 1, body + column);
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"kernel", Grid({GridAxis{columns_, threads_}}), threads_, 1, 0}};
    return source;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  bool is_reduced(size_t k) const {
    return k >= static_cast<size_t>(passes_.space.reduced_begin) &&
           k < static_cast<size_t>(passes_.space.reduced_end);
  }
  static std::string name(size_t k) { return fmt::format("i{}", k); }

  // Declares the coordinates of `axes` from the number `flat` of an element in them.
  std::string coordinates(const std::string& flat, const std::vector<size_t>& axes,
                          int indent) const {
    std::string text;
    Dim stride = 1;
    for (size_t n = axes.size(); n-- > 0;) {
      text += fmt::format("{:{}}const index_t {} = {}", "", indent, name(axes[n]), flat);
      if (!stride.is(1)) text += fmt::format(" / {}", stride);
      if (n > 0) text += fmt::format(" % {}", sizes_[axes[n]]);
      text += ";\n";
      stride = stride * sizes_[axes[n]];
    }
    return text;
  }

  std::string loop(const ReductionPasses::Pass& pass) {
    if (pass.empty()) return "";
    for (NodeId id : pass.reduces) {
      const Register x = printer_.value(node(id).operands[0], at_);
      printer_.emit(Level::kInner, fmt::format("acc{0}_0 = {1}::combine(acc{0}_0, {2});", id,
                                               combiner(node(id).op), x.name));
    }
    for (int output : pass.outputs) printer_.store(output, at_);
    const std::string body = printer_.take(Level::kInner, 6);
    std::string text = printer_.take(Level::kOuter, 2), meet;
    for (NodeId id : pass.reduces) {
      const std::string_view vector = register_type(node(id).dtype);
      text +=
          fmt::format("  {0} total{1} = splat<{0}>({2});\n", vector, id, identity_text(node(id)));
      meet += fmt::format("    total{0} = {1}::combine(total{0}, acc{0}_0);\n", id,
                          combiner(node(id).op));
    }
    text += fmt::format(
        "  for (index_t from = 0; from < {0}; from += {1}) {{\n"
        "    const index_t to = smaller(from + {1}, {0});\n",
        rows_, kStretch);
    text += ReductionLoop{graph_, pass.reduces}.declare(4);
    text += "    for (index_t e = from; e < to; ++e) {\n" + coordinates("e", reduced_axes_, 6) +
            body + "    }\n" + meet + "  }\n";
    for (NodeId id : pass.reduces) {
      text += fmt::format("  const {} result{} = {};\n", register_type(node(id).dtype), id,
                          finished(node(id), fmt::format("total{}", id)));
      printer_.bind(id, {fmt::format("result{}", id), Level::kOuter, false});
    }
    return text;
  }

  std::string reduced_outputs() {
    std::vector<Index> at;
    for (const size_t k : kept_axes_) at.push_back(at_[k]);
    for (int output : passes_.reduced_outputs) printer_.store(output, at);
    const std::string stores = printer_.take(Level::kInner, 2);
    return printer_.take(Level::kOuter, 2) + stores;
  }

  const Graph& graph_;
  const int threads_;
  const ReductionPasses passes_;
  const Shape sizes_;
  ExpressionPrinter printer_;
  std::vector<Index> at_;
  std::vector<size_t> kept_axes_, reduced_axes_;
  Dim columns_ = 1, rows_ = 1;  // of all matrices; of each
};

}  // namespace

Result<Source> print_cuda_symbolic_columns(const Graph& graph,
                                           const CudaColumnReductionSchedule& schedule) {
  return SymbolicColumnKernel(graph, schedule.threads()).print();
}

}  // namespace kiln
