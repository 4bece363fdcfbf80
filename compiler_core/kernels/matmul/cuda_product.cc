#include "compiler_core/kernels/matmul/cuda_product.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

constexpr int kFinishThreads = 256;  // of the kernel that adds the sums of splits

// The dtype of a sum that becomes a `result`, and its C type.
DType value_dtype(DType result) {
  return is_float(result) || result == DType::kI64 ? result : DType::kI32;
}

std::string_view value_type(DType result) {
  switch (result) {
    case DType::kF32:
      return "float";
    case DType::kF64:
      return "double";
    case DType::kI64:
      return "int64_t";
    default:
      return "int";
  }
}

// Whether a product of f32 has so few steps that MmaShallowF32 is nearer.
bool is_shallow(const Product& types, const Dim& depth) {
  constexpr int64_t kMostDepth = 64;
  return types.stored == DType::kF32 && depth.is_constant() && depth.constant() <= kMostDepth;
}

// The class that adds the products of a tile, of A, B and Tiling.
std::string_view sums_type(const Product& types, const Dim& depth) {
  switch (types.stored) {
    case DType::kBF16:
      return "WarpSums<MmaBf16, A, B, Tiling>";
    case DType::kF16:
      return "WarpSums<MmaF16, A, B, Tiling>";
    case DType::kF32:
      return is_shallow(types, depth) ? "WarpSums<MmaShallowF32, A, B, Tiling>"
                                      : "WarpSums<MmaF32, A, B, Tiling>";
    default:
      return "ThreadSums<Value, A, B, Tiling>";
  }
}

class ProductKernel {
 public:
  ProductKernel(const CudaProduct& product, const Target& target)
      : product_(product),
        schedule_(product.schedule),
        target_(target),
        repairs_(matmul_core(product.types) == MatmulCore::kF32) {}

  Source print() const {
    const CudaProduct& p = product_;
    const int blocks_an_sm = p.blocks_an_sm > 0
                                 ? p.blocks_an_sm
                                 : schedule_.blocks_an_sm(p.types, p.reads, cuda_limits(target_));
    std::vector<std::string_view> device = {"mma.cuh", "matmul.cuh"};
    if (is_shallow(p.types, p.k)) device.insert(device.begin() + 1, "mma_shallow.cuh");
    device.insert(device.end(), p.device.begin(), p.device.end());
    Source source;
    source.recipe = argument_recipe(p.graph);
    source.text = cuda_preamble(p.graph, p.lanes, device) + p.operands +
                  print_tiling(p.types, schedule_) + p.loader;
    Phase phase{"multiply", p.grid, schedule_.threads(), schedule_.cluster,
                p.shared_bytes > 0 ? p.shared_bytes : schedule_.shared_bytes(p.types)};
    std::string more;
    if (!p.early_inputs.empty()) {
      KernelParameters parameters(p.graph);
      for (const int input : p.early_inputs) parameters.add_ready(input);
      more = parameters.text();
      phase.arguments = std::move(parameters).arguments();
    }
    source.text += cuda_kernel(
        "multiply", p.graph, schedule_.threads(), blocks_an_sm, print_multiply(), more,
        p.early_inputs.empty() ? KernelStart::kBehindOthers : KernelStart::kAsTheBodySays);
    source.recipe.phases.push_back(std::move(phase));
    if (!has_second_launch()) return source;
    source.text += cuda_kernel("finish", p.graph, kFinishThreads, 1, print_finish());
    source.recipe.phases.push_back(
        {"finish", ceil_div(elements() / p.lanes, kFinishThreads), kFinishThreads, 1, 0});
    source.recipe.workspace_bytes =
        schedule_.splits * elements() * size_of(value_dtype(p.types.result));
    return source;
  }

 private:
  bool meets_in_cluster() const { return schedule_.cluster > 1; }
  bool has_second_launch() const { return schedule_.splits > 1 && !meets_in_cluster(); }

  // REQUIRES: sizes are constants, as where sums are split.
  int64_t elements() const { return (product_.batches * product_.m * product_.n).constant(); }

  std::string print_multiply() const {
    std::string text = print_place() + product_.pointers + print_steps(product_.k, schedule_);
    text += !product_.multiply.empty()
                ? product_.multiply
                : fmt::format(
                      "  multiply_tile<{}, A, B, Tiling>(a, b, row0{}, column0, begin, end, "
                      "shared_memory());\n",
                      sums_type(product_.types, product_.k), product_.shift);
    return text + (product_.names_sums  ? print_own()
                   : meets_in_cluster() ? print_meeting()
                                        : print_ending());
  }

  // Declares `split` and `batch`, and where the block's tile lies: `row0`, `column0`.
  std::string print_place() const {
    const auto& [m, n] = std::pair(product_.m, product_.n);
    const std::string rows = ceil_text(m, schedule_.bm), columns = ceil_text(n, schedule_.bn);
    const bool known = m.is_constant() && n.is_constant();
    const int64_t all_tiles =
        known ? ceil_div(m.constant(), schedule_.bm) * ceil_div(n.constant(), schedule_.bn) : 0;
    const std::string tiles =
        known ? std::to_string(all_tiles) : fmt::format("({} * {})", rows, columns);
    // Blocks of a cluster are neighbours.
    const std::string block = meets_in_cluster()
                                  ? fmt::format("block_index() / {}", schedule_.splits)
                                  : std::string("block_index()");
    const std::string split = meets_in_cluster() ? std::string("cluster_rank()")
                              : schedule_.splits > 1
                                  ? fmt::format("block / {}", product_.batches * all_tiles)
                                  : std::string("0");
    return fmt::format(
        "  const int block = static_cast<int>({});\n"
        "  const int split = {}, batch = block / {} % {};\n"
        "  const TilePlace tile(block % {}, {}, {}, {});\n"
        "  const int row0 = tile.row * Tiling::rows, column0 = tile.column * Tiling::columns;\n",
        block, split, tiles, product_.batches, tiles, rows, columns, schedule_.group);
  }

  // A loop of the block's threads over the vectors of its tile that lie inside the product.
  std::string print_loop(const std::string& first, int threads) const {
    return fmt::format(
        "  _Pragma(\"unroll 2\") for (int i = {}; i < Tiling::rows * Tiling::columns / "
        "LANES; i += {}) {{\n"
        "    const int tile_row = i / (Tiling::columns / LANES);\n"
        "    const int tile_column = i % (Tiling::columns / LANES) * LANES;\n"
        "    const index_t row = row0 + tile_row, column = column0 + tile_column;\n"
        "    if (row >= {} || column >= {}) continue;\n",
        first, threads, product_.m, product_.n);
  }

  // What becomes of the staged sums: results, or a part of the workspace.
  std::string print_ending() const {
    const bool splits = has_second_launch();
    std::string text = splits ? std::string() : product_.epilogue.once;
    text += print_loop("thread_index()", schedule_.threads());
    text += fmt::format(
        "    const Vec<Value> sums = {};\n",
        repairs_ && !splits
            ? fmt::format("{}<Tiling, A, B>(shared_memory(), tile_row, tile_column, a, b, row{}, "
                          "column)",
                          product_.repaired_sums, product_.shift)
            : "staged_sums<Tiling, Value>(shared_memory(), tile_row, tile_column)");
    text += splits
                ? fmt::format("    store<LANES>({}, sums, AllLanes{{}});\n", partial_sums("split"))
                : product_.epilogue.vector;
    return text + "  }\n";
  }

  // The vectors of the tile that are this block's, whose sums have been brought.
  std::string print_own() const {
    return product_.epilogue.once +
           print_loop(fmt::format("thread_index() * {} + split", schedule_.splits),
                      schedule_.splits * schedule_.threads()) +
           fmt::format("    const Vec<Value> sums = tile_sums(i / {}, 0);\n", schedule_.splits) +
           product_.epilogue.vector + "  }\n";
  }

  // The blocks of a cluster divide the vectors of their tile, and add up what all have staged.
  std::string print_meeting() const {
    std::string text = "  cluster_barrier();\n" + product_.epilogue.once;
    text += print_loop(fmt::format("split * {} + thread_index()", schedule_.threads()),
                       schedule_.splits * schedule_.threads());
    text += fmt::format(
        "    Vec<Value> sums = sums_of_block<Tiling, Value>(shared_memory(), 0, tile_row, "
        "tile_column);\n"
        "    _Pragma(\"unroll\") for (int rank = 1; rank < {}; ++rank)\n"
        "      sums = sums + sums_of_block<Tiling, Value>(shared_memory(), rank, tile_row, "
        "tile_column);\n",
        schedule_.splits);
    // Nobody ends while others read what it has staged.
    return text + print_repairs() + product_.epilogue.vector + "  }\n  cluster_barrier();\n";
  }

  // Does sums of infinities again, in f32.
  std::string print_repairs() const {
    if (!repairs_) return "";
    return fmt::format(
        "    KILN_EACH_LANE if (sums[l] != sums[l])\n"
        "      sums[l] = {}<A, B>(a, b, row, column + l);\n",
        product_.plain_sum);
  }

  // Where LANES sums of split `split` of `batch`, `row` and `column` lie in the workspace.
  std::string partial_sums(std::string_view split) const {
    return fmt::format(
        "reinterpret_cast<Value*>(workspace) + (({} * {}L + batch) * {}L + row) * {}L + column",
        split, product_.batches, product_.m, product_.n);
  }

  std::string print_finish() const {
    const int64_t m = product_.m.constant(), vectors = product_.n.constant() / product_.lanes;
    std::string text = fmt::format(
        "  const index_t i = static_cast<index_t>(block_index()) * {} + thread_index();\n"
        "  if (i >= {}) return;\n"
        "  const index_t batch = i / {}, row = i / {} % {}, column = i % {} * LANES;\n",
        kFinishThreads, elements() / product_.lanes, m * vectors, vectors, m, vectors);
    text += product_.pointers + product_.epilogue.once;
    text += fmt::format(
        "  Vec<Value> sums = load<LANES>({}, AllLanes{{}});\n"
        "  _Pragma(\"unroll 4\") for (int split = 1; split < {}; ++split)\n"
        "    sums = sums + load<LANES>({}, AllLanes{{}});\n",
        partial_sums("0"), schedule_.splits, partial_sums("split"));
    return text + print_repairs() + product_.epilogue.vector;
  }

  const CudaProduct& product_;
  const CudaMatmulSchedule& schedule_;
  const Target& target_;
  const bool repairs_;
};

// Binds products to vectors of their sums, scaled where a norm scales rows. `at`: of their elements.
class BoundSums {
 public:
  BoundSums(ExpressionPrinter& printer, const std::vector<Index>& at, const RmsNorm* rms_norm)
      : printer_(printer) {
    if (rms_norm == nullptr) return;
    text_ =
        "    const vf32 squares = splat<vf32>(squares_of_row<Tiling>(shared_memory(), "
        "tile_row));\n";
    printer_.bind(rms_norm->squares, {"squares", Level::kOuter, true});
    scale_ = printer_.value(rms_norm->scale, at).name;
  }
  // To the vector `acc` of the sums `sums`, which are a `result`.
  void bind(NodeId product, const std::string& acc, std::string_view sums, DType result) {
    const std::string own = scale_.empty() ? acc : "unscaled_" + acc;
    text_ += fmt::format("    const {} {} = {}({});\n", register_type(result), own,
                         wrapping(result), sums);
    if (!scale_.empty())
      printer_.emit(Level::kInner, fmt::format("const vf32 {} = {} * {};", acc, own, scale_));
    printer_.bind(product, {acc, Level::kInner});
  }
  // Declares what the products are bound to.
  const std::string& text() const { return text_; }

 private:
  ExpressionPrinter& printer_;
  std::string scale_, text_;
};

// `sums`: text of BoundSums.
EpilogueText ended_epilogue(ExpressionPrinter& printer, const Graph& graph, int position,
                            const std::vector<Index>& at, std::string once, const std::string& sums,
                            bool returns) {
  if (returns) {
    const NodeId output = graph.outputs()[static_cast<size_t>(position)];
    const std::string value = printer.value(output, at).name;
    printer.emit(Level::kInner, fmt::format("return pack<{}>({}).word[0];",
                                            memory_type(graph.node(output).dtype), value));
  } else {
    printer.store(position, at);
  }
  once += printer.take(Level::kKernel, 2);
  std::string vector = "    const AllLanes live{};\n" + sums;
  vector += printer.take(Level::kOuter, 4);
  vector += printer.take(Level::kInner, 4);
  return {std::move(once), std::move(vector)};
}

}  // namespace

std::string print_tiling(const Product& types, const CudaMatmulSchedule& schedule) {
  return fmt::format(
      "using Value = {};\n"
      "struct Tiling {{\n"
      "  static constexpr int rows = {}, columns = {}, depth = {}, stages = {};\n"
      "  static constexpr int warp_rows = {}, warp_columns = {};\n}};\n",
      value_type(types.result), schedule.bm, schedule.bn, schedule.bk, schedule.stages,
      schedule.warps_m, schedule.warps_n);
}

std::string print_steps(const Dim& depth, const CudaMatmulSchedule& schedule) {
  if (!depth.is_constant())
    return fmt::format("  const int begin = 0, end = static_cast<int>({});\n",
                       ceil_text(depth, schedule.bk));
  const int64_t steps = ceil_div(depth.constant(), schedule.bk);
  const int64_t split_steps = ceil_div(steps, schedule.splits);
  return fmt::format("  const int begin = split * {}, end = begin + {} < {} ? begin + {} : {};\n",
                     split_steps, split_steps, steps, split_steps, steps);
}

NodeId find_addend(const Graph& graph, const std::function<bool(const MatmulOperand&)>& suits) {
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  const auto is_input = [&](NodeId id) { return graph.node(id).op == Op::kInput; };
  NodeId found = kInvalidNode;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const bool is_read = is_input(id) || (node.op == Op::kView && is_input(node.operands[0]));
    if (!is_read || !is_16_bit_float(node.dtype) || node.shape != shape) continue;
    const bool in_place = std::ranges::all_of(graph.nodes(), [&](const Node& user) {
      return is_elementwise(user.op) || user.op == Op::kView ||
             std::ranges::find(user.operands, id) == user.operands.end();
    });
    if (!in_place) continue;
    const auto operand = constant_operand(SizedMatmulOperand::of(graph, id));
    if (operand && suits(*operand)) found = id;
  }
  return found;
}

EpilogueText product_epilogue(const Graph& graph, NodeId product, DType result,
                              const std::vector<Index>& at, std::string once,
                              const EpilogueEnds& ends) {
  ExpressionPrinter printer(graph, Dialect::kCuda);
  BoundSums sums(printer, at, ends.rms_norm);
  sums.bind(product, "acc", "sums", result);
  if (ends.addend != kInvalidNode) printer.bind_packed(ends.addend, "addend");
  for (size_t i = 0; i < ends.terms.size(); ++i)
    printer.bind(ends.terms[i], {fmt::format("terms.term[{}]", i), Level::kInner});
  return ended_epilogue(printer, graph, 0, at, std::move(once), sums.text(), ends.returns);
}

EpilogueText joined_epilogue(const Graph& graph, int position, const std::vector<NodeId>& products,
                             int lanes, const EpilogueEnds& ends) {
  ExpressionPrinter printer(graph, Dialect::kCuda);
  const Shape& shape = graph.node(products[0]).shape;
  const std::vector<Index> at = {
      LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, shape[0]},
      LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, shape[1], lanes}};
  BoundSums sums(printer, at, ends.rms_norm);
  for (size_t i = 0; i < products.size(); ++i)
    sums.bind(products[i], fmt::format("acc{}", i), fmt::format("sums{}", i),
              graph.node(products[i]).dtype);
  return ended_epilogue(printer, graph, position, at, "", sums.text(), ends.returns);
}

EpilogueText matmul_epilogue(const Graph& graph, const SizedMatmul& problem, int lanes,
                             const EpilogueEnds& ends) {
  std::vector<NamedAxis> axes;
  std::vector<Index> at;
  for (size_t axis = 0; axis < problem.batch.size(); ++axis) {
    axes.push_back({fmt::format("batch{}", axis), problem.batch[axis]});
    at.push_back(
        LoopVar{axes.back().name, LoopVar::Kind::kScalar, Level::kKernel, 0, problem.batch[axis]});
  }
  at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem.m});
  at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, problem.n, lanes});
  return product_epilogue(graph, problem.product, problem.result, at,
                          declare_coordinates("index_t", "batch", axes, 2), ends);
}

int product_lanes(const Graph& graph, const Dim& columns) {
  const DType out = graph.node(graph.outputs()[0]).dtype;
  return static_cast<int>(known_divisor(columns, std::min<int64_t>(8, 16 / size_of(out))));
}

Source print_cuda_product(const CudaProduct& product, const Target& target) {
  return ProductKernel(product, target).print();
}

}  // namespace kiln
