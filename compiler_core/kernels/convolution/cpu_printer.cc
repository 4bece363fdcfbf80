#include "compiler_core/kernels/convolution/cpu_convolution.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cpu_product.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/epilogue_graph.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class ConvolutionKernel {
 public:
  ConvolutionKernel(const Graph& graph, const EpilogueGraph& epilogue,
                    const ConvolutionProblem& problem, const CpuConvolutionSchedule& schedule)
      : graph_(graph),
        epilogue_(epilogue),
        schedule_(schedule),
        problem_(problem),
        product_(problem.product),
        image_(problem.sized),
        is_open_(!problem.sized.is_constant()) {}

  Source print() const {
    Source source;
    source.text = preamble(graph_, schedule_.lanes) + print_problem() + print_tiling() +
                  print_geometry() + print_source();
    source.text += device_text("matmul.h");
    source.text += device_text("convolution.h");
    source.text += print_images() + print_epilogue();
    source.recipe = argument_recipe(graph_);
    print_entries(source);
    return source;
  }

 private:
  bool is_sized() const { return !graph_.symbols().empty(); }
  Dim batches() const { return problem_.images * problem_.groups; }
  bool copies() const { return schedule_.x_from != XFrom::kInPlace; }
  int64_t row_blocks() const { return ceil_div(product_.m, block_rows()); }
  std::string column_blocks() const { return ceil_text(image_.positions, block_columns()); }
  int64_t block_rows() const {
    return std::min(ceil_div(schedule_.mc, schedule_.mr), ceil_div(product_.m, schedule_.mr)) *
           schedule_.mr;
  }
  // Whole tiles; whole rows of positions when vectors slide along them.
  int64_t block_columns() const {
    if (is_open_) return ceil_div(schedule_.nc, schedule_.nr) * schedule_.nr;
    const int64_t unit = schedule_.slide ? problem_.out[2] : schedule_.nr;
    return std::min(ceil_div(schedule_.nc, unit), ceil_div(product_.n, unit)) * unit;
  }
  int64_t depth() const { return std::min(schedule_.kc, product_.k); }

  template <class Size>
  static std::string list(const std::array<Size, 3>& x) {
    return fmt::format("{{{}, {}, {}}}", x[0], x[1], x[2]);
  }

  // Where batch number `batch` (image * groups + group) of an operand begins.
  std::string batch_offset(const Dim& offset, const Dim& image, const Dim& group) const {
    return fmt::format("{} + batch / {} * {} + batch % {} * {}", long_text(offset), problem_.groups,
                       long_text(image), problem_.groups, long_text(group));
  }
  std::string weight_offset() const {
    const MatmulOperand& a = product_.a;
    return batch_offset(a.offset, a.batch_strides[0], a.batch_strides[1]);
  }
  std::string image_offset() const {
    return batch_offset(image_.offset, image_.image, image_.group);
  }
  // The arguments of Problem::x.
  std::string x_arguments() const { return is_open_ ? "args, dims" : "args"; }

  std::string print_problem() const {
    return fmt::format(
        "struct Problem {{\n  using stored = {0};\n  using real = {1};\n"
        "  static constexpr int64_t m = {2}, n = {3}, k = {4};\n"
        "  static constexpr int64_t a_row = {5}, a_depth = {6}, b_depth = 1, b_column = 1;\n"
        "  KILN_INLINE const stored* a(void* const* args, int64_t batch) {{\n"
        "    return static_cast<const stored*>(args[{7}]) + ({8});\n  }}\n"
        "  KILN_INLINE const stored* x(void* const* args, {11}int64_t batch) {{\n{12}"
        "    return static_cast<const stored*>(args[{9}]) + ({10});\n  }}\n}};\n",
        memory_type(product_.stored), register_type(product_.result), product_.m, product_.n,
        product_.k, product_.a.row_stride, problem_.flat_weight ? product_.a.column_stride : 1,
        product_.a.input, weight_offset(), product_.b.input, image_offset(),
        is_open_ ? "const int64_t* dims, " : "", is_open_ ? symbol_values(graph_) : "");
  }

  std::string print_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int64_t rows = {}, columns = {}, depth = {};\n"
        "  static constexpr int64_t block_rows = {}, block_columns = {};\n"
        "  static constexpr int b_from = 1;\n"
        "  static constexpr bool a_packed = {};\n"
        "  static constexpr int64_t tiles = {};\n"
        "  using weight = {};\n}};\n",
        schedule_.mr, schedule_.nr, depth(), block_rows(), block_columns(), schedule_.a_packed,
        tiles(), schedule_.a_packed ? value_type() : std::string(memory_type(product_.stored)));
  }

  std::string value_type() const {
    return fmt::format("element<{}>::type", register_type(product_.result));
  }

  std::string print_geometry() const {
    std::string text = "struct Geometry {\n";
    const auto array = [&](const char* name, const Spatial& value) {
      text += fmt::format("  static constexpr int64_t {}[3] = {};\n", name, list(value));
    };
    const auto image = [&](const char* name, const SizedSpatial& value) {
      text += is_open_ ? fmt::format("  int64_t {}[3];\n", name)
                       : fmt::format("  static constexpr int64_t {}[3] = {};\n", name, list(value));
    };
    text += fmt::format("  static constexpr int64_t channels = {}, w_channel = {};\n",
                        problem_.channels, problem_.w_channel);
    text += is_open_ ? "  int64_t positions, x_channel;\n"
                     : fmt::format("  static constexpr int64_t positions = {}, x_channel = {};\n",
                                   image_.positions, image_.channel);
    image("in", image_.in);
    image("out", image_.out);
    image("field", problem_.sized_reach());
    image("x_at", image_.at);
    array("window", problem_.window);
    array("stride", problem_.stride);
    array("dilation", problem_.dilation);
    array("low", problem_.low);
    array("w_at", problem_.w_at);
    return text + "};\n";
  }

  // How the windows lie where they are read from.
  Dim source_channel() const { return copies() ? problem_.sized_plane() : image_.channel; }
  SizedSpatial source_at() const {
    const SizedSpatial field = problem_.sized_reach();
    return copies() ? SizedSpatial{field[1] * field[2], field[2], 1} : image_.at;
  }

  std::string print_source() const {
    const std::string text = fmt::format(
        "struct Source {{\n  using stored = {};\n  static constexpr bool padded = {};\n",
        copies() ? value_type() : std::string(memory_type(product_.stored)), copies());
    if (is_open_) return text + "  int64_t channel, at[3];\n};\n";
    return text + fmt::format(
                      "  static constexpr int64_t channel = {};\n"
                      "  static constexpr int64_t at[3] = {};\n}};\n",
                      source_channel(), list(source_at()));
  }

  // The images of a call.
  std::string print_images() const {
    if (!is_open_) return "KILN_INLINE Images images_of(const int64_t*) { return {}; }\n";
    return fmt::format(
        "KILN_INLINE Images images_of(const int64_t* dims) {{\n{}"
        "  return {{{{{}, {}, {}, {}, {}, {}}}, {{{}, {}}}}};\n}}\n",
        symbol_values(graph_), image_.positions, image_.channel, list(image_.in), list(image_.out),
        list(problem_.sized_reach()), list(image_.at), source_channel(), list(source_at()));
  }

  // Takes the sums of one vector of positions to the output.
  std::string print_epilogue() const {
    const auto scalar = [](const char* name, const Dim& end) {
      return LoopVar{name, LoopVar::Kind::kScalar, Level::kOuter, 0, end};
    };
    CpuEpilogue epilogue{
        .workload = graph_,
        .graph = epilogue_.graph,
        .product = epilogue_.product,
        .result = product_.result,
        .at = {scalar("image", problem_.images),
               Index(scalar("group", problem_.groups)) * product_.m + scalar("row", product_.m),
               LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, image_.positions}},
        .before = symbol_values(graph_),
        .behind = fmt::format(
            "    [[maybe_unused]] const int64_t image = batch / {0}, group = batch % {0};\n",
            problem_.groups)};
    if (is_sized()) epilogue.type = "const int64_t*", epilogue.name = "dims";
    return epilogue.text();
  }

  // Elements of what the first phase leaves in the workspace: weights of a group, x of a batch.
  int64_t packed_weight() const {
    return schedule_.a_packed ? ceil_div(product_.m, schedule_.mr) * schedule_.mr * product_.k : 0;
  }
  Dim copied_x() const { return problem_.sized_plane() * problem_.channels; }
  // Vectors of the last rows read past the end of a copy.
  int64_t slack() const { return schedule_.nr * problem_.stride[2]; }

  int64_t weight_pieces() const {
    if (!schedule_.a_packed) return 0;
    const int64_t panels = ceil_div(product_.m, schedule_.mr);
    // As in device/matmul.h: Packing::pieces.
    return problem_.groups *
           (problem_.flat_weight ? ceil_div(panels, 4) * ceil_div(product_.k, 256) : panels);
  }
  Dim field_pieces() const {
    return schedule_.x_from == XFrom::kField ? batches() * problem_.channels : 0;
  }

  void print_entries(Source& source) const {
    const Dim pieces = field_pieces() + weight_pieces();
    if (!pieces.is(0)) {
      source.text += print_pack();
      source.recipe.phases.push_back({"pack", Grid(pieces)});
    }
    source.text += print_multiply();
    source.recipe.phases.push_back(
        {"multiply", Grid({{batches() * row_blocks(), 1}, {image_.positions, block_columns()}})});
    const Dim field = schedule_.x_from == XFrom::kField ? batches() * copied_x() + slack() : Dim(0);
    source.recipe.workspace_bytes =
        (field + problem_.groups * packed_weight()) * sum_bytes(product_.result);
    source.recipe.scratch_bytes =
        (tile_elements() +
         (schedule_.x_from == XFrom::kBlock ? copied_x().constant() + slack() : 0)) *
        sum_bytes(product_.result);
  }

  int64_t tiles() const {
    return depth() == product_.k ? 1
                                 : block_rows() / schedule_.mr * (block_columns() / schedule_.nr);
  }
  // Tiles that wait for more depth, then the slab of windows.
  int64_t tile_elements() const {
    const int64_t tile = schedule_.mr * schedule_.nr;
    return schedule_.slide ? tile : tiles() * tile + depth() * block_columns();
  }

  std::string print_pack() const {
    const std::string pack_weight =
        problem_.flat_weight
            ? "PackA::run(from, piece, panels)"
            : fmt::format(
                  "pack_weight_panel(from + piece * {} * Problem::a_row, "
                  "smaller({} - piece * {}, {}), panels + piece * {} * Problem::k)",
                  schedule_.mr, product_.m, schedule_.mr, schedule_.mr, schedule_.mr);
    return fmt::format(
        R"(
extern "C" void pack(void* const* args, [[maybe_unused]] const int64_t* dims, int64_t begin,
                     int64_t end, void* workspace, void*) {{
{symbols}  [[maybe_unused]] const Images images = images_of(dims);
  Value* const weights = static_cast<Value*>(workspace);
  [[maybe_unused]] Value* const field = weights + {weights};
  for (int64_t i = begin; i < end; ++i) {{
    if (i < {weight_pieces}) {{
      constexpr int64_t pieces = {pieces_a_group};
      const int64_t group = i / pieces, piece = i % pieces;
      const Stored* from = Problem::a(args, group);
      Value* panels = weights + group * {weight};
      {pack_weight};
    }} else {{
      const int64_t channel = i - {weight_pieces}, batch = channel / {channels};
      images.copy_field(Problem::x({x_arguments}, batch) + channel % {channels} * images.x_channel,
                        field + channel * {plane});
    }}
  }}
}}
)",
        fmt::arg("weights", problem_.groups * packed_weight()),
        fmt::arg("weight_pieces", weight_pieces()),
        fmt::arg("pieces_a_group", std::max<int64_t>(1, weight_pieces() / problem_.groups)),
        fmt::arg("weight", packed_weight()), fmt::arg("pack_weight", pack_weight),
        fmt::arg("channels", problem_.channels), fmt::arg("plane", problem_.sized_plane()),
        fmt::arg("symbols", is_open_ ? symbol_values(graph_) : ""),
        fmt::arg("x_arguments", x_arguments()));
  }

  std::string print_multiply() const {
    std::string x = fmt::format("Problem::x({}, batch)", x_arguments());
    if (schedule_.x_from == XFrom::kField)
      x = fmt::format("static_cast<const Field*>(workspace) + {} + batch * {}",
                      problem_.groups * packed_weight(), copied_x());
    std::string copy;
    if (schedule_.x_from == XFrom::kBlock) {
      x = "field";
      copy = fmt::format(
          "    Value* const field = tiles + {};\n"
          "    for (int64_t channel = 0; channel < {}; ++channel)\n"
          "      images.copy_field(Problem::x(args, batch) + channel * images.x_channel,\n"
          "                        field + channel * {});\n",
          tile_elements(), problem_.channels, problem_.plane());
    }
    const std::string weights =
        schedule_.a_packed ? fmt::format("static_cast<const Value*>(workspace) + batch % {} * {}",
                                         problem_.groups, packed_weight())
                           : fmt::format("Problem::a(args, batch % {})", problem_.groups);
    return fmt::format(
        R"(
extern "C" void multiply(void* const* args, [[maybe_unused]] const int64_t* dims, int64_t begin,
                         int64_t end, [[maybe_unused]] void* workspace, void* scratch) {{
{symbols}  const Images images = images_of(dims);
  const Epilogue epilogue{{args{passed}}};
  Value* const tiles = static_cast<Value*>(scratch);
  for (int64_t place = begin; place < end; ++place) {{
    const int64_t batch = place / {blocks}, within = place % {blocks};
    const int64_t row = within % {row_blocks} * Tiling::block_rows;
    const int64_t column = within / {row_blocks} * Tiling::block_columns;
    const Block block = {{batch, row, smaller(row + Tiling::block_rows, Problem::m), column,
                         smaller(column + Tiling::block_columns, images.positions)}};
{copy}    images.{run}({weights}, {x}, block, tiles, epilogue);
  }}
}}
)",
        fmt::arg("symbols", is_open_ ? symbol_values(graph_) : ""),
        fmt::arg("passed", is_sized() ? ", dims" : ""),
        fmt::arg("blocks", fmt::format("({} * {})", row_blocks(), column_blocks())),
        fmt::arg("row_blocks", row_blocks()), fmt::arg("copy", copy),
        fmt::arg("run", schedule_.slide ? "slide_block" : "multiply_windows"),
        fmt::arg("weights", weights), fmt::arg("x", x));
  }

  const Graph& graph_;
  const EpilogueGraph& epilogue_;
  const CpuConvolutionSchedule schedule_;
  const ConvolutionProblem& problem_;
  const MatmulProblem& product_;
  const SizedImages& image_;
  const bool is_open_;  // the images' sizes: convolution.h says what that changes
};

}  // namespace

Result<Source> print_cpu_convolution(const Graph& graph, const CpuConvolutionSchedule& schedule) {
  const ConvolutionProblem problem = ConvolutionProblem::of(graph);
  const MatmulProblem& product = problem.product;
  if (product.stored == DType::kBool)
    return fail(Code::kUnsupported, "a convolution of bool on this target");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  if (!problem.sized.is_constant() && (schedule.slide || schedule.x_from == XFrom::kBlock))
    return fail(
        Code::kUnsupported,
        "convolutions of images of any size are written without sliding or copies of blocks");
  const Shape space = {problem.images, problem.groups * product.m, problem.sized.positions};
  TRY(const EpilogueGraph epilogue, epilogue_graph(graph, product.product, space));
  return ConvolutionKernel(graph, epilogue, problem, schedule).print();
}

}  // namespace kiln
