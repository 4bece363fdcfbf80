// Phases: the operand is copied; tiles of updates are sorted by row, and merged; each row that has
// updates is computed anew. Of any number of updates, the merges that they are too few for do
// nothing.
#include "compiler_core/kernels/scatter/cuda_scatter.h"

#include <fmt/core.h>

#include <algorithm>
#include <bit>

#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/printing/value_text.h"
#include "compiler_core/kernels/scatter/scatter_text.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr int kCopyThreads = 256;
constexpr int kCopyVectors = 4;  // a thread
constexpr int kMergeThreads = 256;
constexpr int64_t kCudaChunk = 64;         // chunk_entries() in scatter.cuh
constexpr int64_t kMostRows = 0xfffffffe;  // a key has 32 bits, one value of which is taken

class CudaScatterKernel {
 public:
  CudaScatterKernel(const Graph& graph, const CudaScatterSchedule& schedule)
      : graph_(graph), schedule_(schedule), extent_(SizedScatter::of(graph)) {
    most_ = std::min(upper_bound(extent_.count, graph.symbols()), kMostRows);
  }

  Result<Source> print() {
    if (!is_multiple(extent_.row, schedule_.lanes))
      return fail(Code::kInvalidArgument, "the lanes of a scatter divide a row");
    const auto too_many = [](const Dim& size) {
      return size.is_constant() && size.constant() > kMostRows;
    };
    if (too_many(extent_.rows) || too_many(extent_.count))
      return fail(Code::kUnsupported, "a scatter of more than 2^32 rows or updates");
    source_.text =
        cuda_preamble(graph_, schedule_.lanes, {"sort_keys.h", "sort.cuh", "scatter.cuh"});
    source_.recipe = argument_recipe(graph_);
    source_.recipe.workspace_bytes = workspace_bytes();
    copy();
    sort_tiles();
    bool swapped = false;
    for (int64_t run = schedule_.tile; run < most_; run *= 2, swapped = !swapped)
      merge_runs(run, swapped);
    combine(swapped);
    return std::move(source_);
  }

 private:
  bool is_open() const { return !extent_.count.is_constant(); }

  void copy() {
    const Dim elements = extent_.rows * extent_.row;
    const int64_t block = int64_t{kCopyThreads} * kCopyVectors * schedule_.lanes;
    const std::string body = fmt::format(
        "  const int64_t first = int64_t{{block_index()}} * {0} + thread_index() * LANES;\n"
        "  _Pragma(\"unroll\") for (int u = 0; u < {1}; ++u) {{\n"
        "    const int64_t at = first + u * {2} * LANES;\n"
        "    if (at < {3}) store<LANES>(out0 + at, load<LANES>(in{4} + at, AllLanes{{}}), "
        "AllLanes{{}});\n"
        "  }}\n",
        block, kCopyVectors, kCopyThreads, elements, extent_.x);
    add_phase("copy", body, Grid({GridAxis{elements, block}}), kCopyThreads, 0);
  }

  void sort_tiles() {
    const int threads = std::clamp(schedule_.tile / 2, 32, 1024);
    const std::string body = fmt::format(
        "  RowEntry* const entries = reinterpret_cast<RowEntry*>(shared_memory());\n"
        "  const int64_t first = int64_t{{block_index()}} * {0};\n"
        "  for (int i = thread_index(); i < {0}; i += {1})\n"
        "    set_entry(entries[i], first + i < {2} ? scatter_row(in{3}[first + i], {4}) : "
        "kDropped,\n"
        "              static_cast<uint64_t>(first + i));\n"
        "  sort_groups<{1}, {0}, {0}>(entries);\n"
        "  for (int i = thread_index(); i < {0}; i += {1})\n"
        "    if (first + i < {2}) reinterpret_cast<RowEntry*>(workspace)[first + i] = "
        "entries[i];\n",
        schedule_.tile, threads, extent_.count, extent_.index, extent_.rows);
    add_phase("tiles", body, Grid({GridAxis{extent_.count, schedule_.tile}}), threads,
              schedule_.tile * 8);
  }

  void merge_runs(int64_t run, bool swapped) {
    const std::string body = fmt::format(
        "  const int64_t at = int64_t{{block_index()}} * {0} + thread_index();\n"
        "  if (at >= {1}{5}) return;\n"
        "  RowEntry* const entries = reinterpret_cast<RowEntry*>(workspace);\n"
        "  merge_entry(entries + {2}, {3}, {1}, at, entries + {4});\n",
        kMergeThreads, extent_.count, swapped ? extent_.count : Dim(0), run,
        swapped ? Dim(0) : extent_.count,
        is_open() ? fmt::format(" || {} <= {}", extent_.count, run) : "");
    add_phase(fmt::format("merge{}", run), body, Grid({GridAxis{extent_.count, kMergeThreads}}),
              kMergeThreads, 0);
  }

  // Rows with more updates than one thread should take: chunks of them first.
  void combine(bool swapped) {
    const auto vectors =
        static_cast<uint64_t>(size_at_hints(graph_, extent_.row) / schedule_.lanes);
    const int64_t across =
        std::min<int64_t>(static_cast<int64_t>(std::bit_ceil(vectors)), schedule_.threads);
    const int64_t groups = schedule_.threads / across;
    const std::string arguments =
        fmt::format("<{}, {}, {}>(entries, {}, at", combination(extent_.combine), across,
                    register_type(extent_.dtype), extent_.count);
    const std::string position =
        fmt::format("  const int64_t at = int64_t{{block_index()}} * {} + thread_index() / {};\n",
                    groups, across);
    const std::string begin =
        is_open() ? fmt::format("(ends_swapped({0}, {1}) ? {1} : 0)", schedule_.tile, extent_.count)
                  : size_text(swapped ? extent_.count : Dim(0));
    const std::string pointers = fmt::format(
        "  const RowEntry* const entries = reinterpret_cast<const RowEntry*>(workspace) + {};\n"
        "  {}* const partials = reinterpret_cast<{}*>(workspace + {});\n",
        begin, partial_type(), partial_type(), entries_bytes());
    if (most_ > kCudaChunk)
      add_phase(
          "partials",
          position + fmt::format("  if (at == 0 || at >= {}) return;\n{}  combine_chunk{}, in{}, "
                                 "partials, {});\n",
                                 ceil_text(extent_.count, kCudaChunk), pointers, arguments,
                                 extent_.updates, extent_.row),
          Grid({GridAxis{extent_.count, kCudaChunk * groups}}), schedule_.threads, 0);
    add_phase("kernel",
              position + fmt::format("  if (at >= {}) return;\n{}  combine_row{}, in{}, in{}, "
                                     "partials, out0, {});\n",
                                     extent_.count, pointers, arguments, extent_.x, extent_.updates,
                                     extent_.row),
              Grid({GridAxis{extent_.count, groups}}), schedule_.threads, 0);
  }

  std::string_view partial_type() const {
    const std::string_view type = register_type(extent_.dtype);
    return type == "vf32"   ? "float"
           : type == "vf64" ? "double"
           : type == "vi64" ? "int64_t"
                            : "int";
  }
  // Two arrays of entries, in whole lines of 256 bytes.
  std::string entries_bytes() const {
    if (!is_open()) return std::to_string((extent_.count.constant() * 16 + 255) / 256 * 256);
    return fmt::format("{} * 256", ceil_text(extent_.count * 16, 256));
  }
  // Those, and partial results of each chunk; of any number of updates somewhat more than that,
  // since it has to be a polynomial.
  Dim workspace_bytes() const {
    const Dim entries = round_up(extent_.count * 16, 256);
    const auto chunks = ceil_divide(extent_.count, kCudaChunk);
    const Dim partials =
        chunks ? *chunks * extent_.row * 8 : extent_.count * extent_.row + extent_.row * 8;
    return entries + partials;
  }

  void add_phase(const std::string& name, const std::string& body, const Grid& blocks, int threads,
                 int shared_bytes) {
    source_.text += cuda_kernel(name, graph_, threads, 1, body);
    source_.recipe.phases.push_back({name, blocks, threads, 1, shared_bytes});
  }

  const Graph& graph_;
  const CudaScatterSchedule schedule_;
  const SizedScatter extent_;
  int64_t most_ = 0;  // updates
  Source source_;
};

}  // namespace

Result<Source> print_cuda_scatter(const Graph& graph, const CudaScatterSchedule& schedule) {
  return CudaScatterKernel(graph, schedule).print();
}

}  // namespace kiln
