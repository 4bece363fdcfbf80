#include "compiler_core/kernels/sort/cpu_sort.h"

#include <fmt/core.h>

#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"

namespace kiln {
namespace {

class SortKernel {
 public:
  SortKernel(const Graph& graph, const CpuSortSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(SizedSort::of(graph)) {
    if (!extent_.size.is_constant()) return;
    const int64_t size = extent_.size.constant();
    piece_ = (size + schedule.split - 1) / schedule.split;
    pieces_ = (size + piece_ - 1) / piece_;
  }

  Source print() {
    source_.text = preamble(graph_, 8, {"sort_keys.h", "sort.h"});
    source_.recipe = argument_recipe(graph_);
    const int64_t entry = sort_entry_bytes(extent_.dtype);
    if (pieces_ == 1) {
      // Scratch is of constant size: rows of unknown length have places of their own.
      const bool known = extent_.size.is_constant();
      if (known)
        source_.recipe.scratch_bytes = 2 * extent_.size.constant() * entry;
      else
        source_.recipe.workspace_bytes = extent_.rows * extent_.size * (2 * entry);
      const std::string at = known ? "" : fmt::format(" + 2 * block * {}", extent_.size);
      add_phase("kernel", known ? "scratch" : "workspace", 0,
                fmt::format("    Entry* row = entries{};\n"
                            "    fill_entries<{}>(in0 + block * {}, 0, {}, row);\n"
                            "    row = sort_entries<{}>(row, row + {}, {});\n"
                            "    for (int64_t i = 0; i < {}; ++i)\n"
                            "      out0[block * {} + i] = position(row[i]);\n",
                            at, descending(), extent_.size, extent_.size, schedule_.digit,
                            extent_.size, extent_.size, extent_.size, extent_.size));
      return source_;
    }
    source_.recipe.workspace_bytes = extent_.rows * extent_.size * (2 * entry);
    sort_pieces();
    bool swapped = false;
    for (int64_t run = piece_; run < extent_.size.constant(); run *= 2, swapped = !swapped)
      merge_runs(run, swapped);
    return source_;
  }

 private:
  const char* descending() const { return extent_.descending ? "true" : "false"; }

  // A block is a row, or a piece of one: `from` to `to` of the row at `base`. The workspace is two
  // arrays of all rows' entries.
  void add_phase(const std::string& entry, const char* memory, int64_t number,
                 const std::string& block) {
    std::string body = fmt::format(
        "  using Entry = entry_of<{}>;\n"
        "  Entry* entries = static_cast<Entry*>({});\n"
        "  for (int64_t block = begin; block < end; ++block) {{\n",
        memory_type(extent_.dtype), memory);
    if (pieces_ > 1)
      body += fmt::format(
          "    const int64_t base = block / {0} * {1}, from = block % {0} * {2};\n"
          "    const int64_t to = smaller(from + {2}, {1});\n",
          pieces_, extent_.size, piece_);
    const std::string name = number > 0 ? fmt::format("{}{}", entry, number) : entry;
    source_.text += entry_function(name, graph_, body + block + "  }\n");
    source_.recipe.phases.push_back({name, Grid(extent_.rows * pieces_)});
  }

  void sort_pieces() {
    add_phase("pieces", "workspace", 0,
              fmt::format("    Entry* piece = entries + base + from;\n"
                          "    fill_entries<{}>(in0 + base, from, to, piece);\n"
                          "    Entry* sorted = sort_entries<{}>(piece, piece + {}, to - from);\n"
                          "    if (sorted != piece)\n"
                          "      __builtin_memcpy(piece, sorted, (to - from) * sizeof(Entry));\n",
                          descending(), schedule_.digit, extent_.rows * extent_.size));
  }

  // The last merge leaves positions.
  void merge_runs(int64_t run, bool swapped) {
    const Dim all = extent_.rows * extent_.size;
    const bool last = 2 * run >= extent_.size.constant();
    const std::string to =
        last ? "out0 + base" : fmt::format("entries + {} + base", swapped ? Dim(0) : all);
    add_phase("merge", "workspace", run,
              fmt::format("    merge_runs(entries + {} + base, {}, {}, {}, from, to);\n",
                          swapped ? all : Dim(0), run, extent_.size, to));
  }

  const Graph& graph_;
  const CpuSortSchedule schedule_;
  const SizedSort extent_;
  int64_t piece_ = 1, pieces_ = 1;  // one piece where the size has symbols
  Source source_;
};

}  // namespace

Result<Source> print_cpu_sort(const Graph& graph, const CpuSortSchedule& schedule) {
  return SortKernel(graph, schedule).print();
}

}  // namespace kiln
