#include "compiler_core/kernels/scatter/cpu_scatter.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"
#include "compiler_core/kernels/scatter/scatter_text.h"

namespace kiln {
namespace {

constexpr int64_t kAlignment = 64;    // of what lies in the workspace
constexpr int64_t kChunk = 16384;     // updates that a block sorts
constexpr int64_t kMostChunks = 256;  // each has a table of the parts
constexpr int64_t kChunksOfUnknown = 64;

int64_t ceil_quotient(int64_t a, int64_t b) {
  return (a + b - 1) / b;
}

// A size in parts of equal size; of one with symbols some may be empty.
struct Parts {
  std::string of_one;  // C text of a part's size
  int64_t count;

  // At most `wanted`, each of `least` where that is known.
  static Parts of(const Dim& size, int64_t wanted, int64_t least = 1) {
    if (!size.is_constant()) return {ceil_text(size, wanted), wanted};
    const int64_t part = std::max(least, ceil_quotient(size.constant(), wanted));
    return {std::to_string(part), ceil_quotient(size.constant(), part)};
  }
};

class ScatterKernel {
 public:
  ScatterKernel(const Graph& graph, const CpuScatterSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        extent_(SizedScatter::of(graph)),
        rows_(Parts::of(extent_.rows, schedule.parts)),
        columns_(Parts::of(extent_.row, schedule.columns)),
        chunks_(Parts::of(extent_.count,
                          extent_.count.is_constant() ? kMostChunks : kChunksOfUnknown, kChunk)) {}

  Source print() {
    source_.text = preamble(graph_, schedule_.lanes, {"scatter.h"});
    source_.recipe = argument_recipe(graph_);
    if (schedule_.sorted) sort_by_part();
    if (extent_.meets_in_f32()) sums_ = allocate("float", extent_.rows * extent_.row * 4);
    print_kernel();
    source_.recipe.workspace_bytes = workspace_bytes_;
    return source_;
  }

 private:
  // Room in the workspace: the C text of a pointer to it, aligned as far as sizes are known.
  std::string allocate(std::string_view type, const Dim& bytes) {
    std::string pointer = fmt::format("reinterpret_cast<{}*>(static_cast<char*>(workspace) + {})",
                                      type, workspace_bytes_);
    workspace_bytes_ =
        workspace_bytes_ + (bytes.is_constant() ? round_up(bytes, kAlignment) : bytes);
    return pointer;
  }

  void add_phase(const std::string& entry, const std::string& block, int64_t grid) {
    source_.text += entry_function(
        entry, graph_, "  for (int64_t block = begin; block < end; ++block) {\n" + block + "  }\n");
    source_.recipe.phases.push_back({entry, grid});
  }

  // Counting sort: places_[chunk][part] is where the chunk's updates of the part begin in list_.
  // The last part is that of dropped updates.
  void sort_by_part() {
    places_ = allocate("int64_t", chunks_.count * (rows_.count + 1) * 8);
    list_ = allocate("int64_t", extent_.count * 8);
    const std::string chunk = fmt::format(
        "    const int64_t from = block * {0}, to = smaller(from + {0}, {1});\n"
        "    int64_t* places = {2} + block * {3};\n",
        chunks_.of_one, extent_.count, places_, rows_.count + 1);
    const std::string part = fmt::format("part_of(in{}[k], {}, {}, {})", extent_.index,
                                         extent_.rows, rows_.of_one, rows_.count);
    add_phase("count",
              chunk + fmt::format("    for (int64_t part = 0; part <= {}; ++part) places[part] = "
                                  "0;\n"
                                  "    for (int64_t k = from; k < to; ++k) ++places[{}];\n",
                                  rows_.count, part),
              chunks_.count);
    add_phase(
        "places",
        fmt::format("    count_to_places({}, {}, {});\n", places_, chunks_.count, rows_.count + 1),
        1);
    add_phase("sort",
              chunk + fmt::format("    for (int64_t k = from; k < to; ++k) {}[places[{}]++] = k;\n",
                                  list_, part),
              chunks_.count);
  }

  void print_kernel() {
    std::string body = fmt::format(
        "    const int64_t part = block / {0};\n"
        "    const int64_t row_begin = part * {1}, row_end = smaller(row_begin + {1}, {2});\n"
        "    const int64_t from = block % {0} * {3}, width = smaller({3}, {4} - from);\n",
        columns_.count, rows_.of_one, extent_.rows, columns_.of_one, extent_.row);
    const std::string to = sums_.empty() ? "out0" : sums_;
    body += fmt::format(
        "    auto* const to = {0} + from;\n"
        "    for (int64_t row = row_begin; row < row_end; ++row)\n"
        "      combine_row<Replace>(to + row * {1}, in{2} + row * {1} + from, width);\n",
        to, extent_.row, extent_.x);
    // After the sort a place is where the chunk's updates of the part end.
    if (schedule_.sorted)
      body += fmt::format(
          "    const int64_t* const ends = {0} + {1};\n"
          "    const int64_t first = part == 0 ? 0 : ends[part - 1], last = ends[part];\n"
          "    for (int64_t i = first; i < last; ++i) {{\n"
          "      const int64_t k = {2}[i];\n",
          places_, (chunks_.count - 1) * (rows_.count + 1), list_);
    else
      body += fmt::format("    for (int64_t k = 0; k < {}; ++k) {{\n", extent_.count);
    body += fmt::format(
        "      const int64_t row = scatter_row(in{0}[k], {1});\n"
        "      if (row < row_begin || row >= row_end) continue;\n"
        "      combine_row<{2}>(to + row * {3}, in{4} + k * {3} + from, width);\n"
        "    }}\n",
        extent_.index, extent_.rows, combination(extent_.combine), extent_.row, extent_.updates);
    if (!sums_.empty())
      body += fmt::format(
          "    for (int64_t row = row_begin; row < row_end; ++row)\n"
          "      round_row(out0 + row * {0} + from, to + row * {0}, width);\n",
          extent_.row);
    add_phase("kernel", body, rows_.count * columns_.count);
  }

  const Graph& graph_;
  const CpuScatterSchedule schedule_;
  const SizedScatter extent_;
  const Parts rows_, columns_;        // of the operand
  const Parts chunks_;                // of the updates
  std::string sums_, places_, list_;  // pointers into the workspace
  Dim workspace_bytes_ = 0;
  Source source_;
};

}  // namespace

Result<Source> print_cpu_scatter(const Graph& graph, const CpuScatterSchedule& schedule) {
  return ScatterKernel(graph, schedule).print();
}

}  // namespace kiln
