#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <fmt/core.h>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/matmul/cuda_product_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Rows that are counted at run time are numbered so that the last one has the number
// kCountedRows - 1: the loader knows how many are left without knowing how many there are.
constexpr int64_t kCountedRows = (int64_t{1} << 30) + 1;

// In the place of a size or stride with symbols: a number that has no more to do with vectors, and
// is not taken for 1.
constexpr int64_t kOddSize = 1'000'003;
int64_t stand_in(const Dim& size) {
  if (size.is_constant()) return size.constant();
  int64_t power = 1;
  while (power < 16 && is_multiple(size, power * 2)) power *= 2;
  return power * kOddSize;
}
MatmulOperand stand_in(const SizedMatmulOperand& operand) {
  MatmulOperand made{operand.input,
                     stand_in(operand.offset),
                     {},
                     stand_in(operand.row_stride),
                     stand_in(operand.column_stride)};
  for (const Dim& stride : operand.batch_strides) made.batch_strides.push_back(stand_in(stride));
  return made;
}

// The problem in numbers; with symbols, in numbers that say no more than holds for all sizes.
MatmulProblem numbers_of(const Graph& graph) {
  if (graph.symbols().empty()) return MatmulProblem::of(graph);
  const SizedMatmul sized = SizedMatmul::of(graph);
  MatmulProblem problem;
  problem.product = sized.product;
  problem.stored = sized.stored;
  problem.result = sized.result;
  problem.m = !has_open_rows_alone(sized) ? stand_in(sized.m)
              : sized.m.is_constant()     ? sized.m.constant()
                                          : kCountedRows;
  problem.n = stand_in(sized.n);
  problem.k = stand_in(sized.k);
  problem.a = stand_in(sized.a);
  problem.b = stand_in(sized.b);
  return problem;
}

std::string long_text(const Dim& size) {
  return size.is_constant() ? fmt::format("{}L", size.constant()) : size_text(size);
}

class CudaMatmulKernel {
 public:
  CudaMatmulKernel(const Graph& graph, const CudaMatmulSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(numbers_of(graph)),
        sized_(SizedMatmul::of(graph)),
        is_open_(!graph.symbols().empty() && !has_open_rows_alone(sized_)),
        lanes_(product_lanes(graph, problem_.n)),
        tile_rows_(ceil_text(sized_.m, schedule.bm)),
        tile_columns_(ceil_text(sized_.n, schedule.bn)) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = is_open_
                      ? cuda_preamble(graph_, lanes_, {"mma.cuh", "matmul.cuh", "matmul_open.cuh"})
                      : cuda_preamble(graph_, lanes_, {"mma.cuh", "matmul.cuh"});
    source.text += print_maps() + print_tiling(schedule_, problem_.result);
    if (is_open_) source.text += "using OpenLoader = Loader<A, Tiling, Tiling::rows>;\n";
    source.text += cuda_kernel("multiply", graph_, schedule_.threads(),
                               blocks_an_sm(schedule_, problem_), print_multiply());
    source.recipe.phases.push_back(
        {"multiply", blocks(), schedule_.threads(), 1, schedule_.shared_bytes(problem_)});
    if (schedule_.splits > 1) {
      source.text += cuda_kernel("finish", graph_, kFinishThreads, 1, print_finish());
      source.recipe.phases.push_back(
          {"finish", ceil_div(elements() / lanes_, kFinishThreads), kFinishThreads, 1, 0});
      source.recipe.workspace_bytes =
          schedule_.splits * elements() * size_of(value_dtype(problem_.result));
    }
    return source;
  }

 private:
  bool counts_rows() const { return !is_open_ && !sized_.m.is_constant(); }
  int64_t elements() const { return problem_.batches * problem_.m * problem_.n; }

  Grid blocks() const {
    const GridAxis rows{sized_.m, schedule_.bm};
    if (!sized_.n.is_constant())
      return Grid({rows, GridAxis{sized_.n, schedule_.bn}, GridAxis{sized_.batches}});
    const int64_t columns = ceil_div(problem_.n, schedule_.bn);
    return Grid({rows, GridAxis{sized_.batches * (columns * schedule_.splits)}});
  }

  // A size or stride of an operand, which may be known at run time only.
  static std::string member(std::string_view type, std::string_view name, const Dim& size) {
    return size.is_constant()
               ? fmt::format("  static constexpr {} {} = {};\n", type, name, size.constant())
               : fmt::format("  {} {};\n", type, name);
  }
  std::string print_open_operand(std::string_view name, const MatmulLines& operand,
                                 const Dim& lines, const Dim& line_stride,
                                 const Dim& depth_stride) const {
    return fmt::format("struct {}Map {{\n  using stored = {};\n  const stored* from;\n", name,
                       memory_type(problem_.stored)) +
           member("int", "lines", lines) + member("int", "depth", sized_.k) +
           member("index_t", "line_stride", line_stride) +
           member("index_t", "depth_stride", depth_stride) +
           fmt::format(
               "  static constexpr bool depth_inner = {}, async = {};\n"
               "  static constexpr int piece = {};\n}};\nusing {} = Open<{}Map>;\n",
               operand.depth_inner, operand.async, operand.piece, name, name);
  }
  // The operands' members that are known now.
  std::string print_members() const {
    std::string text;
    const auto set = [&](std::string_view member, std::string_view type, const Dim& size) {
      if (!size.is_constant())
        text += fmt::format("  {} = static_cast<{}>({});\n", member, type, size);
    };
    set("a.lines", "int", sized_.m);
    set("a.depth", "int", sized_.k);
    set("a.line_stride", "index_t", sized_.a.row_stride);
    set("a.depth_stride", "index_t", sized_.a.column_stride);
    set("b.lines", "int", sized_.n);
    set("b.depth", "int", sized_.k);
    set("b.line_stride", "index_t", sized_.b.column_stride);
    set("b.depth_stride", "index_t", sized_.b.row_stride);
    return text;
  }

  std::string print_maps() const {
    const MatmulLines a = matmul_rows_of_a(problem_), b = matmul_columns_of_b(problem_);
    if (!is_open_) return print_operand("A", a) + print_operand("B", b);
    return print_open_operand("A", a, sized_.m, sized_.a.row_stride, sized_.a.column_stride) +
           print_open_operand("B", b, sized_.n, sized_.b.column_stride, sized_.b.row_stride);
  }

  std::string print_operand(std::string_view name, const MatmulLines& operand) const {
    return fmt::format(
        "struct {} {{\n"
        "  using stored = {};\n"
        "  static constexpr int lines = {}, depth = {};\n"
        "  static constexpr index_t line_stride = {}, depth_stride = {};\n"
        "  static constexpr bool depth_inner = {}, async = {};\n"
        "  static constexpr int piece = {};\n}};\n",
        name, memory_type(problem_.stored), operand.lines, operand.depth, operand.line_stride,
        operand.depth_stride, operand.depth_inner, operand.async, operand.piece);
  }

  // Coordinate `axis` of the number `batch`, where the axes inside it have `inner` elements.
  std::string batch_coordinate(size_t axis, const Dim& inner) const {
    std::string text = inner.is(1) ? "batch" : fmt::format("batch / {}", inner);
    return axis == 0 ? text : fmt::format("{} % {}", text, sized_.batch[axis]);
  }

  // Pointers `a` and `b` to the matrices of batch number `batch`.
  std::string print_operands() const {
    std::string text;
    for (const auto& [name, operand] : {std::pair{"a", &sized_.a}, std::pair{"b", &sized_.b}}) {
      const std::string declared =
          is_open_ ? fmt::format("  {} {};\n  {}.from", name == std::string_view("a") ? "A" : "B",
                                 name, name)
                   : fmt::format("  const {}* {}", memory_type(problem_.stored), name);
      text += fmt::format("{} = in{} + ({}", declared, operand->input, long_text(operand->offset));
      Dim inner = 1;
      for (size_t axis = sized_.batch.size(); axis-- > 0;) {
        if (!operand->batch_strides[axis].is(0))
          text += fmt::format(" + {} * {}", batch_coordinate(axis, inner),
                              long_text(operand->batch_strides[axis]));
        inner = inner * sized_.batch[axis];
      }
      text += ");\n";
    }
    if (is_open_) text += print_members();
    if (counts_rows())
      text += fmt::format("  const int64_t shift = {}L - {};\n  a -= shift * A::line_stride;\n",
                          kCountedRows, sized_.m);
    return text;
  }

  struct EpilogueText {
    std::string once;    // needs `batch`
    std::string vector;  // needs `sums`, `row`, `column`
  };
  EpilogueText print_epilogue() const {
    ExpressionPrinter printer(graph_, Dialect::kCuda);
    printer.bind(problem_.product, {"acc", Level::kInner});
    std::vector<Index> at;
    EpilogueText text;
    Dim inner = 1;
    for (size_t axis = sized_.batch.size(); axis-- > 0;) {
      const std::string name = fmt::format("batch{}", axis);
      text.once += fmt::format("  const index_t {} = {};\n", name, batch_coordinate(axis, inner));
      at.insert(at.begin(),
                LoopVar{name, LoopVar::Kind::kScalar, Level::kKernel, 0, sized_.batch[axis]});
      inner = inner * sized_.batch[axis];
    }
    at.push_back(LoopVar{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, sized_.m});
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, sized_.n, lanes_});
    printer.store(0, at);
    text.once += printer.take(Level::kKernel, 2);
    text.vector = "    const AllLanes live{};\n";
    text.vector += fmt::format("    const {} acc = {}(sums);\n", register_type(problem_.result),
                               wrapping(problem_.result));
    text.vector += printer.take(Level::kOuter, 4);
    text.vector += printer.take(Level::kInner, 4);
    return text;
  }

  // Of the depth: `begin` and `end`.
  std::string print_steps() const {
    if (!sized_.k.is_constant())
      return fmt::format("  const int begin = 0, end = static_cast<int>({});\n",
                         ceil_text(sized_.k, schedule_.bk));
    const int64_t steps = ceil_div(problem_.k, schedule_.bk);
    const int64_t split_steps = ceil_div(steps, schedule_.splits);
    return fmt::format("  const int begin = split * {}, end = begin + {} < {} ? begin + {} : {};\n",
                       split_steps, split_steps, steps, split_steps, steps);
  }

  std::string print_multiply() const {
    const bool known = sized_.m.is_constant() && sized_.n.is_constant();
    const int64_t all_tiles =
        ceil_div(problem_.m, schedule_.bm) * ceil_div(problem_.n, schedule_.bn);
    const std::string tiles =
        known ? std::to_string(all_tiles) : fmt::format("({} * {})", tile_rows_, tile_columns_);
    const std::string shift = counts_rows() ? " + shift" : "";
    const bool splits = schedule_.splits > 1;
    const bool repairs = matmul_core(problem_) == MatmulCore::kF32;
    const EpilogueText epilogue = print_epilogue();
    std::string text = fmt::format(
        "  const int block = static_cast<int>(block_index());\n"
        "  const int split = {}, batch = block / {} % {};\n"
        "  const TilePlace tile(block % {}, {}, {}, {});\n"
        "  const int row0 = tile.row * Tiling::rows, column0 = tile.column * Tiling::columns;\n",
        splits ? fmt::format("block / {}", all_tiles * problem_.batches) : "0", tiles,
        sized_.batches, tiles, tile_rows_, tile_columns_, schedule_.group);
    text += print_operands() + print_steps();
    text += fmt::format(
        "  multiply_tile<{}, A, B, Tiling>(a, b, row0{}, column0, begin, end, shared_memory());\n",
        sums_type(problem_.stored), shift);
    if (!splits) text += epilogue.once;
    text += fmt::format(
        "  _Pragma(\"unroll 2\") for (int i = thread_index(); i < Tiling::rows * Tiling::columns / "
        "LANES; i += {}) {{\n"
        "    const int tile_row = i / (Tiling::columns / LANES);\n"
        "    const int tile_column = i % (Tiling::columns / LANES) * LANES;\n"
        "    const index_t row = row0 + tile_row, column = column0 + tile_column;\n"
        "    if (row >= {} || column >= {}) continue;\n"
        "    const Vec<Value> sums = {};\n",
        schedule_.threads(), sized_.m, sized_.n,
        repairs && is_open_
            ? "staged_open_sums<Tiling, A, B>(shared_memory(), tile_row, tile_column, a, b, row, "
              "column)"
        : repairs && !splits
            ? "staged_f32_sums<Tiling, A, B>(shared_memory(), tile_row, tile_column, a, b, row" +
                  shift + ", column)"
            : "staged_sums<Tiling, Value>(shared_memory(), tile_row, tile_column)");
    text += splits ? fmt::format("    store<LANES>({}, sums, AllLanes{{}});\n",
                                 partial_sums("split", problem_))
                   : epilogue.vector;
    return text + "  }\n";
  }

  std::string print_finish() const {
    const EpilogueText epilogue = print_epilogue();
    std::string text = fmt::format(
        "  const index_t i = static_cast<index_t>(block_index()) * {} + thread_index();\n"
        "  if (i >= {}) return;\n"
        "  const index_t batch = i / {}, row = i / {} % {}, column = i % {} * LANES;\n",
        kFinishThreads, elements() / lanes_, problem_.m * problem_.n / lanes_, problem_.n / lanes_,
        problem_.m, problem_.n / lanes_);
    text += print_operands() + epilogue.once;
    text += add_partial_sums(schedule_.splits, problem_);
    if (matmul_core(problem_) == MatmulCore::kF32)
      text +=
          "  KILN_EACH_LANE if (sums[l] != sums[l])\n"
          "    sums[l] = plain_sum<A, B>(a, b, row, column + l);\n";
    return text + epilogue.vector;
  }

  const Graph& graph_;
  const CudaMatmulSchedule schedule_;
  const MatmulProblem problem_;
  const SizedMatmul sized_;
  const bool is_open_;  // more than rows that are counted: see matmul_open.cuh
  const int lanes_;
  const std::string tile_rows_, tile_columns_;
};

}  // namespace

Result<Source> print_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule) {
  if (!graph.symbols().empty() && schedule.splits > 1)
    return fail(Code::kUnsupported,
                "CUDA kernels of products whose sizes have symbols are written without splits");
  MatmulProblem problem = numbers_of(graph);
  // Tiles are counted at the launch.
  if (!SizedMatmul::of(graph).m.is_constant()) problem.m = schedule.bm;
  if (!SizedMatmul::of(graph).n.is_constant()) problem.n = schedule.bn;
  if (problem.stored == DType::kBool)
    return fail(Code::kUnsupported, "a matmul of bool on this target");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return CudaMatmulKernel(graph, schedule).print();
}

}  // namespace kiln
