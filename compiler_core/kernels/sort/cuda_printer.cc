// Rows of any length are sorted in tiles and merged in as many phases as the longest needs: those
// that a row is too short for do nothing.
#include "compiler_core/kernels/sort/cuda_sort.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"

namespace kiln {
namespace {

constexpr int kMergeThreads = 256;
constexpr int64_t kMostSize = int64_t{1} << 32;  // positions have 32 bits

class CudaSortKernel {
 public:
  CudaSortKernel(const Graph& graph, const CudaSortSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(SizedSort::of(graph)) {
    most_ = std::min(upper_bound(extent_.size, graph.symbols()), kMostSize);
    const auto row = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(most_)));
    group_ = std::min<int64_t>(std::max<int64_t>(row, 2), schedule.tile);
    pieces_ = most_ > group_ ? ceil_text(extent_.size, group_) : "1";
    all_ = extent_.rows * extent_.size;
  }

  Source print() {
    source_.text = cuda_preamble(graph_, 1, {"sort_keys.h", "sort.cuh"});
    source_.recipe = argument_recipe(graph_);
    sort_tiles();
    bool swapped = false;
    for (int64_t run = group_; run < most_; run *= 2, swapped = !swapped) merge_runs(run, swapped);
    if (merges()) source_.recipe.workspace_bytes = all_ * (2 * entry_bytes());
    return std::move(source_);
  }

 private:
  bool is_open() const { return !extent_.size.is_constant(); }
  bool merges() const { return most_ > group_; }
  int64_t entry_bytes() const { return size_of(extent_.dtype) == 8 ? 16 : 8; }
  std::string entry() const { return fmt::format("entry_of<{}>", memory_type(extent_.dtype)); }

  // A tile is several groups, each a row or a piece of one.
  void sort_tiles() {
    std::string body = fmt::format(
        "  using Entry = {0};\n"
        "  Entry* const entries = reinterpret_cast<Entry*>(shared_memory());\n"
        "  constexpr int tile = {1}, group = {2};\n"
        "  const int64_t first = int64_t{{block_index()}} * (tile / group);\n"
        "  for (int i = thread_index(); i < tile; i += {3}) {{\n"
        "    const int64_t piece = first + i / group, row = piece / {4};\n"
        "    const int64_t at = piece % {4} * group + i % group;\n"
        "    const bool is_there = row < {5} && at < {6};\n"
        "    set_entry(entries[i], is_there ? sort_key<{7}>(in0 + row * {6} + at)\n"
        "                                   : greatest_key<{8}>(), is_there ? uint64_t(at) : ",
        entry(), schedule_.tile, group_, schedule_.threads, pieces_, extent_.rows, extent_.size,
        extent_.descending ? "true" : "false", memory_type(extent_.dtype));
    body += "0xffffffff);\n  }\n";
    const std::string keep = fmt::format(
        "reinterpret_cast<Entry*>(workspace)[row * {} + at] = entries[i]", extent_.size);
    const std::string leave =
        fmt::format("out0[row * {} + at] = position(entries[i])", extent_.size);
    const std::string put =
        !merges()    ? leave
        : !is_open() ? keep
                     : fmt::format("{{ if ({} > group) {}; else {}; }}", extent_.size, keep, leave);
    body += fmt::format("  sort_groups<{}, group, tile>(entries);\n", schedule_.threads);
    body += fmt::format(
        "  for (int i = thread_index(); i < tile; i += {0}) {{\n"
        "    const int64_t piece = first + i / group, row = piece / {1};\n"
        "    const int64_t at = piece % {1} * group + i % group;\n"
        "    if (row < {2} && at < {3}) {4};\n"
        "  }}\n",
        schedule_.threads, pieces_, extent_.rows, extent_.size, put);
    add_phase("tiles", body, tiles(), schedule_.threads,
              static_cast<int>(schedule_.tile * entry_bytes()));
  }

  // Several groups a tile only where a row is one.
  Grid tiles() const {
    const int64_t groups = schedule_.tile / group_;
    if (merges()) return Grid({GridAxis{extent_.rows}, GridAxis{extent_.size, group_}});
    return Grid({GridAxis{extent_.rows, groups}});
  }

  // The last merge leaves positions.
  void merge_runs(int64_t run, bool swapped) {
    std::string body = fmt::format(
        "  const int64_t at = int64_t{{block_index()}} * {0} + thread_index();\n"
        "  if (at >= {1}{4}) return;\n"
        "  auto* const entries = reinterpret_cast<{2}*>(workspace);\n"
        "  const int64_t row = at / {3} * {3};\n",
        kMergeThreads, all_, entry(), extent_.size,
        is_open() ? fmt::format(" || {} <= {}", extent_.size, run) : "");
    const auto merge = [&](const std::string& to) {
      return fmt::format("  merge_entry(entries + {} + row, {}, {}, at - row, {} + row);\n",
                         swapped ? all_ : Dim(0), run, extent_.size, to);
    };
    const std::string on = fmt::format("entries + {}", swapped ? Dim(0) : all_);
    if (!is_open())
      body += merge(2 * run >= most_ ? "out0" : on);
    else if (2 * run >= most_)
      body += merge("out0");
    else
      body += fmt::format("  if ({} <= {})\n  {}  else\n  {}", extent_.size, 2 * run, merge("out0"),
                          merge(on));
    add_phase(fmt::format("merge{}", run), body, Grid({GridAxis{all_, kMergeThreads}}),
              kMergeThreads, 0);
  }

  void add_phase(const std::string& name, const std::string& body, const Grid& blocks, int threads,
                 int shared_bytes) {
    source_.text += cuda_kernel(name, graph_, threads, 1, body);
    source_.recipe.phases.push_back({name, blocks, threads, 1, shared_bytes});
  }

  const Graph& graph_;
  const CudaSortSchedule schedule_;
  const SizedSort extent_;
  int64_t most_ = 1;    // entries of the longest row
  int64_t group_ = 1;   // entries sorted together
  std::string pieces_;  // C text: groups a row
  Dim all_ = 1;         // entries of all rows
  Source source_;
};

}  // namespace

Result<Source> print_cuda_sort(const Graph& graph, const CudaSortSchedule& schedule) {
  return CudaSortKernel(graph, schedule).print();
}

}  // namespace kiln
