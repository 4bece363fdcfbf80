#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

class TiledKernel {
 public:
  TiledKernel(const Graph& graph, const CudaPointwiseSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        printer_(graph, Dialect::kCuda),
        streams_(pointwise_streams(graph)),
        sizes_(constant_sizes(graph.node(graph.outputs()[0]).shape)),
        across_(static_cast<size_t>(streams_.across_axis)),
        vectors_(schedule.tile * schedule.tile / (schedule.lanes * schedule.threads)) {}

  Source print() {
    std::string text = print_block_place();
    text += print_loads();
    text += "  block_barrier();\n";
    std::string places;
    print_stores(places);
    const std::string body = "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2) + text +
                             printer_.take(Level::kOuter, 2) + places +
                             printer_.take(Level::kInner, 2);
    Source source;
    source.text = cuda_preamble(graph_, schedule_.lanes, {"tile.cuh"}) +
                  cuda_kernel("kernel", graph_, schedule_.threads, 1, body);
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"kernel", blocks_, schedule_.threads, 1, shared_bytes_}};
    return source;
  }

 private:
  size_t columns() const { return sizes_.size() - 1; }
  int64_t squares(size_t axis) const {
    return (sizes_[axis] + schedule_.tile - 1) / schedule_.tile;
  }

  // i{k}: the block's place on the axes that are not tiled; row_begin and column_begin: where its
  // square begins on the two that are.
  std::string print_block_place() {
    std::string text = "  const unsigned square = block_index();\n";
    int64_t stride = 1;
    const auto next = [&](const std::string& name, int64_t size, int64_t step) {
      std::string value = "square";
      if (stride > 1) value += fmt::format(" / {}", stride);
      value += fmt::format(" % {}", size);
      if (step > 1) value += fmt::format(" * {}", step);
      text += fmt::format("  const index_t {} = {};\n", name, value);
      stride *= size;
    };
    next("column_begin", squares(columns()), schedule_.tile);
    next("row_begin", squares(across_), schedule_.tile);
    for (size_t k = columns(); k-- > 0;)
      if (k != across_) next(fmt::format("i{}", k), sizes_[k], 1);
    blocks_ = stride;
    return text;
  }

  // row{u} and column{u}: what this thread has of the square, `lanes` neighbours along one of the
  // two. Past the end of the space the last ones are done again: the same bits to the same place.
  std::vector<Index> place(int u, bool lanes_are_rows, const std::string& prefix,
                           std::string& text) const {
    const int per_line = schedule_.tile / schedule_.lanes;
    const std::string number = fmt::format("(thread_index() + {})", u * schedule_.threads);
    const auto variable = [&](size_t axis, bool has_lanes) {
      const bool row = axis == across_;
      const std::string name = fmt::format("{}{}{}", prefix, row ? "row" : "column", u);
      std::string value = fmt::format("{}_begin + {} {} {}", row ? "row" : "column", number,
                                      has_lanes ? "%" : "/", per_line);
      if (has_lanes) value += " * LANES";
      const int64_t last = sizes_[axis] - (has_lanes ? schedule_.lanes : 1);
      if (sizes_[axis] % schedule_.tile != 0) value = fmt::format("smaller({}, {})", value, last);
      text += fmt::format("  const index_t {} = {};\n", name, value);
      return LoopVar{name,          has_lanes ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                     Level::kInner, 0,
                     sizes_[axis],  has_lanes ? schedule_.lanes : 1};
    };
    std::vector<Index> at(sizes_.size());
    for (size_t k = 0; k < sizes_.size(); ++k)
      if (k != across_ && k != columns())
        at[k] = LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar, Level::kOuter, 0, sizes_[k]};
    at[across_] = variable(across_, lanes_are_rows);
    at[columns()] = variable(columns(), !lanes_are_rows);
    return at;
  }

  // Every operand that lies across: read along the rows' axis into registers, all of them, then put
  // into its tile column by column.
  std::string print_loads() {
    std::string places, loads, puts;
    for (int u = 0; u < vectors_; ++u) {
      const std::vector<Index> at = place(u, true, "from_", places);
      for (size_t v = 0; v < streams_.across.size(); ++v) {
        const NodeId view = streams_.across[v];
        const std::string type(memory_type(graph_.node(view).dtype));
        const std::string packed = fmt::format("packed{}_{}", v, u);
        loads += fmt::format("  Packed<{}> {};\n", type, packed);
        printer_.load_packed(view, at, packed, false);
        puts += fmt::format(
            "  put_column<{0}>(tile{1} + (from_row{2} - row_begin) * {0} + from_column{2} - "
            "column_begin, {3});\n",
            pitch(v), v, u, packed);
      }
    }
    std::string tiles;
    for (size_t v = 0; v < streams_.across.size(); ++v) {
      const DType dtype = graph_.node(streams_.across[v]).dtype;
      tiles +=
          fmt::format("  {0}* const tile{1} = reinterpret_cast<{0}*>(shared_memory() + {2});\n",
                      memory_type(dtype), v, shared_bytes_);
      const auto bytes = static_cast<int>(schedule_.tile * pitch(v) * size_of(dtype));
      shared_bytes_ += (bytes + 15) / 16 * 16;
    }
    return tiles + places + loads + printer_.take(Level::kInner, 2) + puts;
  }

  // Rows begin in a word of their own, an odd number of words apart.
  int64_t pitch(size_t v) const {
    return schedule_.tile +
           std::max<int64_t>(1, 4 / size_of(graph_.node(streams_.across[v]).dtype));
  }

  void print_stores(std::string& places) {
    std::vector<std::vector<Index>> at;
    for (int u = 0; u < vectors_; ++u) at.push_back(place(u, false, "", places));
    for (int u = 0; u < vectors_; ++u) {
      for (size_t v = 0; v < streams_.across.size(); ++v) {
        const NodeId view = streams_.across[v];
        const std::string name = printer_.fresh();
        printer_.emit(Level::kInner,
                      fmt::format("const {} {} = take_row(tile{} + (row{} - row_begin) * {} + "
                                  "column{} - column_begin);",
                                  register_type(graph_.node(view).dtype), name, v, u, pitch(v), u));
        printer_.bind(view, {name, Level::kInner});
      }
      for (size_t i = 0; i < graph_.outputs().size(); ++i)
        printer_.store(static_cast<int>(i), at[static_cast<size_t>(u)], schedule_.stream);
    }
  }

  const Graph& graph_;
  const CudaPointwiseSchedule schedule_;
  ExpressionPrinter printer_;
  const PointwiseStreams streams_;
  const std::vector<int64_t> sizes_;
  const size_t across_;  // the rows of the square: the axis along which those operands lie
  const int vectors_;    // a thread
  int64_t blocks_ = 1;
  int shared_bytes_ = 0;
};

}  // namespace

bool can_tile(const Graph& graph, const CudaPointwiseSchedule& schedule) {
  if (schedule.tile == 0) return false;
  const PointwiseStreams streams = pointwise_streams(graph);
  if (streams.across.empty()) return false;
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  return shape[static_cast<size_t>(streams.across_axis)].constant() % schedule.lanes == 0 &&
         shape.back().constant() % schedule.lanes == 0;
}

Result<Source> print_cuda_pointwise_tile(const Graph& graph,
                                         const CudaPointwiseSchedule& schedule) {
  return TiledKernel(graph, schedule).print();
}

}  // namespace kiln
