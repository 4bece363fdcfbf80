#include "compiler_core/codegen/cpu/matmul.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/codegen/cpu/kernel_text.h"
#include "compiler_core/codegen/embedded.h"
#include "compiler_core/codegen/expression.h"

namespace kiln {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Bytes of an element in a register, and so in packed panels.
int64_t value_bytes(DType result) {
  return result == DType::kF64 || result == DType::kI64 ? 8 : 4;
}

int64_t cache_lines(int64_t bytes) {
  return ceil_div(bytes, 64) * 64;
}

class MatmulKernel {
 public:
  MatmulKernel(const Graph& graph, const MatmulSchedule& schedule)
      : graph_(graph), schedule_(schedule), problem_(MatmulProblem::of(graph)) {}

  Source print() const {
    Source source;
    source.text = preamble(schedule_.lanes) + print_problem();
    source.text += schedule_.dot ? print_dot_tiling() : print_panel_tiling();
    source.text += template_text(schedule_.dot ? "matmul_dot.h" : "matmul.h");
    source.text += print_epilogue();
    source.recipe = argument_recipe(graph_);
    if (schedule_.dot)
      print_dot_entries(source);
    else
      print_panel_entries(source);
    return source;
  }

 private:
  int64_t a_batches() const { return problem_.a.is_shared() ? 1 : problem_.batches; }
  int64_t b_batches() const { return problem_.b.is_shared() ? 1 : problem_.batches; }

  // "(batch / 4) % 8 * 512L + ...": where batch number `batch` of an operand begins.
  std::string batch_offset(const MatmulOperand& operand) const {
    std::string text = fmt::format("{}L", operand.offset);
    int64_t inner = 1;
    for (size_t axis = problem_.batch.size(); axis-- > 0;) {
      const std::string coordinate = batch_coordinate(axis, inner);
      if (operand.batch_strides[axis] != 0)
        text += fmt::format(" + {} * {}L", coordinate, operand.batch_strides[axis]);
      inner *= problem_.batch[axis];
    }
    return text;
  }

  // Coordinate `axis` of the number `batch`, where the axes inside it have `inner` elements.
  std::string batch_coordinate(size_t axis, int64_t inner) const {
    std::string text = inner == 1 ? "batch" : fmt::format("batch / {}", inner);
    return axis == 0 ? text : fmt::format("{} % {}", text, problem_.batch[axis]);
  }

  std::string print_problem() const {
    std::string text = "struct Problem {\n";
    text += fmt::format("  using stored = {};\n  using real = {};\n", memory_type(problem_.stored),
                        register_type(problem_.result));
    const auto constant = [&](const char* name, int64_t value) {
      text += fmt::format("  static constexpr int64_t {} = {};\n", name, value);
    };
    constant("m", problem_.m);
    constant("n", problem_.n);
    constant("k", problem_.k);
    constant("a_row", problem_.a.row_stride);
    constant("a_depth", problem_.a.column_stride);
    constant("b_depth", problem_.b.row_stride);
    constant("b_column", problem_.b.column_stride);
    text += fmt::format(
        "  KILN_INLINE const stored* a(void* const* args, int64_t batch) {{\n"
        "    return static_cast<const stored*>(args[{}]) + ({});\n  }}\n",
        problem_.a.input, batch_offset(problem_.a));
    text += fmt::format(
        "  KILN_INLINE const stored* b(void* const* args, int64_t batch) {{\n"
        "    return static_cast<const stored*>(args[{}]) + ({});\n  }}\n",
        problem_.b.input, batch_offset(problem_.b));
    return text + "};\n";
  }

  std::string print_panel_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int64_t rows = {}, columns = {}, depth = {};\n"
        "  static constexpr int64_t block_rows = {}, block_columns = {};\n"
        "  static constexpr int b_from = {};\n}};\n",
        schedule_.mr, schedule_.nr, std::min(schedule_.kc, problem_.k), block_rows(),
        block_columns(), static_cast<int>(schedule_.b_from));
  }

  std::string print_dot_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int64_t rows = {}, columns = {}, block_columns = {};\n}};\n",
        schedule_.mr, schedule_.nr, block_columns());
  }

  // Takes the sums of one vector of results to the output.
  std::string print_epilogue() const {
    ExpressionPrinter printer(graph_);
    printer.bind(problem_.product, {"acc", Level::kInner});
    std::vector<Index> at;
    std::string coordinates;
    int64_t inner = 1;
    for (size_t axis = problem_.batch.size(); axis-- > 0;) {
      const std::string name = fmt::format("batch{}", axis);
      coordinates +=
          fmt::format("    const int64_t {} = {};\n", name, batch_coordinate(axis, inner));
      at.insert(at.begin(),
                LoopVar{name, LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.batch[axis]});
      inner *= problem_.batch[axis];
    }
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.m});
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, problem_.n});
    printer.store(0, at);
    const std::string kernel = printer.take(Level::kKernel, 4);
    const std::string outer = printer.take(Level::kOuter, 4);
    return fmt::format(
        "struct Epilogue {{\n  void* const* args;\n"
        "  template <class Live>\n"
        "  KILN_INLINE void store_vector(void* const* args, Real sums, int64_t batch, int64_t "
        "row,\n"
        "                                int64_t column, Live live) {{\n"
        "{}    const Real acc = {}(sums);\n{}{}{}{}  }}\n"
        "  template <class Live>\n"
        "  __attribute__((always_inline)) void operator()(Real sums, int64_t batch, int64_t row,\n"
        "                                                 int64_t column, Live live) const {{\n"
        "    store_vector(args, sums, batch, row, column, live);\n  }}\n}};\n",
        argument_pointers(graph_), wrapping(problem_.result), coordinates, kernel, outer,
        printer.take(Level::kInner, 4));
  }

  int64_t block_rows() const {
    return std::min(ceil_div(schedule_.mc, schedule_.mr), ceil_div(problem_.m, schedule_.mr)) *
           schedule_.mr;
  }
  int64_t block_columns() const {
    return std::min(ceil_div(schedule_.nc, schedule_.nr), ceil_div(problem_.n, schedule_.nr)) *
           schedule_.nr;
  }
  int64_t packed_a_bytes() const {  // a batch
    return cache_lines(ceil_div(problem_.m, schedule_.mr) * schedule_.mr * problem_.k *
                       value_bytes(problem_.result));
  }
  int64_t packed_b_bytes() const {
    if (schedule_.b_from != BFrom::kPacked) return 0;
    return cache_lines(ceil_div(problem_.n, schedule_.nr) * schedule_.nr * problem_.k *
                       value_bytes(problem_.result));
  }

  // The tiles of a block, when the depth is cut; then its slab of B.
  int64_t panel_scratch_bytes() const {
    const int64_t depth = std::min(schedule_.kc, problem_.k);
    const int64_t tiles =
        depth == problem_.k ? 1 : block_rows() / schedule_.mr * (block_columns() / schedule_.nr);
    const int64_t slab = schedule_.b_from == BFrom::kSlab ? depth * block_columns() : 0;
    return (tiles * schedule_.mr * schedule_.nr + slab) * value_bytes(problem_.result);
  }

  void print_panel_entries(Source& source) const {
    const int64_t value = value_bytes(problem_.result);
    const int64_t a_size = packed_a_bytes() / value, b_size = packed_b_bytes() / value;
    const int64_t row_blocks = ceil_div(problem_.m, block_rows());
    const int64_t column_blocks = ceil_div(problem_.n, block_columns());
    source.text += fmt::format(
        R"(
extern "C" void pack(void* const* args, const int64_t*, int64_t begin, int64_t end, void* workspace,
                     void*) {{
  Value* packed_a = static_cast<Value*>(workspace);
  Value* packed_b = packed_a + {a_batches} * {a_size};
  for (int64_t piece = begin; piece < end; ++piece) {{
    if (piece < {a_batches} * PackA::pieces) {{
      const int64_t batch = piece / PackA::pieces;
      PackA::run(Problem::a(args, batch), piece % PackA::pieces, packed_a + batch * {a_size});
    }} else {{
      const int64_t rest = piece - {a_batches} * PackA::pieces, batch = rest / PackB::pieces;
      PackB::run(Problem::b(args, batch), rest % PackB::pieces, packed_b + batch * {b_size});
    }}
  }}
}}

extern "C" void multiply(void* const* args, const int64_t*, int64_t begin, int64_t end,
                         void* workspace, void* scratch) {{
  const Value* packed_a = static_cast<const Value*>(workspace);
  const Value* packed_b = packed_a + {a_batches} * {a_size};
  const Epilogue epilogue{{args}};
  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {blocks}, place = block % {blocks};
    multiply_block(packed_a + {a_batch} * {a_size}, packed_b + {b_batch} * {b_size},
                   Problem::b(args, batch), batch, {row_block}, {column_block},
                   static_cast<Value*>(scratch), epilogue);
  }}
}}
)",
        fmt::arg("a_batches", a_batches()), fmt::arg("a_size", a_size), fmt::arg("b_size", b_size),
        fmt::arg("blocks", row_blocks * column_blocks),
        fmt::arg("a_batch", a_batches() == 1 ? "0" : "batch"),
        fmt::arg("b_batch", b_batches() == 1 ? "0" : "batch"),
        fmt::arg("row_block", schedule_.rows_first ? fmt::format("place % {}", row_blocks)
                                                   : fmt::format("place / {}", column_blocks)),
        fmt::arg("column_block", schedule_.rows_first ? fmt::format("place / {}", row_blocks)
                                                      : fmt::format("place % {}", column_blocks)));
    source.recipe.scratch_bytes = panel_scratch_bytes();
    source.recipe.workspace_bytes = a_batches() * packed_a_bytes() + b_batches() * packed_b_bytes();
    const int64_t pieces =
        a_batches() * pack_pieces(problem_.m, schedule_.mr) +
        (schedule_.b_from == BFrom::kPacked ? b_batches() * pack_pieces(problem_.n, schedule_.nr)
                                            : 0);
    source.recipe.phases = {{"pack", pieces},
                            {"multiply", problem_.batches * row_blocks * column_blocks}};
  }

  // As in templates/matmul.h: Packing::pieces.
  int64_t pack_pieces(int64_t size, int64_t width) const {
    return ceil_div(ceil_div(size, width), 4) * ceil_div(problem_.k, 256);
  }

  // A converted to whole vectors of the result's type; where it lies so already, it is left there.
  bool dot_packs_a() const {
    return problem_.stored != problem_.result || problem_.a.column_stride != 1 ||
           problem_.a.row_stride != problem_.k || problem_.k % schedule_.lanes != 0;
  }

  void print_dot_entries(Source& source) const {
    const int64_t value = value_bytes(problem_.result);
    const int64_t depth = ceil_div(problem_.k, schedule_.lanes) * schedule_.lanes;
    const int64_t column_blocks = ceil_div(problem_.n, block_columns());
    const std::string packed = fmt::format("static_cast<{}Value*>(workspace) + {} * {}", "{}",
                                           a_batches() == 1 ? "0" : "batch", problem_.m * depth);
    if (dot_packs_a())
      source.text += fmt::format(
          R"(
extern "C" void pack(void* const* args, const int64_t*, int64_t begin, int64_t end, void* workspace,
                     void*) {{
  for (int64_t i = begin; i < end; ++i) {{
    const int64_t batch = i / {};
    DotOperand::pack(Problem::a(args, batch), i % {}, {});
  }}
}}
)",
          problem_.m, problem_.m, fmt::format(fmt::runtime(packed), ""));
    source.text += fmt::format(
        R"(
extern "C" void multiply(void* const* args, const int64_t*, int64_t begin, int64_t end,
                         void* workspace, void* scratch) {{
  const Epilogue epilogue{{args}};
  for (int64_t block = begin; block < end; ++block) {{
    const int64_t batch = block / {}, column = block % {} * Tiling::block_columns;
    dot_block({}, Problem::b(args, batch), batch, column, static_cast<Value*>(scratch), epilogue);
  }}
}}
)",
        column_blocks, column_blocks,
        dot_packs_a() ? fmt::format(fmt::runtime(packed), "const ") : "Problem::a(args, batch)");
    if (dot_packs_a()) {
      source.recipe.workspace_bytes = a_batches() * problem_.m * depth * value;
      source.recipe.phases.push_back({"pack", a_batches() * problem_.m});
    }
    source.recipe.phases.push_back({"multiply", problem_.batches * column_blocks});
    source.recipe.scratch_bytes = problem_.m * block_columns() * value;
  }

  const Graph& graph_;
  const MatmulSchedule schedule_;
  const MatmulProblem problem_;
};

}  // namespace

Result<Source> lower_matmul(const Graph& graph, const MatmulSchedule& schedule) {
  const MatmulProblem problem = MatmulProblem::of(graph);
  if (problem.stored == DType::kBool)
    return fail(Code::kUnsupported, "a matmul of bool on this target");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the operands' strides do not allow " + schedule.to_schedule().to_string());
  return MatmulKernel(graph, schedule).print();
}

}  // namespace kiln
