#include "compiler_core/kernels/matmul/cpu_product.h"

#include <fmt/core.h>

#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

int64_t sum_bytes(DType result) {
  return result == DType::kF64 || result == DType::kI64 ? 8 : 4;
}

std::string CpuEpilogue::text() const {
  ExpressionPrinter printer(graph);
  printer.bind(product, {"acc", Level::kInner});
  printer.store(0, at);
  const std::string kernel = printer.take(Level::kKernel, 4);
  const std::string outer = printer.take(Level::kOuter, 4);
  const bool holds = !name.empty();
  return fmt::format(
      "struct Epilogue {{\n  void* const* args;\n{}"
      "  template <class Live>\n"
      "  KILN_INLINE void store_vector(void* const* args, {}Real sums, int64_t batch, int64_t "
      "row,\n"
      "                                int64_t column, Live live) {{\n"
      "{}{}    const Real acc = {}(sums);\n{}{}{}{}  }}\n"
      "  template <class Live>\n"
      "  __attribute__((always_inline)) void operator()(Real sums, int64_t batch, int64_t row,\n"
      "                                                 int64_t column, Live live) const {{\n"
      "    store_vector(args, {}sums, batch, row, column, live);\n  }}\n}};\n",
      holds ? fmt::format("  {} {};\n", type, name) : "",
      holds ? fmt::format("{} {}, ", type, name) : "", argument_pointers(workload), before,
      wrapping(result), behind, kernel, outer, printer.take(Level::kInner, 4),
      holds ? name + ", " : "");
}

}  // namespace kiln
