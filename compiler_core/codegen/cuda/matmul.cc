#include "compiler_core/codegen/cuda/matmul.h"

#include <fmt/core.h>

#include "compiler_core/codegen/cuda/kernel_text.h"
#include "compiler_core/codegen/cuda/product_text.h"
#include "compiler_core/codegen/expression.h"
#include "compiler_core/codegen/size.h"
#include "compiler_core/tune/cuda/matmul_lines.h"

namespace kiln {
namespace {

int64_t ceil_div(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// Rows that are counted at run time are numbered so that the last one has the number
// kCountedRows - 1: the loader knows how many are left without knowing how many there are.
constexpr int64_t kCountedRows = (int64_t{1} << 30) + 1;

// In the place of a size with symbols: a number that has no more to do with vectors.
int64_t stand_in(const Dim& size) {
  if (size.is_constant()) return size.constant();
  int64_t power = 1;
  while (power < 16 && is_multiple(size, power * 2)) power *= 2;
  return power;
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
  for (const Dim& size : sized.batch) problem.batch.push_back(stand_in(size));
  problem.m = sized.m.is_constant() ? sized.m.constant() : kCountedRows;
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
        lanes_(product_lanes(graph, problem_.n)),
        tile_rows_(ceil_text(sized_.m, schedule.bm)),
        tile_columns_(ceil_div(problem_.n, schedule.bn)),
        steps_(ceil_div(problem_.k, schedule.bk)) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, lanes_, {"mma.cuh", "matmul.cuh"});
    source.text += print_operand("A", matmul_rows_of_a(problem_)) +
                   print_operand("B", matmul_columns_of_b(problem_));
    source.text += print_tiling(schedule_, problem_.result);
    source.text += cuda_kernel("multiply", graph_, schedule_.threads(),
                               blocks_an_sm(schedule_, problem_), print_multiply());
    const Grid blocks({GridAxis{sized_.m, schedule_.bm},
                       GridAxis{sized_.batches * (tile_columns_ * schedule_.splits)}});
    source.recipe.phases.push_back(
        {"multiply", blocks, schedule_.threads(), 1, schedule_.shared_bytes(problem_)});
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
  bool counts_rows() const { return !sized_.m.is_constant(); }
  int64_t elements() const { return problem_.batches * problem_.m * problem_.n; }

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
      text += fmt::format("  const {}* {} = in{} + ({}", memory_type(problem_.stored), name,
                          operand->input, long_text(operand->offset));
      Dim inner = 1;
      for (size_t axis = sized_.batch.size(); axis-- > 0;) {
        if (!operand->batch_strides[axis].is(0))
          text += fmt::format(" + {} * {}", batch_coordinate(axis, inner),
                              long_text(operand->batch_strides[axis]));
        inner = inner * sized_.batch[axis];
      }
      text += ");\n";
    }
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
    at.push_back(LoopVar{"column", LoopVar::Kind::kVector, Level::kInner, 0, problem_.n, lanes_});
    printer.store(0, at);
    text.once += printer.take(Level::kKernel, 2);
    text.vector = "    const AllLanes live{};\n";
    text.vector += fmt::format("    const {} acc = {}(sums);\n", register_type(problem_.result),
                               wrapping(problem_.result));
    text.vector += printer.take(Level::kOuter, 4);
    text.vector += printer.take(Level::kInner, 4);
    return text;
  }

  std::string print_multiply() const {
    const std::string tiles =
        counts_rows() ? fmt::format("({} * {})", tile_rows_, tile_columns_)
                      : std::to_string(ceil_div(problem_.m, schedule_.bm) * tile_columns_);
    const std::string shift = counts_rows() ? " + shift" : "";
    const int64_t split_steps = ceil_div(steps_, schedule_.splits);
    const bool splits = schedule_.splits > 1;
    const bool repairs = matmul_core(problem_) == MatmulCore::kF32;
    const EpilogueText epilogue = print_epilogue();
    std::string text = fmt::format(
        "  const int block = static_cast<int>(block_index());\n"
        "  const int split = {}, batch = block / {} % {};\n"
        "  const TilePlace tile(block % {}, {}, {}, {});\n"
        "  const int row0 = tile.row * Tiling::rows, column0 = tile.column * Tiling::columns;\n",
        splits ? fmt::format("block / {}",
                             ceil_div(problem_.m, schedule_.bm) * tile_columns_ * problem_.batches)
               : "0",
        tiles, sized_.batches, tiles, tile_rows_, tile_columns_, schedule_.group);
    text += print_operands();
    text += fmt::format(
        "  const int begin = split * {}, end = begin + {} < {} ? begin + {} : {};\n"
        "  multiply_tile<{}, A, B, Tiling>(a, b, row0{}, column0, begin, end, shared_memory());\n",
        split_steps, split_steps, steps_, split_steps, steps_, sums_type(problem_.stored), shift);
    if (!splits) text += epilogue.once;
    text += fmt::format(
        "  _Pragma(\"unroll 2\") for (int i = thread_index(); i < Tiling::rows * Tiling::columns / "
        "LANES; i += {}) {{\n"
        "    const int tile_row = i / (Tiling::columns / LANES);\n"
        "    const int tile_column = i % (Tiling::columns / LANES) * LANES;\n"
        "    const index_t row = row0 + tile_row, column = column0 + tile_column;\n"
        "    if (row >= {} || column >= {}) continue;\n"
        "    const Vec<Value> sums = {};\n",
        schedule_.threads(), sized_.m, problem_.n,
        repairs && !splits
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
  const int lanes_;
  const std::string tile_rows_;
  const int64_t tile_columns_, steps_;
};

// What of a product may be open: how many rows and matrices there are.
Status check_sizes(const Graph& graph, const CudaMatmulSchedule& schedule) {
  if (graph.symbols().empty()) return {};
  if (!has_open_rows_alone(SizedMatmul::of(graph)) || schedule.splits > 1)
    return fail(Code::kUnsupported,
                "CUDA kernels of products are written for constant columns and depth, and rows "
                "that lie one behind the other, without splits");
  return {};
}

}  // namespace

Result<Source> lower_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule) {
  TRY_STATUS(check_sizes(graph, schedule));
  MatmulProblem problem = numbers_of(graph);
  if (problem.m == kCountedRows) problem.m = schedule.bm;  // tiles are counted at the launch
  if (problem.stored == DType::kBool)
    return fail(Code::kUnsupported, "a matmul of bool on this target");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + schedule.to_schedule().to_string());
  return CudaMatmulKernel(graph, schedule).print();
}

}  // namespace kiln
