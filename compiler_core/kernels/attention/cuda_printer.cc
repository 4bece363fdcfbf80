#include "compiler_core/kernels/attention/cuda_attention.h"

#include <fmt/core.h>

#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"

namespace kiln {
namespace {

class CudaAttentionKernel {
 public:
  CudaAttentionKernel(const Graph& graph, const CudaAttentionSchedule& schedule)
      : graph_(graph), schedule_(schedule), text_(graph, schedule.warps * 16, schedule.keys) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    source.text = cuda_preamble(graph_, text_.lanes(), {"mma.cuh"});
    source.text += text_.print_problem() + print_tiling() +
                   std::string(device_text("attention_seen.cuh")) +
                   std::string(device_text("attention.cuh"));
    source.text += cuda_kernel("attend_blocks", graph_, schedule_.threads(), 1, print_body());
    Phase phase;
    phase.entry = "attend_blocks";
    phase.grid = Grid({GridAxis{text_.problem().batches}, GridAxis{text_.problem().rows, rows()}});
    phase.threads = schedule_.threads();
    phase.shared_bytes = schedule_.shared_bytes(text_.problem());
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  int64_t rows() const { return text_.rows(); }

  std::string print_tiling() const {
    const int64_t bytes = size_of(text_.problem().stored);
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int warps = {0}, row_warps = {0}, keys = {1}, stages = {2};\n"
        "  static constexpr int depth = {3}, columns = {4};\n}};\n",
        schedule_.warps, schedule_.keys, schedule_.stages, shared_row(text_.problem().depth, bytes),
        shared_row(text_.problem().columns, bytes));
  }

  std::string print_body() const {
    return fmt::format(
               "  const int block = static_cast<int>(block_index());\n"
               "  const index_t batch = block / {0};\n"
               "  const int first_row = block % {0} * {1};\n",
               text_.row_blocks(), rows()) +
           print_batch_coordinates(text_.problem().batch) + text_.print_sizes() +
           text_.print_pointers() + text_.print_scores(text_.problem().pattern.query_key) +
           text_.print_store() + text_.print_store_log_sum() +
           fmt::format(
               "  attend<{}>(problem, query, key, value, first_row, shared_memory(), scores, "
               "within, store_result, store_log_sum);\n",
               attention_core(text_.problem().stored));
  }

  const Graph& graph_;
  const CudaAttentionSchedule schedule_;
  const AttentionText text_;
};

}  // namespace

std::string_view attention_core(DType stored) {
  switch (stored) {
    case DType::kBF16:
      return "MmaBf16";
    case DType::kF16:
      return "MmaF16";
    default:
      return "MmaF32";
  }
}

Result<Source> print_cuda_attention(const Graph& graph, const CudaAttentionSchedule& schedule) {
  return CudaAttentionKernel(graph, schedule).print();
}

}  // namespace kiln
