// The summed axis may be cut into pieces: their sums, what stands in front of each piece, and the
// running sums from there on are three phases then. Every sum is taken in a fixed order.
#include "compiler_core/codegen/cuda/scan.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/codegen/cuda/kernel_text.h"
#include "compiler_core/codegen/value_text.h"
#include "compiler_core/tune/axis_extents.h"

namespace kiln {
namespace {

constexpr int kOffsetThreads = 128;

int64_t ceil_divide(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

class CudaScanKernel {
 public:
  CudaScanKernel(const Graph& graph, const CudaScanSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(ScanExtent::of(graph)) {
    const int64_t tile = rows() ? int64_t{schedule.threads} * schedule.lanes : 1;
    piece_ = ceil_divide(ceil_divide(extent_.size, schedule.split), tile) * tile;
    pieces_ = ceil_divide(extent_.size, piece_);
    columns_ = rows() ? 1 : int64_t{schedule.threads} * schedule.lanes;
    strips_ = ceil_divide(extent_.inner, columns_);
  }

  Result<Source> print() {
    if (!rows() && extent_.inner % schedule_.lanes != 0)
      return fail(Code::kInvalidArgument, "the lanes of a scan divide its columns");
    source_.text = cuda_preamble(graph_, schedule_.lanes, {"scan.cuh"});
    source_.recipe = argument_recipe(graph_);
    if (pieces_ > 1) {
      source_.recipe.workspace_bytes = extent_.outer * pieces_ * extent_.inner * 8;
      add_lines("sums", "sum");
      add_offsets();
    }
    add_lines("kernel", "run");
    return std::move(source_);
  }

 private:
  bool rows() const { return extent_.inner == 1; }

  // What the pieces add up to, then what stands in front of each: [outer, pieces, inner].
  std::string totals() const {
    return fmt::format("  auto* const totals = reinterpret_cast<total_of<{}>*>(workspace);\n",
                       memory_type(extent_.dtype));
  }

  // Of the begin of a row, in elements.
  int64_t row_alignment() const {
    int64_t alignment = schedule_.lanes;
    while (extent_.outer > 1 && extent_.size % alignment != 0) alignment /= 2;
    return alignment;
  }

  void add_lines(const std::string& entry, const std::string& call) {
    std::string body = pieces_ > 1 ? totals() : "";
    body += fmt::format(
        "  const int64_t strip = block_index() % {0}, line = block_index() / {0};\n"
        "  const int64_t outer = line / {1}, from = line % {1} * {2};\n"
        "  const int64_t left = {3} - from, count = left < {2} ? left : {2};\n",
        strips_, pieces_, piece_, extent_.size);
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
    add_phase(entry, body, extent_.outer * pieces_ * strips_, schedule_.threads);
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
        kOffsetThreads, extent_.outer * extent_.inner, extent_.inner, pieces_ * extent_.inner,
        pieces_);
    add_phase("offsets", body, ceil_divide(extent_.outer * extent_.inner, kOffsetThreads),
              kOffsetThreads);
  }

  void add_phase(const std::string& entry, const std::string& body, int64_t blocks, int threads) {
    source_.text += cuda_kernel(entry, graph_, threads, 1, body);
    source_.recipe.phases.push_back({entry, blocks, threads, 1, rows() ? 32 * 8 : 0});
  }

  const Graph& graph_;
  const CudaScanSchedule schedule_;
  const ScanExtent extent_;
  int64_t piece_ = 1, pieces_ = 1;    // elements of the summed axis
  int64_t columns_ = 1, strips_ = 1;  // columns a block
  Source source_;
};

}  // namespace

Result<Source> lower_cuda_scan(const Graph& graph, const CudaScanSchedule& schedule) {
  return CudaScanKernel(graph, schedule).print();
}

}  // namespace kiln
