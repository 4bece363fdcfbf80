#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/wgmma/attention_result.h"
#include "compiler_core/kernels/wgmma/operand_maps.h"
#include "compiler_core/kernels/wgmma/wgmma_attention.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"
#include "compiler_core/plan/sizes.h"

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
  return 2 * (schedule.query_slots() * schedule.groups * 64 * depth + schedule.stages * tile) +
         16 * schedule.query_slots() + 32 * schedule.stages + 1024;
}

// Later rows see more keys.
bool is_causal(const AttentionProblem& problem) {
  return problem.mask.reach && !problem.mask.past;
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
  WgmmaAttentionKernel(const Graph& graph, const WgmmaAttentionSchedule& schedule, int sms)
      : graph_(graph),
        schedule_(schedule),
        at_once_(int64_t{sms} * schedule.blocks),
        text_(graph, schedule.groups * 64, schedule.keys),
        problem_(text_.problem()),
        columns_(static_cast<int>(round_up(problem_.columns, 8))),
        result_(graph, text_) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    Phase phase;
    phase.entry = "attend_blocks";
    phase.grid = schedule_.persistent
                     ? Grid::of_any(taking_turns(), problem_.rows * problem_.batches)
                     : Grid({GridAxis{problem_.batches}, GridAxis{problem_.rows, text_.rows()}});
    phase.threads = schedule_.threads();
    phase.shared_bytes = static_cast<int>(shared_bytes(schedule_, problem_));
    KernelParameters parameters(graph_);
    parameters.add_map(
        "query", map_of(problem_.query, problem_.rows, problem_.depth, schedule_.groups * 64));
    parameters.add_map("key", map_of(problem_.key, problem_.keys, problem_.depth, schedule_.keys));
    parameters.add_map("value", map_of(problem_.value, problem_.keys, problem_.columns, kBoxWidth));
    result_.add_map(parameters);
    source.text = cuda_preamble(graph_, text_.lanes(), {"warpgroup.cuh", "ring.cuh"}) +
                  text_.print_problem() + print_tiling() +
                  print_wgmma({"keys_multiply", problem_.stored, problem_.stored, schedule_.keys}) +
                  print_wgmma({"values_multiply", problem_.stored, problem_.stored, columns_, true,
                               false, true}) +
                  std::string(device_text("attention_seen.cuh")) +
                  std::string(device_text("wgmma_attention_rows.cuh")) +
                  std::string(device_text("wgmma_attention.cuh")) + result_.print_out() +
                  cuda_kernel("attend_blocks", graph_, schedule_.threads(), schedule_.blocks,
                              print_body(), parameters.text());
    phase.arguments = std::move(parameters).arguments();
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
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
               "  static constexpr int groups = {0}, query_rows = {0} * 64, keys = {1};\n"
               "  static constexpr int stages = {2}, query_slots = {11};\n"
               "  static constexpr int depth = {3}, room = {4}, columns = {5}, steps = {6};\n"
               "  static constexpr int copying_registers = {7}, multiplying_registers = {8};\n"
               "  static constexpr float scale = {9};\n"
               "  static constexpr bool scores_read = {10}, far_scores = {12};\n"
               "  static constexpr int least_keys = {13};  // of all\n}};\n"
               "struct Maps {{\n",
               schedule_.groups, schedule_.keys, schedule_.stages,
               round_up(problem_.depth, kBoxWidth), round_up(problem_.columns, kBoxWidth), columns_,
               ceil_div(problem_.depth, int64_t{16}), copying, multiplying,
               fmt::format("{:a}f", static_cast<float>(problem_.scale)), text_.scores_read(),
               schedule_.query_slots(), has_far_scores(),
               std::clamp<int64_t>(lower_bound(problem_.keys, graph_.symbols()), 0, INT32_MAX)) +
           print_bring("query", problem_.query, problem_.batch) +
           print_bring("key", problem_.key, problem_.batch) +
           print_bring("value", problem_.value, problem_.batch) + "};\n";
  }

  // Whether something is added to the products, which may be a mask of the least finite number.
  bool has_far_scores() const {
    return problem_.scaled == problem_.pattern.query_key &&
           problem_.pattern.scores != problem_.pattern.query_key;
  }

  // Blocks of rows, of all batches: C text.
  std::string items() const {
    return fmt::format("({} * {})", problem_.batches, text_.row_blocks());
  }
  // Blocks that take items by turns. Where sizes have symbols, there may be fewer items.
  int64_t taking_turns() const {
    if (!graph_.symbols().empty()) return at_once_;
    const int64_t row_blocks = ceil_div(problem_.rows.constant(), text_.rows());
    return std::min(problem_.batches.constant() * row_blocks, at_once_);
  }

  // Declares batch_of(item) and row_of(item). Where a mask hides later keys, the rows that see most of them
  // begin first: of a batch, or, where blocks take items by turns, of as many batches as the L2 has keys
  // and values of, so that blocks end together.
  std::string print_order() const {
    const std::string& blocks = text_.row_blocks();
    std::string batch = fmt::format("item / {}", blocks), row = fmt::format("item % {}", blocks);
    if (is_causal(problem_) && schedule_.persistent) {
      const int64_t together = batches_together(),
                    turn = together * ceil_div(problem_.rows.constant(), text_.rows());
      batch = fmt::format("item / {} * {} + item % {}", turn, together, together);
      row = fmt::format("{} - item % {} / {}", turn / together - 1, turn, together);
    } else if (is_causal(problem_)) {
      row = fmt::format("{} - 1 - {}", blocks, row);
    }
    return fmt::format(
        "  const auto batch_of = [&](int item) {{ return static_cast<int>({}); }};\n"
        "  const auto row_of = [&](int item) {{ return static_cast<int>(({}) * {}); }};\n",
        batch, row, text_.rows());
  }
  // A divisor of the batches. REQUIRES: sizes are constants.
  int64_t batches_together() const {
    constexpr int64_t kMostBytes = 24 << 20;
    const int64_t batches = problem_.batches.constant();
    const int64_t bytes = problem_.keys.constant() * (problem_.depth + problem_.columns) * 2;
    int64_t together = std::clamp(kMostBytes / bytes, int64_t{1}, batches);
    while (batches % together != 0) --together;
    return together;
  }

  std::string print_body() const {
    const bool many = schedule_.persistent;
    const std::string next = fmt::format("item += {}", taking_turns());
    const std::string more = fmt::format("item < {}", items());
    const auto bring = [](const char* what) {
      return fmt::format("bring_{}(problem, maps, room, brought, batch_of(item), row_of(item));\n",
                         what);
    };
    return text_.print_sizes() + print_order() +
           "  const Maps maps{&query_map, &key_map, &value_map};\n"
           "  const Room room(shared_memory());\n"
           "  int item = static_cast<int>(block_index());\n" +
           (many && !graph_.symbols().empty() ? "  if (item >= " + items() + ") return;\n" : "") +
           "  Places brought;\n"
           "  const int group =\n"
           "      begin_block(problem, maps, room, brought, batch_of(item), row_of(item));\n"
           "  if (group < 0) {\n"
           "    if (thread_index() > 0) return;\n    " +
           bring("rest") +
           (many ? "    for (" + next + "; " + more + "; " + next + ") {\n      " + bring("first") +
                       "      " + bring("rest") + "    }\n"
                 : std::string()) +
           "    return;\n  }\n"
           "  Places at;\n" +
           (many ? "  for (; " + more + "; " + next + ") {\n" : std::string()) +
           "  const index_t batch = batch_of(item);\n" + print_batch_coordinates(problem_.batch) +
           text_.print_scores(problem_.scaled) + result_.print_end() +
           "  attend(problem, room, at, group, row_of(item), scores, within, end_with);\n" +
           (many ? "  }\n" : "") + "  boxes_are_stored();\n";
  }

  const Graph& graph_;
  const WgmmaAttentionSchedule schedule_;
  const int64_t at_once_;  // blocks
  const AttentionText text_;
  const AttentionProblem& problem_;
  const int columns_;
  const AttentionResult result_;
};

// The schedules that are tried, the quickest first as tests/gpu/LOG.md has them ("Convolutions and attention on
// wgmma"): of blocks that take rows by turns, and of others.
struct TriedSchedules {
  std::vector<WgmmaAttentionSchedule> by_turns, plain;
};
TriedSchedules schedules_for(const AttentionProblem& problem) {
  const int64_t head = std::max(problem.depth, problem.columns);
  const bool wide = head > kBoxWidth;
  if (head > 2 * kBoxWidth)  // sums have half of the registers
    return {{}, {{2, 64, 2, 1}, {1, 64, 2, 1}, {1, 64, 3, 1}}};
  const int64_t keys = problem.keys.constant();
  constexpr int64_t kFew = 256;  // one tile has them, or a few that hardly a key is missing in
  if (keys <= kFew && keys % 128 != 0) {
    const auto tile = [&](int64_t tiles) {
      return static_cast<int>(std::max(kBoxWidth, round_up(ceil_div(keys, tiles), int64_t{16})));
    };
    TriedSchedules few = {
        {{1, tile(1), 2, 3}, {1, tile(2), 2, 2}, {2, tile(2), 2, 1}, {1, tile(3), 2, 3}},
        {{2, tile(1), 1, 1}, {2, 128, 2, 1}}};
    if (keys > 128) few.plain.insert(few.plain.begin(), {{1, tile(3), 2, 3}, {1, tile(2), 2, 2}});
    return few;
  }
  if (wide && !problem.mask.past)
    return {{{2, 128, 2, 1}, {2, 96, 2, 1}}, {{2, 128, 2, 1}, {2, 128, 3, 1}}};
  if (!problem.mask.past)
    return {{{1, 96, 2, 3}, {1, 80, 2, 3}, {1, 64, 2, 3}, {1, 128, 2, 2}, {2, 128, 2, 1}},
            {{1, 128, 2, 2}, {1, 96, 2, 3}, {1, 64, 2, 3}, {2, 128, 2, 1}}};
  // Small tiles have fewer keys that a window hides, and registers for what hides them.
  std::vector<WgmmaAttentionSchedule> window = {{1, 64, 2, 3}, {1, 128, 2, 2}, {2, 128, 2, 1}};
  if (wide) window = {{2, 128, 2, 1}, {1, 64, 2, 2}};
  return {window, window};
}

}  // namespace

Status check_wgmma_attention(const Workload& workload) {
  const Graph& graph = workload.graph;
  const AttentionProblem problem = AttentionProblem::of(graph);
  if (!is_16_bit_float(problem.stored) ||
      graph.node(problem.pattern.query_key).dtype != DType::kF32 ||
      graph.node(problem.pattern.product).dtype != DType::kF32)
    return attention_lacks("other dtypes than fp16 and bf16, or sums of other dtypes than f32");
  constexpr int64_t kFewRows = 64, kMostColumns = 256;
  if (size_at_hints(graph, problem.rows) < kFewRows ||
      size_at_hints(graph, problem.keys) < kFewRows)
    return attention_lacks("few queries or keys");
  // The copy engine has no map of nothing; without rows there is no launch.
  if (problem.keys != problem.rows && lower_bound(problem.keys, graph.symbols()) < 1)
    return attention_lacks("keys of which there may be none");
  if (problem.depth > kMostColumns || problem.columns > kMostColumns || problem.depth % 8 != 0 ||
      problem.columns % 8 != 0)
    return attention_lacks("heads of more than 256, or no multiple of 8");
  if (problem.batch.size() > 3 || !is_mappable(problem.query) || !is_mappable(problem.key) ||
      !is_mappable(problem.value))
    return attention_lacks("operands that the copy engine cannot read");
  return {};
}

std::vector<Schedule> wgmma_attention_candidates(const Workload& workload, const Target& target) {
  constexpr size_t kMostCandidates = 8;
  const AttentionProblem problem = AttentionProblem::of(workload.graph);
  auto [by_turns, plain] = schedules_for(problem);
  for (WgmmaAttentionSchedule& schedule : by_turns) schedule.persistent = true;
  // Under a causal mask the hardware hands out rows of unequal length better.
  std::vector<WgmmaAttentionSchedule>& first = is_causal(problem) ? plain : by_turns;
  const std::vector<WgmmaAttentionSchedule>& then = is_causal(problem) ? by_turns : plain;
  first.insert(first.end(), then.begin(), then.end());
  std::vector<Schedule> space;
  for (const WgmmaAttentionSchedule& schedule : first) {
    const int64_t items = problem.batches.constant() *
                          ceil_div(problem.rows.constant(), int64_t{schedule.groups} * 64);
    const bool idle = schedule.persistent && !is_causal(problem) &&
                      items <= int64_t{cuda_limits(target).sms} * schedule.blocks;
    if (!idle && fits(schedule, problem) && space.size() < kMostCandidates)
      add_unless_present(space, to_schedule(schedule));
  }
  return space;
}

Result<Source> print_wgmma_attention(const Graph& graph, const WgmmaAttentionSchedule& schedule,
                                     const Target& target) {
  const AttentionProblem problem = AttentionProblem::of(graph);
  // How many batches begin together is counted now.
  if (schedule.persistent && is_causal(problem) && !graph.symbols().empty())
    return attention_lacks("rows under a causal mask by turns, of sizes with symbols");
  if (!fits(schedule, problem))
    return fail(Code::kInvalidArgument,
                "the heads do not allow " + to_schedule(schedule).to_string());
  return WgmmaAttentionKernel(graph, schedule, cuda_limits(target).sms).print();
}

// Rows under a causal mask are taken by turns only where sizes are constants.
std::optional<WgmmaAttentionSchedule> adapt_wgmma_attention(const Graph& graph,
                                                            WgmmaAttentionSchedule schedule) {
  if (schedule.persistent && is_causal(AttentionProblem::of(graph))) return std::nullopt;
  return schedule;
}

const KernelTemplate& wgmma_attention() {
  static const PrintedTemplate<WgmmaAttentionSchedule> made({
      .version = 16,
      .backend = Backend::kCuda,
      .family = Family::kAttention,
      .isa = "sm_90a",
      .check = check_wgmma_attention,
      .candidates = wgmma_attention_candidates,
      .print_for = print_wgmma_attention,
      .adapt = adapt_wgmma_attention,
      .expected_efficiency =
          [](const Workload&) {
            return 0.8;  // tests/gpu/LOG.md: twice as fast as cuda.attention
          },
  });
  return made;
}

}  // namespace kiln
