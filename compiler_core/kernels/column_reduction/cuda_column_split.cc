// Column reductions whose rows are cut into pieces. A block streams through one piece of a strip
// and leaves a row of partial results in the workspace; the next phase combines the pieces in a
// fixed order into the result, which later phases read as any other operand. A last block to
// arrive could do it in the same launch, but needs a counter that starts at zero: workspaces hold
// anything.
#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/column_reduction/cuda_column_fold.h"
#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"
#include "compiler_core/kernels/column_reduction/cuda_column_walk.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"

namespace kiln {
namespace {

constexpr int64_t kAlignment = 256;       // of what lies in the workspace
constexpr int kPiecesAThread = 8;         // in flight, of the combining phase
constexpr int kCombiningThreads = 256;    // a block, at least where there are pieces for so many
constexpr int64_t kCombiningBlocks = 64;  // enough that no SM's latency stands alone

class SplitPhases {
 public:
  SplitPhases(const Graph& graph, const ReductionPasses& passes, const ColumnExtent& extent,
              const Graph* folded, const CudaColumnReductionSchedule& schedule)
      : graph_(graph),
        passes_(passes),
        extent_(extent),
        schedule_(schedule),
        fold_(folded != nullptr ? column_fold(extent.columns, schedule.lanes) : 1),
        streamed_{folded != nullptr ? *folded : graph,
                  ReductionPasses::of(folded != nullptr ? *folded : graph,
                                      ReductionPasses::Keep::kNothing)},
        piece_(ceil_div(extent.rows / fold_, schedule.split)),
        pieces_(ceil_div(extent.rows / fold_, piece_) * fold_) {
    for (const ReductionPasses::Pass& pass : passes.passes)
      for (NodeId id : pass.reduces) {
        partials_[id] = allocate(pieces_, id);
        if (is_read_later()) results_[id] = allocate(1, id);
      }
  }

  Source print() {
    source_.text = cuda_preamble(graph_, schedule_.lanes, {"columns.cuh"});
    source_.recipe = argument_recipe(graph_);
    for (size_t p = 0; p < passes_.passes.size(); ++p) {
      const ReductionPasses::Pass& pass = passes_.passes[p];
      if (!pass.empty()) print_stream(p);
      if (!pass.reduces.empty()) print_combine(p);
    }
    source_.recipe.workspace_bytes = workspace_bytes_;
    return source_;
  }

 private:
  const Node& node(NodeId id) const { return graph_.node(id); }
  // Whether anything comes after the first reductions are known.
  bool is_read_later() const { return passes_.passes.size() > 2 || !passes_.passes[1].empty(); }

  // Room in the workspace for `copies` results of a reduction: the C text of a pointer to it.
  std::string allocate(int64_t copies, NodeId id) {
    std::string pointer = fmt::format("reinterpret_cast<{}*>(workspace + {})",
                                      memory_type(node(id).dtype), workspace_bytes_);
    const int64_t bytes = copies * extent_.groups * extent_.columns * size_of(node(id).dtype);
    workspace_bytes_ += ceil_div(bytes, kAlignment) * kAlignment;
    return pointer;
  }

  // Reductions that are known before loop p are operands in memory.
  void bind_results(ExpressionPrinter& printer, size_t p) const {
    for (size_t q = 0; q < p; ++q)
      for (NodeId id : passes_.passes[q].reduces)
        printer.bind_buffer(id, results_.at(id), contiguous_strides(node(id).shape));
  }

  // Loop p: a block takes a strip of a piece. Of folded rows it leaves as many partial results.
  void print_stream(size_t p) {
    const Graph& graph = streamed_.graph;
    const ColumnExtent extent(streamed_.passes.space);
    ReductionPasses::Pass pass = passes_.passes[p];
    if (fold_ > 1) pass.reduces.assign(graph.outputs().begin(), graph.outputs().end());
    ColumnWalk walk(graph, extent, schedule_, piece_, schedule_.lanes);
    bind_results(walk.printer(), p);
    const ThreadRows rows{schedule_.across, schedule_.threads(), schedule_.lanes, 1,
                          walk.copy_bytes()};
    std::string loop = walk.pass(pass);
    if (!pass.reduces.empty()) {
      loop += rows.fold(graph, pass.reduces, false) + "  if (down == 0 && mine) {\n";
      for (size_t k = 0; k < pass.reduces.size(); ++k)
        loop +=
            fmt::format("    store<LANES>({} + (group * {} + piece) * {} + j, result{}, live);\n",
                        partials_.at(passes_.passes[p].reduces[k]), pieces_ / fold_, extent.columns,
                        pass.reduces[k]);
      loop += "  }\n";
    }
    add_phase(fmt::format("stream{}", p),
              walk.position() + walk.printer().take(Level::kKernel, 2) + loop,
              {"", walk.blocks(), rows.threads, 1,
               walk.copy_bytes() + rows.shared_bytes(graph, pass.reduces)});
  }

  // How the threads of a combining block stand: narrow strips, so that there are many blocks, and
  // no more pieces a thread than it can have in flight.
  CudaColumnReductionSchedule combining() const {
    CudaColumnReductionSchedule threads;
    threads.lanes = static_cast<int>(schedule_.lanes / fold_);
    threads.down = 1;
    const auto blocks = [&] {
      return extent_.groups * ceil_div(extent_.columns, int64_t{threads.across} * threads.lanes);
    };
    while (threads.across * threads.lanes > 16 && threads.across > 2 && blocks() < kCombiningBlocks)
      threads.across /= 2;
    while (threads.down * kPiecesAThread < pieces_ || threads.threads() < 32 ||
           (threads.down * 2 < pieces_ && threads.threads() < kCombiningThreads))
      threads.down *= 2;
    return threads;
  }

  // Rows that were too few to fold, and the pieces of each result, in order; then, in the last such
  // phase, the reduced outputs.
  void print_combine(size_t p) {
    const ReductionPasses::Pass& pass = passes_.passes[p];
    const CudaColumnReductionSchedule threads = combining();
    const int64_t left_over = extent_.rows % fold_;
    ColumnWalk walk(graph_, extent_, threads, left_over > 0 ? left_over : extent_.rows,
                    schedule_.lanes, left_over > 0 ? extent_.rows - left_over : 0);
    bind_results(walk.printer(), p);
    const ThreadRows rows{threads.across, threads.threads(), threads.lanes};
    std::string body = left_over > 0 ? walk.pass(pass) : declare_accumulators(graph_, pass.reduces);
    for (NodeId id : pass.reduces) {
      body += partial_loads(id, threads);
      walk.printer().bind(id, {fmt::format("result{}", id), Level::kOuter, false});
    }
    body += rows.fold(graph_, pass.reduces, false);
    if (is_read_later())
      for (NodeId id : pass.reduces)
        body += fmt::format(
            "  if (down == 0 && mine) store<{}>({} + group * {} + j, result{}, live);\n",
            threads.lanes, results_.at(id), extent_.columns, id);
    // All reductions are known after the last loop but one: the last takes none.
    if (p + 2 == passes_.passes.size()) body += walk.reduced_outputs(passes_.reduced_outputs);
    add_phase(fmt::format("combine{}", p),
              walk.position() + walk.printer().take(Level::kKernel, 2) + body,
              {"", walk.blocks(), rows.threads, 1, rows.shared_bytes(graph_, pass.reduces)});
  }

  // Into acc{id}: every `down`-th piece from the thread's own row on, all of them loaded at once.
  std::string partial_loads(NodeId id, const CudaColumnReductionSchedule& threads) const {
    const int down = threads.down;
    const auto count = static_cast<int>(ceil_div(pieces_, down));
    std::string text, combines;
    for (int u = 0; u < count; ++u) {
      // The last of them may not exist for all rows of threads.
      const bool guarded = int64_t{u + 1} * down > pieces_;
      const std::string piece = fmt::format("down + {}", u * down);
      text += fmt::format(
          "  const {0} x{1}_{2} = load<{7}>({3} + (group * {4} + {5}) * {6} + j, live);\n",
          register_type(node(id).dtype), id, u, partials_.at(id), pieces_,
          guarded ? fmt::format("smaller({}, {})", piece, pieces_ - 1) : piece, extent_.columns,
          threads.lanes);
      combines += fmt::format("  {0}acc{1} = {2}::combine(acc{1}, x{1}_{3});\n",
                              guarded ? fmt::format("if ({} < {}) ", piece, pieces_) : "", id,
                              combiner(node(id).op), u);
    }
    return text + combines;
  }

  void add_phase(const std::string& entry, const std::string& body, Phase phase) {
    source_.text +=
        cuda_kernel(entry, graph_, phase.threads, column_blocks_an_sm(phase.threads), body) + "\n";
    phase.entry = entry;
    source_.recipe.phases.push_back(phase);
  }

  const Graph& graph_;
  const ReductionPasses& passes_;
  const ColumnExtent& extent_;
  const CudaColumnReductionSchedule schedule_;
  // The graph that blocks stream through: of folded rows, `fold_` of which are one.
  struct Streamed {
    const Graph& graph;
    ReductionPasses passes;
  };
  const int64_t fold_;
  const Streamed streamed_;
  const int64_t piece_, pieces_;  // rows of a piece as they are streamed; partial results
  std::map<NodeId, std::string> partials_, results_;  // pointers into the workspace
  int64_t workspace_bytes_ = 0;
  Source source_;
};

}  // namespace

Source print_cuda_split_columns(const Graph& graph, const ReductionPasses& passes,
                                const ColumnExtent& extent, const Graph* folded,
                                const CudaColumnReductionSchedule& schedule) {
  return SplitPhases(graph, passes, extent, folded, schedule).print();
}

}  // namespace kiln
