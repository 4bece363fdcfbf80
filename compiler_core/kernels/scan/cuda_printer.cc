// The summed axis may be cut into pieces: their sums, what stands in front of each piece, and the
// running sums from there on are three phases then. Every sum is taken in a fixed order. Where the
// axis is of any length, its pieces are a constant number, the last of which may be empty.
#include "compiler_core/kernels/scan/cuda_scan.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"

namespace kiln {
namespace {

constexpr int kOffsetThreads = 128;

class CudaScanKernel {
 public:
  CudaScanKernel(const Graph& graph, const CudaScanSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(SizedScan::of(graph)) {
    const int64_t tile = rows() ? int64_t{schedule.threads} * schedule.lanes : 1;
    columns_ = rows() ? 1 : int64_t{schedule.threads} * schedule.lanes;
    if (extent_.size.is_constant()) {
      const int64_t size = extent_.size.constant();
      const int64_t piece = ceil_div(ceil_div(size, schedule.split), tile) * tile;
      piece_ = std::to_string(piece);
      pieces_ = ceil_div(size, piece);
    } else {
      piece_ = fmt::format("(({} + {}) / {} * {})", extent_.size, schedule.split * tile - 1,
                           schedule.split * tile, tile);
      pieces_ = schedule.split;
    }
  }

  Result<Source> print() {
    if (!rows() && !is_multiple(extent_.inner, schedule_.lanes))
      return fail(Code::kInvalidArgument, "the lanes of a scan divide its columns");
    source_.text = cuda_preamble(graph_, schedule_.lanes, {"scan.cuh"});
    source_.recipe = argument_recipe(graph_);
    if (pieces_ > 1) {
      source_.recipe.workspace_bytes = extent_.outer * extent_.inner * (pieces_ * 8);
      add_lines("sums", "sum");
      add_offsets();
    }
    add_lines("kernel", "run");
    return std::move(source_);
  }

 private:
  bool rows() const { return extent_.inner.is(1); }

  // Totals of the pieces, then of what stands in front of each: [outer, pieces, inner].
  std::string totals() const {
    return fmt::format("  auto* const totals = reinterpret_cast<total_of<{}>*>(workspace);\n",
                       memory_type(extent_.dtype));
  }

  // The alignment of a row's begin, in elements.
  int64_t row_alignment() const {
    int64_t alignment = schedule_.lanes;
    while (!extent_.outer.is(1) && !is_multiple(extent_.size, alignment)) alignment /= 2;
    return alignment;
  }

  void add_lines(const std::string& entry, const std::string& call) {
    std::string body = pieces_ > 1 ? totals() : "";
    body += fmt::format(
        "  const int64_t strip = block_index() % {0}, line = block_index() / {0};\n"
        "  const int64_t outer = line / {1}, from = line % {1} * {2};\n"
        "  const int64_t left = {3} - from, count = left < {2} ? left : {2};\n",
        ceil_text(extent_.inner, columns_), pieces_, piece_, extent_.size);
    const std::string total = pieces_ > 1 ? "totals + line"
                                          : fmt::format("static_cast<const total_of<{}>*>(nullptr)",
                                                        memory_type(extent_.dtype));
    const std::string data = entry == "sums" ? "in0 + at" : "in0 + at, out0 + at";
    if (rows())
      body += fmt::format(
          "  const int64_t at = outer * {} + from;\n"
          "  {}_row<{}, {}>({}, count, {});\n",
          extent_.size, call, schedule_.threads, row_alignment(), data, total);
    else
      body += fmt::format(
          "  const int64_t column = strip * {0} + thread_index() * LANES;\n"
          "  if (column >= {1}) return;\n"
          "  const int64_t at = (outer * {2} + from) * {1} + column;\n"
          "  {3}_column({4}, count, {1}, {5});\n",
          columns_, extent_.inner, extent_.size, call, data,
          pieces_ > 1 ? fmt::format("{} * {} + column", total, extent_.inner) : total);
    add_phase(entry, body,
              Grid({GridAxis{extent_.outer * pieces_}, GridAxis{extent_.inner, columns_}}),
              schedule_.threads);
  }

  void add_offsets() {
    std::string body = totals();
    if (rows()) {
      body += fmt::format("  running_offsets<{0}>(totals + int64_t{{block_index()}} * {1}, {1});\n",
                          kOffsetThreads, pieces_);
      return add_phase("offsets", body, extent_.outer, kOffsetThreads);
    }
    body += fmt::format(
        "  const int64_t at = int64_t{{block_index()}} * {0} + thread_index();\n"
        "  if (at >= {1}) return;\n"
        "  running_offsets_down(totals + at / {2} * {3} + at % {2}, {4}, {2});\n",
        kOffsetThreads, extent_.outer * extent_.inner, extent_.inner, extent_.inner * pieces_,
        pieces_);
    add_phase("offsets", body, Grid({GridAxis{extent_.outer * extent_.inner, kOffsetThreads}}),
              kOffsetThreads);
  }

  void add_phase(const std::string& entry, const std::string& body, const Grid& blocks,
                 int threads) {
    source_.text += cuda_kernel(entry, graph_, threads, 1, body);
    source_.recipe.phases.push_back({entry, blocks, threads, 1, rows() ? 32 * 8 : 0});
  }

  const Graph& graph_;
  const CudaScanSchedule schedule_;
  const SizedScan extent_;
  std::string piece_;  // C text: elements of the summed axis
  int64_t pieces_ = 1;
  int64_t columns_ = 1;  // a block
  Source source_;
};

}  // namespace

Result<Source> print_cuda_scan(const Graph& graph, const CudaScanSchedule& schedule) {
  return CudaScanKernel(graph, schedule).print();
}

}  // namespace kiln
