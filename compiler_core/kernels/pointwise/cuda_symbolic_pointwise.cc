#include "compiler_core/kernels/pointwise/cuda_symbolic_pointwise.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// A vector a thread. Vectors stay within rows; where there is one row only, the last may be short.
class SymbolicPointwiseKernel {
 public:
  SymbolicPointwiseKernel(const Graph& graph, const CudaPointwiseSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        printer_(graph, Dialect::kCuda),
        sizes_(graph.node(graph.outputs()[0]).shape) {
    if (!sizes_.empty()) columns_ = sizes_.back();
    if (sizes_.size() > 1 && !is_multiple(columns_, schedule.lanes)) schedule_.lanes = 1;
  }

  Source print() {
    const int lanes = schedule_.lanes;
    const Dim elements = numel(sizes_);
    const std::string stores = print_stores();
    std::string body = "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2);
    body += fmt::format(
        "  const index_t f = (static_cast<index_t>(block_index()) * {} + thread_index()) * {};\n",
        schedule_.threads, lanes);
    if (!is_multiple(elements, lanes)) {
      body += fmt::format("  if (f < {0} && f + {1} > {0}) {{\n", elements, lanes);
      body += fmt::format("    const SomeLanes live{{static_cast<index_t>({} - f)}};\n", elements);
      body += stores + "  }\n";
    }
    body += fmt::format("  if (f + {} <= {}) {{\n{}  }}\n", lanes, elements, stores);
    Source source;
    source.text =
        cuda_preamble(graph_, lanes) + cuda_kernel("kernel", graph_, schedule_.threads, 1, body);
    source.recipe = argument_recipe(graph_);
    const Grid blocks({GridAxis{elements, int64_t{schedule_.threads} * lanes}});
    source.recipe.phases = {{"kernel", blocks, schedule_.threads, 1, 0}};
    return source;
  }

 private:
  std::string print_stores() {
    std::string text;
    const std::vector<Index> at = place(text);
    for (size_t i = 0; i < graph_.outputs().size(); ++i)
      printer_.store(static_cast<int>(i), at, schedule_.stream);
    return text + printer_.take(Level::kInner, 4);
  }

  // Where the vector that begins at element f stands; declares its variables.
  std::vector<Index> place(std::string& text) const {
    std::vector<Index> at(sizes_.size());
    Dim stride = 1;
    for (size_t k = sizes_.size(); k-- > 0;) {
      const bool inner = k + 1 == sizes_.size();
      const std::string name = inner ? "j" : fmt::format("i{}", k);
      text += fmt::format("    const index_t {} = f", name);
      if (!stride.is(1)) text += fmt::format(" / {}", stride);
      if (k > 0) text += fmt::format(" % {}", sizes_[k]);
      text += ";\n";
      stride = stride * sizes_[k];
      at[k] = LoopVar{name,          inner ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                      Level::kInner, 0,
                      sizes_[k],     inner ? schedule_.lanes : 1};
    }
    return at;
  }

  const Graph& graph_;
  CudaPointwiseSchedule schedule_;
  ExpressionPrinter printer_;
  const Shape sizes_;
  Dim columns_ = 1;
};

}  // namespace

Result<Source> print_cuda_symbolic_pointwise(const Graph& graph,
                                             const CudaPointwiseSchedule& schedule) {
  return SymbolicPointwiseKernel(graph, schedule).print();
}

}  // namespace kiln
