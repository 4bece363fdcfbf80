#include "compiler_core/kernels/convolution/cuda_convolution.h"

#include <fmt/core.h>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
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
        lanes_(product_lanes(graph, positions_)) {}

  Source print(const Target& target) const {
    const Dim batches = problem_.images * problem_.groups;
    const int64_t tile_rows = ceil_div(product_.m, schedule_.bm);
    const CudaProduct product = {
        .graph = graph_,
        .schedule = schedule_,
        .types = product_,
        .reads = ProductReads::of(product_),
        .batches = batches,
        .m = product_.m,
        .n = positions_,
        .k = product_.k,
        .lanes = lanes_,
        .grid = Grid({{batches * (tile_rows * schedule_.splits), 1}, {positions_, schedule_.bn}}),
        .device = {"convolution.cuh"},
        .operands = print_weight() + print_windows(),
        .loader = "using WindowLoader = Loader<B, Tiling, Tiling::columns>;\n",
        .pointers = print_pointers(),
        .shift = "",
        .repaired_sums = "staged_gathered_sums",
        .plain_sum = "gathered_sum",
        .epilogue = print_epilogue(),
    };
    return print_cuda_product(product, target);
  }

 private:
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
  std::string print_pointers() const {
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

  EpilogueText print_epilogue() const {
    const auto scalar = [](const char* name, Level level, const Dim& end) {
      return Index(LoopVar{name, LoopVar::Kind::kScalar, level, 0, end});
    };
    const std::vector<Index> at = {
        scalar("image", Level::kKernel, problem_.images),
        scalar("group", Level::kKernel, problem_.groups) * product_.m +
            scalar("row", Level::kOuter, product_.m),
        LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, positions_, lanes_}};
    return product_epilogue(epilogue_.graph, epilogue_.product, product_.result, at, "");
  }

  const Graph& graph_;
  const EpilogueGraph& epilogue_;
  const CudaMatmulSchedule schedule_;
  const ConvolutionProblem& problem_;
  const MatmulProblem& product_;
  const Dim positions_;
  const bool is_open_;  // the images' sizes: see convolution.cuh
  const int lanes_;
};

}  // namespace

Result<Source> print_cuda_convolution(const Graph& graph, const CudaConvolutionSchedule& schedule,
                                      const Target& target) {
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem& product = problem.product;
  if (product.stored == DType::kBool)
    return fail(Code::kUnsupported, "a convolution of bool on this target");
  if (!fits(schedule, product))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  TRY_STATUS(check_cluster(schedule, target));
  if (!graph.symbols().empty() && schedule.splits > 1)
    return fail(Code::kUnsupported,
                "CUDA kernels of convolutions of any images are written without splits");
  const Shape space = {problem.images, problem.groups * product.m, problem.sized.positions};
  TRY(const EpilogueGraph epilogue, epilogue_graph(graph, product.product, space));
  return CudaConvolutionKernel(graph, epilogue, problem, schedule).print(target);
}

}  // namespace kiln
