#include "compiler_core/kernels/matmul/cuda_product_text.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace kiln {

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

int product_lanes(const Graph& graph, int64_t columns) {
  const DType out = graph.node(graph.outputs()[0]).dtype;
  return static_cast<int>(std::gcd(columns, std::min<int64_t>(8, 16 / size_of(out))));
}

int blocks_an_sm(const CudaMatmulSchedule& schedule, const MatmulProblem& problem) {
  const int by_registers =
      65536 / (schedule.threads() * ((schedule.registers(problem) + 7) / 8 * 8));
  const int by_shared = (228 << 10) / (schedule.shared_bytes(problem) + 1024);
  return std::clamp(std::min(by_registers, by_shared), 1, 2048 / schedule.threads());
}

std::string print_tiling(const CudaMatmulSchedule& schedule, DType result) {
  return fmt::format(
      "using Value = {};\n"
      "struct Tiling {{\n"
      "  static constexpr int rows = {}, columns = {}, depth = {}, stages = {};\n"
      "  static constexpr int warp_rows = {}, warp_columns = {};\n}};\n",
      value_type(result), schedule.bm, schedule.bn, schedule.bk, schedule.stages, schedule.warps_m,
      schedule.warps_n);
}

std::string_view sums_type(DType stored) {
  switch (stored) {
    case DType::kBF16:
      return "WarpSums<MmaBf16, A, B, Tiling>";
    case DType::kF16:
      return "WarpSums<MmaF16, A, B, Tiling>";
    case DType::kF32:
      return "WarpSums<MmaF32, A, B, Tiling>";
    default:
      return "ThreadSums<Value, A, B, Tiling>";
  }
}

std::string partial_sums(std::string_view split, const MatmulProblem& problem) {
  return fmt::format(
      "reinterpret_cast<Value*>(workspace) + (({} * {}L + batch) * {}L + row) * {}L + column",
      split, problem.batches, problem.m, problem.n);
}

std::string add_partial_sums(int splits, const MatmulProblem& problem) {
  return fmt::format(
      "  Vec<Value> sums = load<LANES>({}, AllLanes{{}});\n"
      "  _Pragma(\"unroll 4\") for (int split = 1; split < {}; ++split)\n"
      "    sums = sums + load<LANES>({}, AllLanes{{}});\n",
      partial_sums("0", problem), splits, partial_sums("split", problem));
}

}  // namespace kiln
