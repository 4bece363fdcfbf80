// The summed axis may be cut into pieces: their sums, what stands in front of each piece, and the
// running sums from there on are three phases then.
#include "compiler_core/kernels/scan/cpu_scan.h"

#include <fmt/core.h>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"

namespace kiln {
namespace {

class ScanKernel {
 public:
  ScanKernel(const Graph& graph, const CpuScanSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(SizedScan::of(graph)) {
    piece_ = extent_.size;
    if (extent_.size.is_constant()) {
      const int64_t size = extent_.size.constant();
      const int64_t piece = (size + schedule.split - 1) / schedule.split;
      piece_ = piece;
      pieces_ = (size + piece - 1) / piece;
    }
    if (!extent_.inner.is(1)) columns_ = int64_t{schedule.lanes} * schedule.unroll;
    strips_ = ceil_text(extent_.inner, columns_);
  }

  Source print() {
    source_.text = preamble(graph_, schedule_.lanes, {"scan.h"});
    source_.recipe = argument_recipe(graph_);
    if (pieces_ > 1) {
      const bool wide = extent_.dtype == DType::kF32 || size_of(extent_.dtype) == 8;
      source_.recipe.workspace_bytes = extent_.outer * extent_.inner * (pieces_ * (wide ? 8 : 4));
      add_phase("sums", "sum");
      add_offsets();
    }
    add_phase("kernel", "run");
    return source_;
  }

 private:
  // Totals of the pieces, then of what stands in front of each: [outer, pieces, inner].
  std::string totals() const {
    return fmt::format("  auto* totals = static_cast<total_of<{}>*>(workspace);\n",
                       memory_type(extent_.dtype));
  }

  void add_phase(const std::string& entry, const std::string& call) {
    std::string body = pieces_ > 1 ? totals() : "";
    body += fmt::format(
        "  for (int64_t block = begin; block < end; ++block) {{\n"
        "    const int64_t strip = block % {0}, line = block / {0};\n"
        "    const int64_t outer = line / {1}, from = line % {1} * {2};\n"
        "    const int64_t count = smaller({2}, {3} - from);\n"
        "    const int64_t at = (outer * {3} + from) * {4} + strip * {5};\n",
        strips_, pieces_, piece_, extent_.size, extent_.inner, columns_);
    const std::string total =
        pieces_ > 1
            ? fmt::format("totals + line * {} + strip * {}", extent_.inner, columns_)
            : fmt::format("static_cast<const total_of<{}>*>(nullptr)", memory_type(extent_.dtype));
    const std::string data = entry == "sums" ? "in0 + at" : "in0 + at, out0 + at";
    if (extent_.inner.is(1))
      body += fmt::format("    {}_row({}, count, {});\n", call, data, total);
    else
      body += fmt::format("    {}_columns<{}>({}, count, {}, smaller({}, {} - strip * {}), {});\n",
                          call, schedule_.unroll, data, extent_.inner, columns_, extent_.inner,
                          columns_, total);
    body += "  }\n";
    source_.text += entry_function(entry, graph_, body);
    source_.recipe.phases.push_back(
        {entry, Grid({{extent_.outer, 1}, {pieces_, 1}, {extent_.inner, columns_}})});
  }

  void add_offsets() {
    std::string body = totals();
    body += fmt::format(
        "  for (int64_t outer = begin; outer < end; ++outer)\n"
        "    running_offsets(totals + outer * {0}, {1}, {2});\n",
        extent_.inner * pieces_, pieces_, extent_.inner);
    source_.text += entry_function("offsets", graph_, body);
    source_.recipe.phases.push_back({"offsets", Grid(extent_.outer)});
  }

  const Graph& graph_;
  const CpuScanSchedule schedule_;
  const SizedScan extent_;
  Dim piece_ = 1;        // elements a piece
  int64_t pieces_ = 1;   // one where the axis' size has symbols
  int64_t columns_ = 1;  // a strip
  std::string strips_;   // C text
  Source source_;
};

}  // namespace

Result<Source> print_cpu_scan(const Graph& graph, const CpuScanSchedule& schedule) {
  return ScanKernel(graph, schedule).print();
}

}  // namespace kiln
