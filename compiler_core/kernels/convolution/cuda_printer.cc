#include "compiler_core/kernels/convolution/cuda_convolution.h"

#include <fmt/core.h>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/matmul/cuda_product_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class CudaConvolutionKernel {
 public:
  CudaConvolutionKernel(const Graph& graph, const EpilogueGraph& epilogue,
                        const ConvolutionProblem& problem, const CudaMatmulSchedule& schedule)
      : graph_(graph),
        epilogue_(epilogue),
        schedule_(schedule),
        problem_(problem),
        product_(problem.product),
        positions_(problem.sized.positions),
        is_open_(!problem.sized.is_constant()),
        lanes_(product_lanes(graph, known_factor(positions_))),
        tile_rows_(ceil_div(product_.m, schedule.bm)),
        tile_columns_(ceil_text(positions_, schedule.bn)),
        steps_(ceil_div(product_.k, schedule.bk)),
        batches_(problem.images * problem.groups) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, lanes_, {"mma.cuh", "matmul.cuh", "convolution.cuh"});
    source.text += print_weight() + print_windows() + print_tiling(schedule_, product_.result) +
                   "using WindowLoader = Loader<B, Tiling, Tiling::columns>;\n";
    source.text += cuda_kernel("multiply", graph_, schedule_.threads(),
                               blocks_an_sm(schedule_, product_), print_multiply());
    source.recipe.phases.push_back(
        {"multiply",
         Grid({{batches_ * (tile_rows_ * schedule_.splits), 1}, {positions_, schedule_.bn}}),
         schedule_.threads(), 1, schedule_.shared_bytes(product_)});
    if (schedule_.splits > 1) {
      source.text += cuda_kernel("finish", graph_, kFinishThreads, 1, print_finish());
      source.recipe.phases.push_back(
          {"finish", ceil_div(elements() / lanes_, kFinishThreads), kFinishThreads, 1, 0});
      source.recipe.workspace_bytes =
          schedule_.splits * elements() * size_of(value_dtype(product_.result));
    }
    return source;
  }

 private:
  // What divides a number of positions, whatever it is, as far as vectors go.
  static int64_t known_factor(const Dim& positions) {
    if (positions.is_constant()) return positions.constant();
    int64_t power = 1;
    while (power < 16 && is_multiple(positions, power * 2)) power *= 2;
    return power;
  }
  // REQUIRES: the number of images and their sizes are known, as where sums are split.
  int64_t elements() const { return product_.batches * product_.m * product_.n; }

  // "depth / 9 % 3": coordinates of the depth, channel first.
  std::string depth_coordinates() const {
    const Spatial& size = problem_.window;
    return fmt::format(
        "    [[maybe_unused]] const int c = depth / {}, d = depth / {} % {}, h = depth / {} % {}, "
        "w "
        "= depth % {};\n",
        size[0] * size[1] * size[2], size[1] * size[2], size[0], size[2], size[1], size[2]);
  }

  // A weight whose channels and window are one axis is a matmul's operand; `locate` serves the
  // repair of NaNs.
  std::string print_weight() const {
    const bool flat = problem_.flat_weight;
    const MatmulLines a = matmul_rows_of_a(product_);
    std::string text = fmt::format(
        "struct {} {{\n  using stored = {};\n  static constexpr int lines = {}, depth = {};\n"
        "  static constexpr bool depth_inner = {};\n",
        flat ? "A" : "WeightMap", memory_type(product_.stored), product_.m, product_.k,
        !flat || a.depth_inner);
    if (flat)
      text += fmt::format(
          "  static constexpr index_t line_stride = {}, depth_stride = {};\n"
          "  static constexpr bool async = {};\n  static constexpr int piece = {};\n",
          a.line_stride, a.depth_stride, a.async, a.piece);
    text += "  KILN_INLINE bool locate(int row, int depth, index_t& at) {\n";
    if (flat) {
      text += fmt::format(
          "    at = static_cast<index_t>(row) * {} + static_cast<index_t>(depth) * {};\n",
          a.line_stride, a.depth_stride);
    } else {
      text += depth_coordinates();
      text += fmt::format(
          "    at = static_cast<index_t>(row) * {} + static_cast<index_t>(c) * {} + d * "
          "static_cast<index_t>({}) + h * static_cast<index_t>({}) + w * "
          "static_cast<index_t>({});\n",
          product_.a.row_stride, problem_.w_channel, problem_.w_at[0], problem_.w_at[1],
          problem_.w_at[2]);
    }
    text += "    return true;\n  }\n};\n";
    return flat ? text : text + "using A = Gathered<WeightMap>;\n";
  }

  std::string print_windows() const {
    const ConvolutionProblem& p = problem_;
    const SizedImages& x = p.sized;
    std::string text =
        fmt::format("struct WindowMap {{\n  using stored = {};\n", memory_type(product_.stored));
    // A value knows its sizes by the names that they have in the kernel.
    text += is_open_ ? fmt::format(
                           "  const stored* from;\n  int lines{};\n  static constexpr int depth "
                           "= {};\n",
                           symbols(", "), product_.k)
                     : fmt::format("  static constexpr int lines = {}, depth = {};\n", product_.n,
                                   product_.k);
    text += fmt::format(
        "  static constexpr bool depth_inner = false;\n"
        "  {} bool locate(int position, int depth, index_t& at){} {{\n",
        is_open_ ? "KILN_MEMBER" : "KILN_INLINE", is_open_ ? " const" : "");
    text += depth_coordinates();
    const std::string places[3] = {fmt::format("position / {}", x.out[1] * x.out[2]),
                                   fmt::format("position / {} % {}", x.out[2], x.out[1]),
                                   fmt::format("position % {}", x.out[2])};
    const char* const depth[3] = {"d", "h", "w"};
    std::string at = fmt::format("static_cast<index_t>(c) * {}", x.channel), inside;
    for (size_t i = 0; i < 3; ++i) {
      text += fmt::format("    const int x{} = ({}) * {} + {} * {} - {};\n", i, places[i],
                          p.stride[i], depth[i], p.dilation[i], p.low[i]);
      at += fmt::format(" + static_cast<index_t>(x{}) * {}", i, x.at[i]);
      inside +=
          fmt::format("{}static_cast<unsigned>(x{}) < {}", i == 0 ? "" : " && ", i,
                      x.in[i].is_constant() ? fmt::format("{}u", x.in[i].constant())
                                            : fmt::format("static_cast<unsigned>({})", x.in[i]));
    }
    return text +
           fmt::format("    at = {};\n    return {};\n  }}\n}};\nusing B = Gathered<WindowMap>;\n",
                       at, inside);
  }

  // Each behind `before`: ", s0, s1".
  std::string symbols(std::string_view before) const {
    std::string text;
    for (size_t i = 0; i < graph_.symbols().size(); ++i) text += fmt::format("{}s{}", before, i);
    return text;
  }

  // The image of batch number `batch`, with its sizes.
  std::string print_open_image() const {
    const SizedImages& x = problem_.sized;
    std::string text = fmt::format(
        "  B b;\n  b.from = in{} + ({} + image * {} + group * {});\n"
        "  b.lines = static_cast<int>({});\n",
        product_.b.input, x.offset, x.image, x.group, positions_);
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      text += fmt::format("  b.s{0} = static_cast<int>(s{0});\n", i);
    return text;
  }

  // Pointers `a` and `b` to the weights and the image of batch number `batch`.
  std::string print_operands() const {
    std::string text =
        fmt::format("  [[maybe_unused]] const index_t image = batch / {}, group = batch % {};\n",
                    problem_.groups, problem_.groups);
    for (const auto& [name, operand] : {std::pair{"a", &product_.a}, std::pair{"b", &product_.b}})
      text += is_open_ && operand == &product_.b
                  ? print_open_image()
                  : fmt::format("  const {}* {} = in{} + ({}L + image * {}L + group * {}L);\n",
                                memory_type(product_.stored), name, operand->input, operand->offset,
                                operand->batch_strides[0], operand->batch_strides[1]);
    return text;
  }

  struct EpilogueText {
    std::string once;    // needs `image`, `group`
    std::string vector;  // needs `sums`, `row`, `column`
  };
  EpilogueText print_epilogue() const {
    ExpressionPrinter printer(epilogue_.graph, Dialect::kCuda);
    printer.bind(epilogue_.product, {"acc", Level::kInner});
    const auto scalar = [](const char* name, Level level, const Dim& end) {
      return Index(LoopVar{name, LoopVar::Kind::kScalar, level, 0, end});
    };
    const std::vector<Index> at = {
        scalar("image", Level::kKernel, problem_.images),
        scalar("group", Level::kKernel, problem_.groups) * product_.m +
            scalar("row", Level::kOuter, product_.m),
        LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, positions_, lanes_}};
    printer.store(0, at);
    EpilogueText text;
    text.once = printer.take(Level::kKernel, 2);
    text.vector = "    const AllLanes live{};\n";
    text.vector += fmt::format("    const {} acc = {}(sums);\n", register_type(product_.result),
                               wrapping(product_.result));
    text.vector += printer.take(Level::kOuter, 4);
    text.vector += printer.take(Level::kInner, 4);
    return text;
  }

  std::string print_multiply() const {
    const std::string tiles = positions_.is_constant()
                                  ? std::to_string(tile_rows_ * ceil_div(product_.n, schedule_.bn))
                                  : fmt::format("({} * {})", tile_rows_, tile_columns_);
    const int64_t split_steps = ceil_div(steps_, schedule_.splits);
    const bool splits = schedule_.splits > 1;
    const bool repairs = matmul_core(product_) == MatmulCore::kF32 && !splits;
    const EpilogueText epilogue = print_epilogue();
    std::string text = fmt::format(
        "  const int block = static_cast<int>(block_index());\n"
        "  const int split = {}, batch = block / {} % {};\n"
        "  const TilePlace tile(block % {}, {}, {}, {});\n"
        "  const int row0 = tile.row * Tiling::rows, column0 = tile.column * Tiling::columns;\n",
        splits ? fmt::format("block / {}",
                             tile_rows_ * ceil_div(product_.n, schedule_.bn) * product_.batches)
               : "0",
        tiles, batches_, tiles, tile_rows_, tile_columns_, schedule_.group);
    text += print_operands();
    text += fmt::format(
        "  const int begin = split * {}, end = begin + {} < {} ? begin + {} : {};\n"
        "  multiply_tile<{}, A, B, Tiling>(a, b, row0, column0, begin, end, shared_memory());\n",
        split_steps, split_steps, steps_, split_steps, steps_, sums_type(product_.stored));
    if (!splits) text += epilogue.once;
    text += fmt::format(
        "  _Pragma(\"unroll 2\") for (int i = thread_index(); i < Tiling::rows * Tiling::columns / "
        "LANES; i += {}) {{\n"
        "    const int tile_row = i / (Tiling::columns / LANES);\n"
        "    const int tile_column = i % (Tiling::columns / LANES) * LANES;\n"
        "    const index_t row = row0 + tile_row, column = column0 + tile_column;\n"
        "    if (row >= {} || column >= {}) continue;\n"
        "    const Vec<Value> sums = {};\n",
        schedule_.threads(), product_.m, positions_,
        repairs
            ? "staged_gathered_sums<Tiling, A, B>(shared_memory(), tile_row, tile_column, a, b, "
              "row, column)"
            : "staged_sums<Tiling, Value>(shared_memory(), tile_row, tile_column)");
    text += splits ? fmt::format("    store<LANES>({}, sums, AllLanes{{}});\n",
                                 partial_sums("split", product_))
                   : epilogue.vector;
    return text + "  }\n";
  }

  std::string print_finish() const {
    const EpilogueText epilogue = print_epilogue();
    std::string text = fmt::format(
        "  const index_t i = static_cast<index_t>(block_index()) * {} + thread_index();\n"
        "  if (i >= {}) return;\n"
        "  const index_t batch = i / {}, row = i / {} % {}, column = i % {} * LANES;\n",
        kFinishThreads, elements() / lanes_, product_.m * product_.n / lanes_, product_.n / lanes_,
        product_.m, product_.n / lanes_);
    text += print_operands() + epilogue.once;
    text += add_partial_sums(schedule_.splits, product_);
    if (matmul_core(product_) == MatmulCore::kF32)
      text +=
          "  KILN_EACH_LANE if (sums[l] != sums[l])\n"
          "    sums[l] = gathered_sum<A, B>(a, b, row, column + l);\n";
    return text + epilogue.vector;
  }

  const Graph& graph_;
  const EpilogueGraph& epilogue_;
  const CudaMatmulSchedule schedule_;
  const ConvolutionProblem& problem_;
  const MatmulProblem& product_;
  const Dim positions_;
  const bool is_open_;  // the images' sizes: see convolution.cuh
  const int lanes_;
  const int64_t tile_rows_;
  const std::string tile_columns_;
  const int64_t steps_;
  const Dim batches_;  // matrices: a group of an image each
};

}  // namespace

Result<Source> print_cuda_convolution(const Graph& graph, const CudaConvolutionSchedule& schedule) {
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem& product = problem.product;
  if (product.stored == DType::kBool)
    return fail(Code::kUnsupported, "a convolution of bool on this target");
  if (!fits(schedule, product))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  if (!graph.symbols().empty() && schedule.splits > 1)
    return fail(Code::kUnsupported,
                "CUDA kernels of convolutions of any images are written without splits");
  const Shape space = {problem.images, problem.groups * product.m, problem.sized.positions};
  TRY(const EpilogueGraph epilogue, epilogue_graph(graph, product.product, space));
  return CudaConvolutionKernel(graph, epilogue, problem, schedule).print();
}

}  // namespace kiln
