#include "compiler_core/kernels/matmul/cuda_matmul.h"

#include <fmt/core.h>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/matmul/cuda_matmul_lines.h"
#include "compiler_core/kernels/matmul/cuda_narrow.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/matmul/rms_norm_text.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Rows that are counted at run time are numbered so that the last one has the number
// kCountedRows - 1: the loader knows how many are left without knowing how many there are.
constexpr int64_t kCountedRows = (int64_t{1} << 30) + 1;

class CudaMatmulKernel {
 public:
  // `few_rows`: the kernel is of matmul_few_rows.cuh, and `schedule` its tiles.
  CudaMatmulKernel(const Graph& graph, const CudaMatmulSchedule& schedule,
                   const CudaFewRowsSchedule* few_rows = nullptr)
      : graph_(graph),
        schedule_(schedule),
        few_rows_(few_rows),
        problem_(SizedMatmul::of(graph)),
        norm_(graph, problem_.rms_norm),
        is_open_(!graph.symbols().empty() && !has_open_rows_alone(problem_)),
        lanes_(product_lanes(graph, problem_.n)) {}

  Source print(const Target& target) const {
    SizedMatmul numbered = problem_;
    if (counts_rows()) numbered.m = kCountedRows;
    const CudaProduct product = {
        .graph = graph_,
        .schedule = schedule_,
        .types = problem_,
        .reads = ProductReads::of(problem_),
        .batches = problem_.batches,
        .m = problem_.m,
        .n = problem_.n,
        .k = problem_.k,
        .lanes = lanes_,
        .grid = blocks(),
        .device = device_files(),
        .operands = print_operand("A", matmul_rows_of_a(numbered)) +
                    print_operand("B", matmul_columns_of_b(numbered)),
        .loader = is_open_          ? "using OpenLoader = Loader<A, Tiling, Tiling::rows>;\n"
                  : problem_.narrow ? NarrowWeights(graph_, problem_).print_type()
                                    : "",
        .pointers = print_pointers(),
        .shift = counts_rows() ? " + shift" : "",
        .multiply =
            problem_.narrow
                ? NarrowWeights(graph_, problem_).print_multiply(counts_rows() ? " + shift" : "")
            : few_rows_ ? print_few_rows()
                        : "",
        .names_sums = few_rows_ != nullptr,
        .early_inputs = early_inputs(),
        .shared_bytes = few_rows_ ? few_rows_->shared_bytes(MatmulProblem::of(graph_)) : 0,
        .blocks_an_sm =
            few_rows_ ? few_rows_->blocks_an_sm(MatmulProblem::of(graph_), cuda_limits(target)) : 0,
        .repaired_sums = is_open_ ? "staged_open_sums" : "staged_f32_sums",
        .plain_sum = "plain_sum",
        .epilogue =
            matmul_epilogue(graph_, problem_, lanes_,
                            {.addend = early_addend(),
                             .rms_norm = problem_.rms_norm ? &*problem_.rms_norm : nullptr}),
    };
    return print_cuda_product(product, target);
  }

 private:
  std::string print_few_rows() const {
    return fmt::format(
        "  const B::stored* const parts[1] = {{b}};\n{}"
        "  const auto tile_sums = multiply_few_rows<{}, A, B, Tiling, {}>(\n"
        "      a, parts, {}, B::lines, row0, column0, begin, end, {}, read_early, "
        "shared_memory());\n",
        print_read_early(), problem_.stored == DType::kBF16 ? "MmaBf16" : "MmaF16",
        schedule_.splits, norm_.pointer(), are_ready(early_inputs()));
  }

  // What a kernel of few rows reads before the kernel in front of it has ended.
  std::vector<int> early_inputs() const {
    if (!few_rows_) return {};
    std::vector<int> inputs = {problem_.b.input};
    if (const auto norm = norm_.input(); norm && *norm != inputs[0]) inputs.push_back(*norm);
    return inputs;
  }

  // What a kernel of few rows reads of its epilogue while it multiplies: each thread has one vector of it.
  NodeId early_addend() const {
    if (!few_rows_ || problem_.batches != 1 ||
        schedule_.bm * schedule_.bn / lanes_ > schedule_.splits * schedule_.threads())
      return kInvalidNode;
    return find_addend(graph_, [&](const MatmulOperand& operand) {
      return !(problem_.rms_norm && operand.input == problem_.a.input) &&
             operand.column_stride == 1 && operand.row_stride % lanes_ == 0 &&
             operand.offset % lanes_ == 0;
    });
  }

  std::string print_read_early() const {
    const NodeId addend = early_addend();
    if (addend == kInvalidNode) return "  const auto read_early = [] {};\n";
    const MatmulOperand operand = MatmulOperand::of(graph_, addend);
    return fmt::format(
        "  Packed<{}> addend = {{}};\n"
        "  const auto read_early = [&] {{\n"
        "    const int i = thread_index() * {} + split;\n"
        "    const index_t row = row0 + i / (Tiling::columns / LANES);\n"
        "    const index_t column = column0 + i % (Tiling::columns / LANES) * LANES;\n"
        "    if (i < Tiling::rows * Tiling::columns / LANES && row < {} && column < {})\n"
        "      addend = load_packed<LANES>(in{} + {} + row * {} + column, AllLanes{{}});\n"
        "  }};\n",
        memory_type(graph_.node(addend).dtype), schedule_.splits, problem_.m, problem_.n,
        operand.input, operand.offset, operand.row_stride);
  }

  std::vector<std::string_view> device_files() const {
    if (few_rows_) return {"tile_sums.cuh", "matmul_few_rows.cuh"};
    if (is_open_) return {"matmul_open.cuh"};
    return problem_.narrow ? std::vector<std::string_view>{"matmul_narrow.cuh"}
                           : std::vector<std::string_view>{};
  }
  // In memory.
  DType stored(bool is_a) const {
    return is_a ? problem_.stored : problem_.narrow.value_or(problem_.stored);
  }

  bool counts_rows() const { return !is_open_ && !problem_.m.is_constant(); }

  Grid blocks() const {
    const GridAxis rows{problem_.m, schedule_.bm};
    if (!problem_.n.is_constant())
      return Grid({rows, GridAxis{problem_.n, schedule_.bn}, GridAxis{problem_.batches}});
    const int64_t columns = ceil_div(problem_.n.constant(), schedule_.bn);
    return Grid({rows, GridAxis{problem_.batches * (columns * schedule_.splits)}});
  }

  // A size or stride of an operand, which may be known at run time only.
  static std::string member(std::string_view type, std::string_view name, const Dim& size) {
    return size.is_constant()
               ? fmt::format("  static constexpr {} {} = {};\n", type, name, size.constant())
               : fmt::format("  {} {};\n", type, name);
  }
  std::string print_operand(std::string_view name, const MatmulLines& operand) const {
    const std::string_view stored = memory_type(this->stored(name == "A"));
    const std::string access = fmt::format(
        "  static constexpr bool depth_inner = {}, async = {};\n"
        "  static constexpr int piece = {};\n{}}};\n",
        operand.depth_inner, operand.async, operand.piece,
        few_rows_ && name == "A" ? norm_.members() : "");
    if (!is_open_)
      return fmt::format(
                 "struct {} {{\n"
                 "  using stored = {};\n"
                 "  static constexpr int lines = {}, depth = {};\n"
                 "  static constexpr index_t line_stride = {}, depth_stride = {};\n",
                 name, stored, operand.lines, operand.depth, operand.line_stride,
                 operand.depth_stride) +
             access;
    const bool is_a = name == "A";
    const auto& from = is_a ? problem_.a : problem_.b;
    return fmt::format("struct {}Map {{\n  using stored = {};\n  const stored* from;\n", name,
                       stored) +
           member("int", "lines", is_a ? problem_.m : problem_.n) +
           member("int", "depth", problem_.k) +
           member("index_t", "line_stride", is_a ? from.row_stride : from.column_stride) +
           member("index_t", "depth_stride", is_a ? from.column_stride : from.row_stride) + access +
           fmt::format("using {} = Open<{}Map>;\n", name, name);
  }
  // The operands' members that are known now.
  std::string print_members() const {
    std::string text;
    const auto set = [&](std::string_view member, std::string_view type, const Dim& size) {
      if (!size.is_constant())
        text += fmt::format("  {} = static_cast<{}>({});\n", member, type, size);
    };
    set("a.lines", "int", problem_.m);
    set("a.depth", "int", problem_.k);
    set("a.line_stride", "index_t", problem_.a.row_stride);
    set("a.depth_stride", "index_t", problem_.a.column_stride);
    set("b.lines", "int", problem_.n);
    set("b.depth", "int", problem_.k);
    set("b.line_stride", "index_t", problem_.b.column_stride);
    set("b.depth_stride", "index_t", problem_.b.row_stride);
    return text;
  }

  // Pointers `a` and `b` to the matrices of batch number `batch`.
  std::string print_pointers() const {
    std::string text;
    for (const auto& [name, operand] : {std::pair{"a", &problem_.a}, std::pair{"b", &problem_.b}}) {
      const std::string declared =
          is_open_
              ? fmt::format("  {} {};\n  {}.from", name == std::string_view("a") ? "A" : "B", name,
                            name)
              : fmt::format("  const {}* {}", memory_type(stored(operand == &problem_.a)), name);
      const bool in_words = operand == &problem_.b && problem_.word_depth > 0;
      text += fmt::format(
          "{} = {}in{}{} + ({}", declared,
          in_words ? fmt::format("reinterpret_cast<const {}*>(", memory_type(stored(false))) : "",
          operand->input, in_words ? ")" : "", long_text(operand->offset));
      for (size_t axis = problem_.batch.size(); axis-- > 0;)
        if (!operand->batch_strides[axis].is(0))
          text += fmt::format(" + {} * {}", coordinate_text("batch", problem_.batch, axis),
                              long_text(operand->batch_strides[axis]));
      text += ");\n";
    }
    if (is_open_) text += print_members();
    if (counts_rows())
      text += fmt::format("  const int64_t shift = {}L - {};\n  a -= shift * A::line_stride;\n",
                          kCountedRows, problem_.m);
    return text;
  }

  const Graph& graph_;
  const CudaMatmulSchedule schedule_;
  const CudaFewRowsSchedule* few_rows_;  // or null
  const SizedMatmul problem_;
  const RmsNormText norm_;  // of few rows
  const bool is_open_;      // more than rows that are counted: see matmul_open.cuh
  const int lanes_;
};

Result<Source> print_fitting(const Graph& graph, const CudaMatmulSchedule& schedule,
                             const Schedule& named, const Target& target) {
  const bool constant = graph.symbols().empty();
  if (!constant && schedule.splits > 1)
    return fail(Code::kUnsupported,
                "CUDA kernels of products whose sizes have symbols are written without splits");
  TRY_STATUS(check_cluster(schedule, target));
  const SizedMatmul problem = SizedMatmul::of(graph);
  const bool fitting =
      constant ? fits(schedule, MatmulProblem::of(graph))
               : fits(schedule, problem) &&
                     (!problem.narrow || fits_groups(schedule, problem.b.dequantised->group));
  if (!fitting)
    return fail(Code::kInvalidArgument, "the operands do not allow " + named.to_string());
  return CudaMatmulKernel(graph, schedule).print(target);
}

}  // namespace

Status check_cluster(const CudaMatmulSchedule& schedule, const Target& target) {
  if (schedule.cluster <= cuda_limits(target).max_cluster) return {};
  return fail(Code::kUnsupported,
              fmt::format("clusters of {} blocks on {}", schedule.cluster, target.isa));
}

Result<Source> print_cuda_matmul(const Graph& graph, const CudaMatmulSchedule& schedule,
                                 const Target& target) {
  if (SizedMatmul::of(graph).stored == DType::kBool)
    return fail(Code::kUnsupported, "a matmul of bool on this target");
  return print_fitting(graph, schedule, to_schedule(schedule), target);
}

Result<Source> print_cuda_few_rows(const Graph& graph, const CudaFewRowsSchedule& schedule,
                                   const Target& target) {
  TRY_STATUS(check_cluster(schedule.tiles(), target));
  if (!fits(schedule, MatmulProblem::of(graph)))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return CudaMatmulKernel(graph, schedule.tiles(), &schedule).print(target);
}

Result<Source> print_cuda_narrow_matmul(const Graph& graph,
                                        const CudaNarrowMatmulSchedule& schedule,
                                        const Target& target) {
  return print_fitting(graph, schedule, to_schedule(schedule), target);
}

}  // namespace kiln
