#include "compiler_core/kernels/row_reduction/cuda_symbolic_rows.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class SymbolicRowKernel {
 public:
  SymbolicRowKernel(const Graph& graph, const CudaRowReductionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        passes_(ReductionPasses::of(graph, ReductionPasses::Keep::kNothing)),
        sizes_(passes_.space.shape),
        batch_rank_(static_cast<size_t>(passes_.space.reduced_begin)),
        printer_(graph, Dialect::kCuda) {
    if (!is_multiple(sizes_.back(), schedule.lanes)) schedule_.lanes = 1;
    for (size_t k = 0; k < sizes_.size(); ++k) {
      const bool batch = k < batch_rank_, inner = k + 1 == sizes_.size();
      Dim& product = batch ? rows_ : elements_;
      product = product * sizes_[k];
      at_.push_back(LoopVar{inner ? "j" : fmt::format("i{}", k),
                            inner ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                            batch ? Level::kOuter : Level::kInner, 0, sizes_[k],
                            inner ? schedule_.lanes : 1});
    }
  }

  Source print() {
    std::string row = "  const index_t row = static_cast<index_t>(block_index());\n";
    row += coordinates("row", 0, batch_rank_, 2);
    for (const ReductionPasses::Pass& pass : passes_.passes) row += loop(pass);
    row += reduced_outputs();
    const std::string body = "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2) + row;
    Source source;
    source.text = cuda_preamble(graph_, schedule_.lanes) +
                  cuda_kernel("kernel", graph_, schedule_.threads, 1, body);
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"kernel", Grid(rows_), schedule_.threads, 1, shared_bytes_}};
    return source;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }

  // Declares the coordinates of axes [begin, end) from the flat index `flat`.
  std::string coordinates(const std::string& flat, size_t begin, size_t end, int indent) const {
    std::string text;
    Dim stride = 1;
    for (size_t k = end; k-- > begin;) {
      text += fmt::format("{:{}}const index_t {} = {}", "", indent,
                          k + 1 == sizes_.size() ? "j" : fmt::format("i{}", k), flat);
      if (!stride.is(1)) text += fmt::format(" / {}", stride);
      if (k > begin) text += fmt::format(" % {}", sizes_[k]);
      text += ";\n";
      stride = stride * sizes_[k];
    }
    return text;
  }

  std::string loop(const ReductionPasses::Pass& pass) {
    if (pass.empty()) return "";
    for (NodeId id : pass.reduces) {
      const Register x = printer_.value(node(id).operands[0], at_);
      printer_.emit(
          Level::kInner,
          fmt::format("acc{0}_0 = where_live(live, {1}::combine(acc{0}_0, {2}), acc{0}_0);", id,
                      combiner(node(id).op), x.name));
    }
    for (int output : pass.outputs) printer_.store(output, at_, schedule_.stream);
    const std::string body = printer_.take(Level::kInner, 4);
    std::string text = printer_.take(Level::kOuter, 2);
    text += ReductionLoop{graph_, pass.reduces}.declare(2);
    text += fmt::format("  for (index_t e = thread_index() * {0}; e < {1}; e += {2}) {{\n",
                        schedule_.lanes, elements_, schedule_.threads * schedule_.lanes);
    text += coordinates("e", batch_rank_, sizes_.size(), 4) + body + "  }\n";
    for (NodeId id : pass.reduces) text += fold(id);
    return text;
  }

  // After its loop a reduction is known to every thread.
  std::string fold(NodeId id) {
    const std::string_view vector = register_type(node(id).dtype), how = combiner(node(id).op);
    const int warps = schedule_.threads / 32;
    const std::string exchange = fmt::format(
        "reinterpret_cast<element<{}>::type*>(shared_memory() + {})", vector, shared_bytes_);
    shared_bytes_ += (warps * 8 + 15) / 16 * 16;
    const std::string folded =
        fmt::format("across_threads<{0}, {1}>(across_lanes<{0}>(acc{2}_0), {3})", how,
                    schedule_.threads, id, exchange);
    printer_.bind(id, {fmt::format("result{}", id), Level::kOuter, true});
    return fmt::format("  const {} result{} = {};\n", vector, id,
                       finished(node(id), fmt::format("splat<{}>({})", vector, folded)));
  }

  std::string reduced_outputs() {
    const std::vector<Index> at(at_.begin(),
                                at_.begin() + static_cast<std::ptrdiff_t>(batch_rank_));
    for (int output : passes_.reduced_outputs) printer_.store_one(output, at);
    const std::string stores = printer_.take(Level::kOuter, 4);
    return stores.empty() ? "" : "  if (thread_index() == 0) {\n" + stores + "  }\n";
  }

  const Graph& graph_;
  CudaRowReductionSchedule schedule_;
  const ReductionPasses passes_;
  const Shape sizes_;
  const size_t batch_rank_;
  ExpressionPrinter printer_;
  std::vector<Index> at_;
  Dim rows_ = 1, elements_ = 1;  // elements of a row
  int shared_bytes_ = 0;
};

}  // namespace

Result<Source> print_cuda_symbolic_rows(const Graph& graph,
                                        const CudaRowReductionSchedule& schedule) {
  if (schedule.threads % 32 != 0 || schedule.threads > 1024)
    return fail(Code::kInvalidArgument, "the threads of a row are whole warps, 32 warps at most");
  return SymbolicRowKernel(graph, schedule).print();
}

}  // namespace kiln
