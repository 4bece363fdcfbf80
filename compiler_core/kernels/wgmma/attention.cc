#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/wgmma/operand_maps.h"
#include "compiler_core/kernels/wgmma/wgmma_attention.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {
namespace {

constexpr int kAttentionSharedBytes = 227 << 10;

tl::unexpected<Error> attention_lacks(std::string_view what) {
  return fail(Code::kUnsupported,
              fmt::format("wgmma kernels of attention are not written for {}", what));
}

int64_t shared_bytes(const WgmmaAttentionSchedule& schedule, const AttentionProblem& problem) {
  const int64_t depth = round_up(problem.depth, kBoxWidth),
                room = round_up(problem.columns, kBoxWidth);
  const int64_t tile = schedule.keys * depth + round_up(schedule.keys, kBoxWidth) * room;
  return 2 * (schedule.groups * 64 * depth + schedule.stages * tile) + 8 + 32 * schedule.stages +
         1024;
}

// Scores in f32 and as weights, and sums.
bool fits(const WgmmaAttentionSchedule& schedule, const AttentionProblem& problem) {
  const int64_t held = schedule.keys / 2 + schedule.keys / 4 + round_up(problem.columns, 8) / 2;
  // ptxas refuses a product of more keys where three blocks leave a thread 80 registers to begin.
  constexpr int kMostKeysOfThree = 96;
  if (schedule.blocks == 3 && (schedule.keys > kMostKeysOfThree || held > 104)) return false;
  return schedule.blocks * shared_bytes(schedule, problem) <= kAttentionSharedBytes &&
         held <= (schedule.groups == 3 || schedule.blocks == 2 ? 128 : 192);
}

class WgmmaAttentionKernel {
 public:
  WgmmaAttentionKernel(const Graph& graph, const WgmmaAttentionSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        text_(graph, schedule.groups * 64, schedule.keys),
        problem_(text_.problem()),
        columns_(static_cast<int>(round_up(problem_.columns, 8))),
        boxes_(ends_in_boxes()) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    Phase phase;
    phase.entry = "attend_blocks";
    phase.grid = Grid({GridAxis{problem_.batches}, GridAxis{problem_.rows, text_.rows()}});
    phase.threads = schedule_.threads();
    phase.shared_bytes = static_cast<int>(shared_bytes(schedule_, problem_));
    KernelParameters parameters(graph_);
    parameters.add_map(
        "query", map_of(problem_.query, problem_.rows, problem_.depth, schedule_.groups * 64));
    parameters.add_map("key", map_of(problem_.key, problem_.keys, problem_.depth, schedule_.keys));
    parameters.add_map("value", map_of(problem_.value, problem_.keys, problem_.columns, kBoxWidth));
    if (boxes_) parameters.add_map("out", map_of(output(), problem_.rows, problem_.columns, 16));
    source.text = cuda_preamble(graph_, text_.lanes(), {"warpgroup.cuh", "ring.cuh"}) +
                  text_.print_problem() + print_tiling() +
                  print_wgmma({"keys_multiply", problem_.stored, problem_.stored, schedule_.keys}) +
                  print_wgmma({"values_multiply", problem_.stored, problem_.stored, columns_, true,
                               false, true}) +
                  std::string(device_text("wgmma_attention.cuh")) + print_out() +
                  cuda_kernel("attend_blocks", graph_, schedule_.threads(), schedule_.blocks,
                              print_body(), parameters.text());
    phase.arguments = std::move(parameters).arguments();
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  bool has_log_sums() const { return problem_.outputs.log_sums >= 0; }

  // Whether results are rounded and nothing else, and fit where queries were.
  bool ends_in_boxes() const {
    const Node& out = graph_.node(graph_.outputs()[static_cast<size_t>(problem_.outputs.result)]);
    return out.op == Op::kCast && out.operands[0] == problem_.result &&
           out.dtype == problem_.stored && problem_.columns % 8 == 0 &&
           round_up(problem_.columns, kBoxWidth) <= round_up(problem_.depth, kBoxWidth) &&
           problem_.result_axes.back() + 1 == static_cast<int>(problem_.result_axes.size());
  }

  AttentionOperand output() const {
    const std::vector<Dim> strides = contiguous_strides(graph_.node(problem_.result).shape);
    AttentionOperand out;
    out.input = static_cast<int>(graph_.inputs().size()) + problem_.outputs.result;
    out.column_stride = 1;
    out.batch_strides.resize(problem_.batch.size());
    for (size_t i = 0; i + 1 < strides.size(); ++i) {
      const auto axis = static_cast<size_t>(problem_.result_axes[i]);
      (axis < problem_.batch.size() ? out.batch_strides[axis] : out.row_stride) = strides[i];
    }
    return out;
  }

  std::string print_out() const {
    if (!boxes_) return "";
    const auto [rank, at] = print_box_place(output(), problem_.batch);
    return fmt::format(
               "struct Out {{\n"
               "  const CUtensorMap* map;\n"
               "  KILN_MEMBER void store(const char* from, int token, int column,\n"
               "                         [[maybe_unused]] int batch) const {{\n"
               "    const int at[{}] = {{{}}};\n"
               "    store_box(map, from, at);\n  }}\n}};\n",
               rank, at) +
           std::string(device_text("wgmma_attention_boxes.cuh"));
  }

  TensorMap map_of(const AttentionOperand& operand, const Dim& tokens, int64_t width,
                   int64_t box) const {
    return operand_map(operand, problem_.batch, problem_.stored, tokens, width, box);
  }

  std::string print_tiling() const {
    const auto [copying, multiplying] = schedule_.groups == 3   ? std::pair(32, 160)
                                        : schedule_.groups == 2 ? std::pair(24, 240)
                                        : schedule_.blocks == 3 ? std::pair(24, 136)
                                        : schedule_.blocks == 2 ? std::pair(24, 232)
                                                                : std::pair(40, 232);
    return fmt::format(
               "struct Tiling {{\n"
               "  static constexpr int groups = {}, keys = {}, stages = {};\n"
               "  static constexpr int depth = {}, room = {}, columns = {}, steps = {};\n"
               "  static constexpr int copying_registers = {}, multiplying_registers = {};\n"
               "  static constexpr float scale = {};\n"
               "  static constexpr bool scores_read = {};\n}};\n"
               "struct Maps {{\n",
               schedule_.groups, schedule_.keys, schedule_.stages,
               round_up(problem_.depth, kBoxWidth), round_up(problem_.columns, kBoxWidth), columns_,
               ceil_div(problem_.depth, int64_t{16}), copying, multiplying,
               fmt::format("{:a}f", static_cast<float>(problem_.scale)), text_.scores_read()) +
           print_bring("query", problem_.query, problem_.batch) +
           print_bring("key", problem_.key, problem_.batch) +
           print_bring("value", problem_.value, problem_.batch) + "};\n";
  }

  // Where a mask hides later keys, the rows that see most of them begin first.
  std::string print_body() const {
    const std::string& blocks = text_.row_blocks();
    return fmt::format(
               "  const int block = static_cast<int>(block_index());\n"
               "  const index_t batch = block / {0};\n"
               "  const int first_row = ({2}block % {0}) * {1};\n",
               blocks, text_.rows(),
               problem_.reach ? fmt::format("{} - 1 - ", blocks) : std::string()) +
           print_batch_coordinates(problem_.batch) + text_.print_sizes() +
           text_.print_scores(problem_.scaled) + (boxes_ ? "" : text_.print_store()) +
           (has_log_sums() ? text_.print_store_log_sum() : "") +
           "  const auto end_with = [&](const Rows& rows, [[maybe_unused]] char* query,\n"
           "                            [[maybe_unused]] int row, [[maybe_unused]] int own_row) "
           "{\n" +
           (boxes_ ? "    store_boxes(rows, query, Out{&out_map}, row, batch);\n"
                   : "    rows.store(problem, own_row, store_result);\n") +
           (has_log_sums() ? "    rows.store_log_sums(problem, own_row, store_log_sum);\n" : "") +
           "  };\n"
           "  const Maps maps{&query_map, &key_map, &value_map};\n"
           "  attend(problem, maps, batch, first_row, scores, within, end_with);\n";
  }

  const Graph& graph_;
  const WgmmaAttentionSchedule schedule_;
  const AttentionText text_;
  const AttentionProblem& problem_;
  const int columns_;
  const bool boxes_;  // the copy engine stores results
};

}  // namespace

Status check_wgmma_attention(const Workload& workload) {
  const Graph& graph = workload.graph;
  if (!graph.symbols().empty()) return attention_lacks("sizes with symbols");
  const AttentionProblem problem = AttentionProblem::of(graph);
  if (!is_16_bit_float(problem.stored) ||
      graph.node(problem.pattern.query_key).dtype != DType::kF32 ||
      graph.node(problem.pattern.product).dtype != DType::kF32)
    return attention_lacks("other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  constexpr int64_t kFewRows = 64, kMostColumns = 128;
  if (problem.rows.constant() < kFewRows || problem.keys.constant() < kFewRows)
    return attention_lacks("few queries or keys");
  if (problem.depth > kMostColumns || problem.columns > kMostColumns || problem.depth % 8 != 0 ||
      problem.columns % 8 != 0)
    return attention_lacks("heads of more than 128, or no multiple of 8");
  if (problem.batch.size() > 3 || !is_mappable(problem.query) || !is_mappable(problem.key) ||
      !is_mappable(problem.value))
    return attention_lacks("operands that the copy engine cannot read");
  return {};
}

std::vector<Schedule> wgmma_attention_candidates(const Workload& workload,
                                                 const Target& /*target*/) {
  const AttentionProblem problem = AttentionProblem::of(workload.graph);
  const int64_t keys = problem.keys.constant();
  std::vector<WgmmaAttentionSchedule> tried = {{2, 128, 2, 1}, {2, 128, 3, 1}};
  if (problem.depth <= kBoxWidth && problem.columns <= kBoxWidth)
    tried = {{1, 128, 2, 2}, {1, 96, 2, 3}, {1, 64, 2, 3}, {2, 128, 2, 1}};
  constexpr int64_t kFew = 256;  // one tile has them, or a few that hardly a key is missing in
  if (keys <= kFew && keys % 128 != 0) {
    const auto tile = [&](int64_t tiles) {
      return static_cast<int>(std::max(kBoxWidth, round_up(ceil_div(keys, tiles), int64_t{16})));
    };
    tried = {{2, tile(1), 1, 1}, {2, 128, 2, 1}};
    if (keys > 128) tried.push_back({1, tile(2), 2, 2});
    if (keys > 128) tried.push_back({1, tile(3), 2, 3});
  }
  std::vector<Schedule> space;
  for (const WgmmaAttentionSchedule& schedule : tried)
    if (fits(schedule, problem)) space.push_back(to_schedule(schedule));
  return space;
}

Result<Source> print_wgmma_attention(const Graph& graph, const WgmmaAttentionSchedule& schedule) {
  if (!fits(schedule, AttentionProblem::of(graph)))
    return fail(Code::kInvalidArgument,
                "the heads do not allow " + to_schedule(schedule).to_string());
  return WgmmaAttentionKernel(graph, schedule).print();
}

const KernelTemplate& wgmma_attention() {
  static const PrintedTemplate<WgmmaAttentionSchedule> made({
      .version = 12,
      .backend = Backend::kCuda,
      .family = Family::kAttention,
      .isa = "sm_90a",
      .check = check_wgmma_attention,
      .candidates = wgmma_attention_candidates,
      .print = print_wgmma_attention,
      .expected_efficiency =
          [](const Workload&) {
            return 0.8;  // tests/gpu/LOG.md: twice as fast as cuda.attention
          },
  });
  return made;
}

}  // namespace kiln
