#include "compiler_core/kernels/analysis/repeated_reads.h"

#include <algorithm>
#include <vector>

#include "compiler_core/kernels/analysis/dynamic_candidates.h"

namespace kiln {
namespace {

constexpr double kKeptBytes = 16 << 10;  // of what an SM has read
constexpr double kSectorBytes = 32;      // the least that is fetched

// How many elements of a value are read: at the indices of the kernel's own space, at others, and among
// the latter those that stand alone in their sectors.
struct Reads {
  double here = 0, elsewhere = 0, alone = 0;
};

class Reader {
 public:
  explicit Reader(const Graph& graph) : graph_(graph), reads_(graph.nodes().size()) {}

  int64_t count() {
    for (const NodeId id : graph_.outputs()) of(id).here = elements(id);
    for (NodeId id = graph_.size(); id-- > 0;) pass_on(id);
    double again = 0;
    for (const NodeId id : graph_.inputs()) {
      const Reads& reads = of(id);
      const auto bytes = static_cast<double>(size_of(graph_.node(id).dtype));
      const double own = elements(id) * bytes;
      if (own <= kKeptBytes) continue;
      const double fetched =
          (reads.here + reads.elsewhere) * bytes + reads.alone * (kSectorBytes - bytes);
      again += std::max(fetched - own, 0.0);
    }
    return static_cast<int64_t>(std::min(again, 1e18));
  }

 private:
  Reads& of(NodeId id) { return reads_[static_cast<size_t>(id)]; }
  double size(const Dim& dim) const {
    return static_cast<double>(at_measured_sizes(dim, graph_.symbols()));
  }
  double elements(NodeId id) const { return size(numel(graph_.node(id).shape)); }

  void pass_on(NodeId id) {
    const Node& node = graph_.node(id);
    const Reads reads = of(id);
    const double all = reads.here + reads.elsewhere;
    // Products bring their operands into shared memory.
    if (all == 0 || node.op == Op::kMatmul || node.op == Op::kConvolution) return;
    const double times = all / std::max(elements(id), 1.0);
    for (const NodeId operand : node.operands) {
      Reads& to = of(operand);
      if (is_elementwise(node.op)) {
        // Readers at the same places share one copy of a value.
        to.here = std::max(to.here, reads.here);
        to.elsewhere = std::max(to.elsewhere, reads.elsewhere);
        to.alone = std::max(to.alone, reads.alone);
      } else if (node.op == Op::kView) {
        // A view that is read at several places is read in full at each.
        const Reads once = through(node);
        to.elsewhere += once.elsewhere * times;
        to.alone += std::max(once.alone * times, reads.alone);
      } else if (node.op == Op::kPad || node.op == Op::kConcat) {
        to.elsewhere += std::min(all, std::max(times, 1.0) * elements(operand));
        to.alone += reads.alone;
      } else if (node.op == Op::kGather && operand == node.operands[0]) {
        to.elsewhere += all;
      } else {
        to.here = std::max(to.here, elements(operand));
      }
    }
  }

  // What one pass over a view reads of its operand. Repeats at a short distance are served by what the
  // SM has kept, and are read once.
  Reads through(const Node& view) const {
    const auto& strides = std::get<ViewAttr>(view.attr).strides;
    const auto bytes = static_cast<double>(size_of(view.dtype));
    Reads reads{.elsewhere = 1};
    bool is_innermost = true;
    for (size_t k = strides.size(); k-- > 0;) {
      const double along = size(view.shape[k]);
      if (along == 1) continue;
      if (strides[k].is(0)) {
        if (reads.elsewhere * bytes > kKeptBytes) reads.elsewhere *= along;
        continue;
      }
      if (is_innermost && !strides[k].is(1) && !strides[k].is(-1)) reads.alone = 1;
      is_innermost = false;
      reads.elsewhere *= along;
    }
    if (reads.alone > 0) reads.alone = reads.elsewhere;
    return reads;
  }

  const Graph& graph_;
  std::vector<Reads> reads_;
};

}  // namespace

int64_t bytes_read_again(const Graph& graph) {
  return Reader(graph).count();
}

}  // namespace kiln
