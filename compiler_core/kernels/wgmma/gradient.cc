#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/base/math.h"
#include "compiler_core/kernels/attention/attention_text.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/operand_maps.h"
#include "compiler_core/kernels/wgmma/wgmma_gradient.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"
#include "compiler_core/plan/attention/attention_gradient.h"

namespace kiln {
namespace {

constexpr int64_t kTile = 64;  // tokens
constexpr int kSharedBytes = 227 << 10;

// The workload in sizes. A block keeps rows of `a` and `b`, and walks the tokens of `x` and `y`.
struct GradientProblem {
  AttentionGradient kernel;
  DType stored = DType::kBF16;
  std::vector<Dim> batch;
  int64_t batches = 1, rows = 0, tokens = 0;
  AttentionOperand a, b, x, y;
  int64_t first_width = 0, second_width = 0;  // of a head of a and x, of b and y
  const GradientProduct* first = nullptr;     // the product with x; null: none
  const GradientProduct* second = nullptr;    // with y
  std::optional<int64_t> reach;               // of a causal mask of all weights

  explicit GradientProblem(const Graph& graph);
  GradientProblem(const GradientProblem&) = delete;
};

// The reach of the mask of the exponential that is in the weights, exp(masked - something), where there is
// one, and every row sees a token under it.
std::optional<int64_t> find_reach(const Graph& graph, const AttentionGradient& kernel) {
  std::optional<int64_t> reach;
  for (NodeId id : kernel.inside) {
    const Node& e = graph.node(id);
    if (e.op != Op::kExp) continue;
    const Node& difference = graph.node(e.operands[0]);
    if (reach || difference.op != Op::kSub) return std::nullopt;
    const MaskBounds mask = find_mask_bounds(graph, difference.operands[0]);
    const bool causal = mask.within != kInvalidNode && mask.reach && !mask.past;
    if (!causal || !mask.reach->is_constant() || mask.reach->constant() < 0) return std::nullopt;
    reach = mask.reach->constant();
  }
  return reach;
}

// Whether `id` is 0 where the exponential is: it, its rounding, or products of that with what is finite.
bool is_multiple_of_exponential(const Graph& graph, NodeId id) {
  const Node& x = graph.node(id);
  if (x.op == Op::kExp) return true;
  if (x.op == Op::kCast) return is_multiple_of_exponential(graph, x.operands[0]);
  return x.op == Op::kMul && std::ranges::any_of(x.operands, [&](NodeId operand) {
           return is_multiple_of_exponential(graph, operand);
         });
}

GradientProblem::GradientProblem(const Graph& graph) : kernel(*find_attention_gradient(graph)) {
  const Node& scores = graph.node(kernel.first);
  const Node& slopes = graph.node(kernel.second);
  const size_t rank = scores.shape.size();
  batch.assign(scores.shape.begin(), scores.shape.end() - 2);
  for (const Dim& size : batch) batches *= size.constant();
  stored = graph.node(scores.operands[0]).dtype;
  const auto left = [&](const Node& product) {
    return attention_operand(graph, product.operands[0], false);
  };
  const auto right = [&](const Node& product) {
    return attention_operand(graph, product.operands[1], true);
  };
  a = kernel.over_rows ? right(scores) : left(scores);
  b = kernel.over_rows ? right(slopes) : left(slopes);
  x = kernel.over_rows ? left(scores) : right(scores);
  y = kernel.over_rows ? left(slopes) : right(slopes);
  rows = scores.shape[kernel.over_rows ? rank - 1 : rank - 2].constant();
  tokens = scores.shape[kernel.over_rows ? rank - 2 : rank - 1].constant();
  first_width = graph.node(scores.operands[0]).shape.back().constant();
  second_width = graph.node(slopes.operands[0]).shape.back().constant();
  bool skips = true;
  for (const GradientProduct& each : kernel.products) {
    (each.of_first ? first : second) = &each;
    skips = skips && is_multiple_of_exponential(graph, each.weights);
  }
  if (skips) reach = find_reach(graph, kernel);
}

// Whether the next tile's scores begin before this one's sums are waited for.
bool goes_ahead(const GradientProblem& problem) {
  const int64_t sums =
      (problem.first ? problem.first_width : 0) + (problem.second ? problem.second_width : 0);
  return sums <= 128;  // beside the scores, of which there are 128 columns, and the weights
}

int64_t shared_bytes(const WgmmaGradientSchedule& schedule, const GradientProblem& problem) {
  const int64_t room =
      round_up(problem.first_width, kBoxWidth) + round_up(problem.second_width, kBoxWidth);
  return 2 * room * (schedule.groups * 64 + schedule.stages * kTile) + 8 + 16 * schedule.stages +
         1024;
}

bool fits(const WgmmaGradientSchedule& schedule, const GradientProblem& problem) {
  // Two tiles are held then, and a third is waited for.
  const int least_stages = goes_ahead(problem) ? 3 : 1;
  return schedule.stages >= least_stages &&
         schedule.blocks * shared_bytes(schedule, problem) <= kSharedBytes;
}

class WgmmaGradientKernel {
 public:
  WgmmaGradientKernel(const Graph& graph, const WgmmaGradientSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        problem_(graph),
        rows_(schedule.groups * 64),
        lanes_(problem_.tokens % 2 == 0 ? 2 : 1) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    Phase phase;
    phase.entry = "differentiate_blocks";
    phase.grid = Grid({GridAxis{Dim(problem_.batches)}, GridAxis{Dim(problem_.rows), rows_}});
    phase.threads = schedule_.threads();
    phase.shared_bytes = static_cast<int>(shared_bytes(schedule_, problem_));
    KernelParameters parameters(graph_);
    const auto map = [&](const AttentionOperand& operand, int64_t tokens, int64_t width,
                         int64_t box) {
      return operand_map(operand, problem_.batch, problem_.stored, tokens, width, box);
    };
    parameters.add_map("a", map(problem_.a, problem_.rows, problem_.first_width, rows_));
    parameters.add_map("b", map(problem_.b, problem_.rows, problem_.second_width, rows_));
    parameters.add_map("x", map(problem_.x, problem_.tokens, problem_.first_width, kTile));
    parameters.add_map("y", map(problem_.y, problem_.tokens, problem_.second_width, kTile));
    const DType type = problem_.stored;
    source.text =
        cuda_preamble(graph_, lanes_, {"warpgroup.cuh", "ring.cuh"}) + print_problem() +
        print_tiling() + print_wgmma({"scores_multiply", type, type, kTile}) +
        print_wgmma({"add_first", type, type, columns(problem_.first_width), true, false, true}) +
        print_wgmma({"add_second", type, type, columns(problem_.second_width), true, false, true}) +
        std::string(device_text("wgmma_gradient.cuh")) +
        cuda_kernel("differentiate_blocks", graph_, schedule_.threads(), schedule_.blocks,
                    print_body(), parameters.text());
    phase.arguments = std::move(parameters).arguments();
    source.recipe.phases.push_back(std::move(phase));
    return source;
  }

 private:
  static int columns(int64_t width) { return static_cast<int>(round_up(width, 8)); }

  std::string print_problem() const {
    return fmt::format(
        "using Stored = {};\n"
        "struct Problem {{\n"
        "  static constexpr int rows = {}, tokens = {}, reach = {};\n"
        "  static constexpr bool whole_rows = {}, whole_tokens = {};\n"
        "  static constexpr bool has_reach = {}, tokens_first = {};\n}};\n",
        memory_type(problem_.stored), problem_.rows, problem_.tokens, problem_.reach.value_or(0),
        problem_.rows % rows_ == 0, problem_.tokens % kTile == 0, problem_.reach.has_value(),
        problem_.kernel.over_rows);
  }

  std::string print_tiling() const {
    const auto [copying, multiplying] = schedule_.groups == 2   ? std::pair(24, 240)
                                        : schedule_.blocks == 2 ? std::pair(24, 232)
                                                                : std::pair(40, 232);
    const auto steps = [](int64_t width) { return ceil_div(width, int64_t{16}); };
    return fmt::format(
               "struct Tiling {{\n"
               "  static constexpr int groups = {}, stages = {};\n"
               "  static constexpr int first_room = {}, second_room = {};\n"
               "  static constexpr int first_steps = {}, second_steps = {};\n"
               "  static constexpr bool has_first = {}, has_second = {}, ahead = {};\n"
               "  static constexpr int first_columns = {}, second_columns = {};\n"
               "  static constexpr int copying_registers = {}, multiplying_registers = {};\n}};\n"
               "struct Maps {{\n",
               schedule_.groups, schedule_.stages, round_up(problem_.first_width, kBoxWidth),
               round_up(problem_.second_width, kBoxWidth), steps(problem_.first_width),
               steps(problem_.second_width), problem_.first != nullptr, problem_.second != nullptr,
               goes_ahead(problem_), columns(problem_.first_width), columns(problem_.second_width),
               copying, multiplying) +
           print_bring("a", problem_.a, problem_.batch) +
           print_bring("b", problem_.b, problem_.batch) +
           print_bring("x", problem_.x, problem_.batch) +
           print_bring("y", problem_.y, problem_.batch) + "};\n";
  }

  // Declares weigh(first, second, row, token), where a token is a query or a key.
  std::string print_weigh() const {
    ExpressionPrinter printer(graph_, Dialect::kCuda);
    printer.bind(problem_.kernel.first, {"first", Level::kInner});
    printer.bind(problem_.kernel.second, {"second", Level::kInner});
    std::vector<Index> at;
    for (size_t axis = 0; axis < problem_.batch.size(); ++axis)
      at.push_back(LoopVar{fmt::format("batch{}", axis), LoopVar::Kind::kScalar, Level::kKernel, 0,
                           problem_.batch[axis]});
    const LoopVar row{"row", LoopVar::Kind::kScalar, Level::kOuter, 0, problem_.rows};
    const LoopVar token{"token", LoopVar::Kind::kVector, Level::kInner, 0, problem_.tokens, lanes_};
    at.push_back(problem_.kernel.over_rows ? token : row);
    at.push_back(problem_.kernel.over_rows ? row : token);
    std::string takes;
    for (const auto& [product, name] :
         {std::pair{problem_.first, "first"}, std::pair{problem_.second, "second"}})
      if (product != nullptr)
        takes += fmt::format("    const vf32 of_{} = {};\n", name,
                             printer.value(product->weights, at).name);
    if (problem_.first != nullptr) takes += "    first = of_first;\n";
    if (problem_.second != nullptr) takes += "    second = of_second;\n";
    return fmt::format(
        "  const auto weigh = [&](vf32& first, vf32& second, index_t row, index_t token) {{\n"
        "    [[maybe_unused]] const AllLanes live{{}};\n{}{}  }};\n",
        statements(printer), takes);
  }

  // Stores the sums of `product`: where its end lies.
  std::string print_store(const GradientProduct* product, std::string_view name) const {
    if (product == nullptr) return "";
    const Node& end = graph_.node(product->end);
    const Node& sums = graph_.node(product->product);
    const std::vector<Dim> strides = contiguous_strides(end.shape);
    const std::vector<Dim> lies = contiguous_strides(sums.shape);
    const NodeId before = end.operands[0];
    const size_t rank = sums.shape.size();
    const size_t row_axis = problem_.kernel.over_rows ? rank - 1 : rank - 2;
    std::string offset = "0", row_stride = "0";
    std::vector<bool> used(rank, false);
    for (size_t i = 0; i + 1 < end.shape.size(); ++i) {
      if (end.shape[i].is(1)) continue;
      size_t axis = i;
      if (before != product->product) {
        const auto& view = std::get<ViewAttr>(graph_.node(before).attr);
        for (axis = 0; axis < rank; ++axis)
          if (!used[axis] && sums.shape[axis] == end.shape[i] && view.strides[i] == lies[axis])
            break;
        CHECK(axis < rank, "a View that reorders the product's axes");
      }
      used[axis] = true;
      if (axis == row_axis)
        row_stride = fmt::format("{}", strides[i].constant());
      else
        offset += fmt::format(" + batch{} * {}", axis, strides[i].constant());
    }
    const auto found = std::ranges::find(graph_.outputs(), product->end);
    const auto output = static_cast<size_t>(found - graph_.outputs().begin());
    return fmt::format(
        "    part.template store<Tiling::{0}_columns>(problem, part.{0}_sum, out{1} + ({2}), {3}, "
        "own_row);\n",
        name, output, offset, row_stride);
  }

  // Where a mask hides later keys, the rows that see most of them begin first.
  std::string print_body() const {
    const int64_t blocks = ceil_div(problem_.rows, rows_);
    const bool late_first = problem_.reach && !problem_.kernel.over_rows;
    return fmt::format(
               "  const int block = static_cast<int>(block_index());\n"
               "  const index_t batch = block / {0};\n"
               "  const int first_row = ({2}block % {0}) * {1};\n"
               "  const Problem problem;\n",
               blocks, rows_, late_first ? fmt::format("{} - 1 - ", blocks) : std::string()) +
           print_batch_coordinates(problem_.batch) + print_weigh() +
           "  const auto end_with = [&](const Part& part, int own_row) {\n" +
           print_store(problem_.first, "first") + print_store(problem_.second, "second") +
           "  };\n"
           "  const Maps maps{&a_map, &b_map, &x_map, &y_map};\n"
           "  differentiate(problem, maps, batch, first_row, weigh, end_with);\n";
  }

  const Graph& graph_;
  const WgmmaGradientSchedule schedule_;
  const GradientProblem problem_;
  const int64_t rows_;
  const int lanes_;
};

}  // namespace

Status check_wgmma_gradient(const Workload& workload) {
  const GradientProblem problem(workload.graph);
  for (const AttentionOperand* operand : {&problem.a, &problem.b, &problem.x, &problem.y})
    if (!is_mappable(*operand))
      return fail(Code::kUnsupported,
                  "gradients of attention are not written for operands that the copy engine cannot "
                  "read");
  if (problem.batch.size() > 3)
    return fail(Code::kUnsupported,
                "gradients of attention are not written for more than three batch axes");
  return {};
}

std::vector<Schedule> wgmma_gradient_candidates(const Workload& workload,
                                                const Target& /*target*/) {
  const GradientProblem problem(workload.graph);
  constexpr WgmmaGradientSchedule kSchedules[] = {
      {2, 4, 1}, {1, 3, 2}, {2, 3, 1}, {1, 2, 2}, {2, 2, 1}};
  std::vector<Schedule> space;
  for (const WgmmaGradientSchedule& schedule : kSchedules)
    if (fits(schedule, problem)) space.push_back(to_schedule(schedule));
  return space;
}

Result<Source> print_wgmma_gradient(const Graph& graph, const WgmmaGradientSchedule& schedule) {
  if (!fits(schedule, GradientProblem(graph)))
    return fail(Code::kInvalidArgument,
                "the heads do not allow " + to_schedule(schedule).to_string());
  return WgmmaGradientKernel(graph, schedule).print();
}

const KernelTemplate& wgmma_gradient() {
  static const PrintedTemplate<WgmmaGradientSchedule> made({
      .version = 6,
      .backend = Backend::kCuda,
      .family = Family::kAttentionGradient,
      .isa = "sm_90a",
      .check = check_wgmma_gradient,
      .candidates = wgmma_gradient_candidates,
      .print = print_wgmma_gradient,
      .expected_efficiency = [](const Workload&) { return 0.5; },
  });
  return made;
}

}  // namespace kiln
