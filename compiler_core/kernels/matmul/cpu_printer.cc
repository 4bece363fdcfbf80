#include "compiler_core/kernels/matmul/cpu_matmul.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cpu_product.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

class MatmulKernel {
 public:
  MatmulKernel(const Graph& graph, const CpuMatmulSchedule& schedule)
      : graph_(graph), schedule_(schedule), problem_(SizedMatmul::of(graph)) {}

  Source print() const {
    Source source;
    source.text = preamble(graph_, schedule_.lanes) + print_problem();
    if (is_sized()) source.text += print_sizes();
    source.text += schedule_.dot ? print_dot_tiling() : print_panel_tiling();
    source.text += device_text(schedule_.dot ? "matmul_dot.h" : "matmul.h");
    source.text += print_epilogue();
    source.recipe = argument_recipe(graph_);
    if (schedule_.dot)
      print_dot_entries(source);
    else
      print_panel_entries(source);
    return source;
  }

 private:
  // Whether sizes are known only at run time: the functions of the templates are told them.
  bool is_sized() const { return !graph_.symbols().empty(); }
  Dim a_batches() const { return problem_.a.is_shared() ? Dim(1) : problem_.batches; }
  Dim b_batches() const { return problem_.b.is_shared() ? Dim(1) : problem_.batches; }

  // "(batch / 4) % 8 * 512L + ...": where batch number `batch` of an operand begins.
  std::string batch_offset(const SizedMatmulOperand& operand) const {
    std::string text = long_text(operand.offset);
    for (size_t axis = problem_.batch.size(); axis-- > 0;)
      if (!operand.batch_strides[axis].is(0))
        text += fmt::format(" + {} * {}", coordinate_text("batch", problem_.batch, axis),
                            long_text(operand.batch_strides[axis]));
    return text;
  }

  std::string print_problem() const {
    std::string text = "struct Problem {\n";
    text += fmt::format("  using stored = {};\n  using real = {};\n", memory_type(problem_.stored),
                        register_type(problem_.result));
    for (const auto& [name, size] : named_sizes())
      text += fmt::format("  static constexpr int64_t {} = {};\n", name,
                          size.is_constant()         ? std::to_string(size.constant())
                          : name == std::string("k") ? "0x7fffffffffffffff"
                                                     : "0");
    if (!is_sized()) text += print_operands("KILN_INLINE", "");
    return text + "};\n";
  }

  std::vector<std::pair<const char*, Dim>> named_sizes() const {
    return {{"m", problem_.m},
            {"n", problem_.n},
            {"k", problem_.k},
            {"a_row", problem_.a.row_stride},
            {"a_depth", problem_.a.column_stride},
            {"b_depth", problem_.b.row_stride},
            {"b_column", problem_.b.column_stride}};
  }

  // Functions that say where a batch of an operand begins.
  std::string print_operands(const char* before, const char* behind) const {
    std::string text;
    for (const auto& [name, operand] : {std::pair("a", &problem_.a), std::pair("b", &problem_.b)})
      text += fmt::format(
          "  {} const {}stored* {}(void* const* args, int64_t batch){} {{\n"
          "    return static_cast<const {}stored*>(args[{}]) + ({});\n  }}\n",
          before, is_sized() ? "Problem::" : "", name, behind, is_sized() ? "Problem::" : "",
          operand->input, batch_offset(*operand));
    return text;
  }

  // The problem's sizes at run time: constants where they are, else members.
  std::string print_sizes() const {
    std::string symbols, text = "#define KILN_SIZES_AT_RUN_TIME\nstruct Sizes {\n";
    for (size_t i = 0; i < graph_.symbols().size(); ++i) {
      text += fmt::format("  int64_t s{};\n", i);
      symbols += fmt::format("{}s{}(dims[{}])", i ? ", " : "", i, i);
    }
    text += fmt::format("  explicit Sizes(const int64_t* dims) : {} {{}}\n", symbols);
    for (const auto& [name, size] : named_sizes())
      text += fmt::format("  {}int64_t {} = {};\n", size.is_constant() ? "static constexpr " : "",
                          name, size);
    return text + print_operands("__attribute__((always_inline)) inline", " const") + "};\n";
  }

  std::string print_panel_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int64_t rows = {}, columns = {}, depth = {};\n"
        "  static constexpr int64_t block_rows = {}, block_columns = {};\n"
        "  static constexpr int b_from = {};\n  static constexpr bool a_packed = {};\n}};\n",
        schedule_.mr, schedule_.nr, depth(), block_rows(), block_columns(),
        static_cast<int>(schedule_.b_from), schedule_.a_packed);
  }

  std::string print_dot_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int64_t rows = {}, columns = {}, block_columns = {};\n}};\n",
        schedule_.mr, schedule_.nr, block_columns());
  }

  // Takes the sums of one vector of results to the output.
  std::string print_epilogue() const {
    CpuEpilogue epilogue{.workload = graph_,
                         .graph = graph_,
                         .product = problem_.product,
                         .result = problem_.result};
    if (is_sized()) epilogue.type = "Sizes", epilogue.name = "sizes";
    for (size_t i = 0; i < graph_.symbols().size(); ++i)
      epilogue.behind += fmt::format("    [[maybe_unused]] const int64_t s{0} = sizes.s{0};\n", i);
    std::vector<NamedAxis> axes;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis) {
      axes.push_back({fmt::format("batch{}", axis), problem_.batch[axis]});
      epilogue.at.push_back(LoopVar{axes.back().name, LoopVar::Kind::kScalar, Level::kOuter, 0,
                                    problem_.batch[axis]});
    }
    epilogue.behind += declare_coordinates("int64_t", "batch", axes, 4);
    epilogue.at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.m});
    epilogue.at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, problem_.n});
    return epilogue.text();
  }

  // At most `wanted`, in whole tiles; no more of them than there are.
  static int64_t block(const Dim& size, int64_t wanted, int64_t tile) {
    const int64_t tiles = ceil_div(wanted, tile);
    return (size.is_constant() ? std::min(tiles, ceil_div(size.constant(), tile)) : tiles) * tile;
  }
  int64_t block_rows() const { return block(problem_.m, schedule_.mc, schedule_.mr); }
  int64_t block_columns() const { return block(problem_.n, schedule_.nc, schedule_.nr); }
  int64_t depth() const {
    return problem_.k.is_constant() ? std::min(schedule_.kc, problem_.k.constant()) : schedule_.kc;
  }
  // Elements of a batch's panels, in whole cache lines.
  Dim packed_elements(const Dim& size, int64_t width) const {
    return round_up(round_up(size, width) * problem_.k, 64 / sum_bytes(problem_.result));
  }
  Dim packed_a_elements() const {
    return schedule_.a_packed ? packed_elements(problem_.m, schedule_.mr) : Dim(0);
  }
  Dim packed_b_elements() const {
    if (schedule_.b_from != BFrom::kPacked) return 0;
    return packed_elements(problem_.n, schedule_.nr);
  }

  // The tiles of a block, when the depth is cut; then its slab of B.
  int64_t panel_scratch_bytes() const {
    const int64_t tiles =
        problem_.k.is(depth()) ? 1 : block_rows() / schedule_.mr * (block_columns() / schedule_.nr);
    const int64_t slab = schedule_.b_from == BFrom::kSlab ? depth() * block_columns() : 0;
    return (tiles * schedule_.mr * schedule_.nr + slab) * sum_bytes(problem_.result);
  }

  Grid pack_grid(const Dim& batches, const Dim& size, int64_t width) const {
    // As in device/matmul.h: Packing::pieces.
    return Grid(std::vector<GridAxis>{{batches, 1}, {size, 4 * width}, {problem_.k, 256}});
  }

  // Packs A, and B where its panels are packed once. A product that packs B as it goes gets no code for
  // it, which the compiler needs seconds for.
  void print_pack(Source& source) const {
    const bool packs_b = schedule_.b_from == BFrom::kPacked;
    const std::string of_b =
        fmt::format(R"(
    if (piece >= {a_batches} * PackA::pieces()) {{
      const int64_t rest = piece - {a_batches} * PackA::pieces(), batch = rest / PackB::pieces();
      PackB::run(Problem::b(args, batch), rest % PackB::pieces(), packed_b + batch * {b_size});
      continue;
    }})",
                    fmt::arg("a_batches", a_batches()), fmt::arg("b_size", packed_b_elements()));
    source.text += fmt::format(
        R"(
extern "C" void pack(void* const* args, const int64_t*, int64_t begin, int64_t end, void* workspace,
                     void*) {{
  Value* packed_a = static_cast<Value*>(workspace);
  [[maybe_unused]] Value* packed_b = packed_a + {a_batches} * {a_size};
  for (int64_t piece = begin; piece < end; ++piece) {{{of_b}
    const int64_t batch = piece / PackA::pieces();
    PackA::run(Problem::a(args, batch), piece % PackA::pieces(), packed_a + batch * {a_size});
  }}
}}
)",
        fmt::arg("a_batches", a_batches()), fmt::arg("a_size", packed_a_elements()),
        fmt::arg("of_b", packs_b ? of_b : ""));
    int64_t pieces = pack_grid(a_batches(), problem_.m, schedule_.mr).constant();
    if (packs_b) pieces += pack_grid(b_batches(), problem_.n, schedule_.nr).constant();
    source.recipe.phases = {{"pack", pieces}};
  }

  // How many pieces there are is a product of sizes for each operand, not of both: a phase each.
  void print_sized_pack(Source& source) const {
    const auto phase = [&](const char* name, const char* packing, const Dim& batches,
                           const std::string& offset, const Dim& elements, Grid grid) {
      source.text += entry_function(
          fmt::format("pack_{}", name), graph_,
          fmt::format("  const Sizes sizes(dims);\n"
                      "  Value* packed = static_cast<Value*>(workspace) + {0};\n"
                      "  for (int64_t piece = begin; piece < end; ++piece) {{\n"
                      "    const int64_t batch = piece / {1}::pieces(sizes);\n"
                      "    {1}::run(sizes.{2}(args, batch), piece % {1}::pieces(sizes),\n"
                      "             packed + {3} * {4}, sizes);\n  }}\n",
                      offset, packing, name, batches.is(1) ? "0" : "batch", elements));
      source.recipe.phases.push_back({fmt::format("pack_{}", name), std::move(grid)});
    };
    phase("a", "PackA", a_batches(), "0", packed_a_elements(),
          pack_grid(a_batches(), problem_.m, schedule_.mr));
    if (schedule_.b_from == BFrom::kPacked)
      phase("b", "PackB", b_batches(), size_text(a_batches() * packed_a_elements()),
            packed_b_elements(), pack_grid(b_batches(), problem_.n, schedule_.nr));
  }

  void print_panel_entries(Source& source) const {
    if (is_sized())
      print_sized_pack(source);
    else if (schedule_.a_packed)
      print_pack(source);
    const std::string row_blocks = ceil_text(problem_.m, block_rows());
    const std::string column_blocks = ceil_text(problem_.n, block_columns());
    const auto [blocks, multiply_grid] = blocks_of_a_batch();
    source.text += fmt::format(
        R"(
extern "C" void multiply(void* const* args, const int64_t*{dims}, int64_t begin, int64_t end,
                         void* workspace, void* scratch) {{
{symbols}  [[maybe_unused]] const Value* packed_a = static_cast<const Value*>(workspace);
  const Value* packed_b = packed_a + {a_batches} * {a_size};
  const Epilogue epilogue{{args{sizes}}};
  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {blocks}, place = block % {blocks};
    multiply_block({a}, packed_b + {b_batch} * {b_size},
                   {problem}b(args, batch), batch, {row_block}, {column_block},
                   static_cast<Value*>(scratch), epilogue{sizes});
  }}
}}
)",
        fmt::arg("dims", is_sized() ? " dims" : ""),
        fmt::arg("symbols",
                 is_sized() ? symbol_values(graph_) + "  const Sizes sizes(dims);\n" : ""),
        fmt::arg("sizes", is_sized() ? ", sizes" : ""),
        fmt::arg("problem", is_sized() ? "sizes." : "Problem::"),
        fmt::arg("a_batches", a_batches()), fmt::arg("a_size", packed_a_elements()),
        fmt::arg("b_size", packed_b_elements()), fmt::arg("blocks", blocks),
        fmt::arg("a", schedule_.a_packed
                          ? fmt::format("packed_a + {} * {}", a_batches().is(1) ? "0" : "batch",
                                        packed_a_elements())
                          : "Problem::a(args, batch)"),
        fmt::arg("b_batch", b_batches().is(1) ? "0" : "batch"),
        fmt::arg("row_block", schedule_.rows_first ? fmt::format("place % {}", row_blocks)
                                                   : fmt::format("place / {}", column_blocks)),
        fmt::arg("column_block", schedule_.rows_first ? fmt::format("place / {}", row_blocks)
                                                      : fmt::format("place % {}", column_blocks)));
    source.recipe.scratch_bytes = panel_scratch_bytes();
    source.recipe.workspace_bytes =
        (a_batches() * packed_a_elements() + b_batches() * packed_b_elements()) *
        sum_bytes(problem_.result);
    source.recipe.phases.push_back({"multiply", multiply_grid});
  }

  // C text of how many blocks the product of a batch has, and the grid of all.
  std::pair<std::string, Grid> blocks_of_a_batch() const {
    const Grid grid(std::vector<GridAxis>{
        {problem_.batches, 1}, {problem_.m, block_rows()}, {problem_.n, block_columns()}});
    const auto rows = ceil_divide(problem_.m, block_rows());
    const auto columns = ceil_divide(problem_.n, block_columns());
    if (rows && columns) return {size_text(*rows * *columns), grid};
    return {fmt::format("({} * {})", ceil_text(problem_.m, block_rows()),
                        ceil_text(problem_.n, block_columns())),
            grid};
  }

  // A converted to whole vectors of the result's type; where it lies so already, it is left there.
  bool dot_packs_a() const {
    return problem_.stored != problem_.result || !problem_.a.column_stride.is(1) ||
           problem_.a.row_stride != problem_.k || !is_multiple(problem_.k, schedule_.lanes);
  }

  void print_dot_entries(Source& source) const {
    const int64_t value = sum_bytes(problem_.result);
    const int64_t m = problem_.m.constant();
    const Dim depth = round_up(problem_.k, schedule_.lanes);
    const int64_t column_blocks = ceil_div(problem_.n.constant(), block_columns());
    const std::string dims = is_sized() ? " dims" : "";
    const std::string sizes = is_sized() ? "  const Sizes sizes(dims);\n" : "";
    const std::string operands = is_sized() ? "sizes." : "Problem::";
    const std::string packed = fmt::format("static_cast<{}Value*>(workspace) + {} * {}", "{}",
                                           a_batches().is(1) ? "0" : "batch", depth * m);
    if (dot_packs_a())
      source.text += fmt::format(
          R"(
extern "C" void pack(void* const* args, const int64_t*{}, int64_t begin, int64_t end, void* workspace,
                     void*) {{
{}  for (int64_t i = begin; i < end; ++i) {{
    const int64_t batch = i / {};
    DotOperand::pack({}a(args, batch), i % {}, {});
  }}
}}
)",
          dims, sizes, m, operands, m, fmt::format(fmt::runtime(packed), ""));
    source.text += fmt::format(
        R"(
extern "C" void multiply(void* const* args, const int64_t*{}, int64_t begin, int64_t end,
                         void* workspace, void* scratch) {{
{}  const Epilogue epilogue{{args{}}};
  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {}, column = block % {} * Tiling::block_columns;
    dot_block({}, {}b(args, batch), batch, column, static_cast<Value*>(scratch), epilogue);
  }}
}}
)",
        dims, sizes, is_sized() ? ", sizes" : "", column_blocks, column_blocks,
        dot_packs_a() ? fmt::format(fmt::runtime(packed), "const ") : operands + "a(args, batch)",
        operands);
    if (dot_packs_a()) {
      source.recipe.workspace_bytes = a_batches() * depth * (m * value);
      source.recipe.phases.push_back({"pack", Grid(a_batches() * m)});
    }
    source.recipe.phases.push_back({"multiply", Grid(problem_.batches * column_blocks)});
    source.recipe.scratch_bytes = m * block_columns() * value;
  }

  const Graph& graph_;
  const CpuMatmulSchedule schedule_;
  const SizedMatmul problem_;
};

}  // namespace

Result<Source> print_cpu_matmul(const Graph& graph, const CpuMatmulSchedule& schedule) {
  const SizedMatmul problem = SizedMatmul::of(graph);
  if (problem.stored == DType::kBool)
    return fail(Code::kUnsupported, "a matmul of bool on this target");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the operands' strides do not allow " + to_schedule(schedule).to_string());
  return MatmulKernel(graph, schedule).print();
}

}  // namespace kiln
