// cuda.products.wgmma: products of one first operand on the tensor cores of compute capability 9.0.

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/matmul/cuda_product.h"
#include "compiler_core/kernels/matmul/joined_problem.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {
namespace {

constexpr int kCopyingRegisters = 24;
constexpr int kLeastWidth = 32;  // columns of a result in a tile

// The boxes of 16 rows in which a warp stores its results.
struct JoinedBoxes {
  int columns = 32, count = 2;  // of a box; of boxes that a warp has under way
  int staged_bytes = 0;         // of a warp
  int shared_bytes = 0;         // of a block, in all

  JoinedBoxes(const WgmmaJoinedSchedule& schedule, int products) {
    constexpr int kAlignment = 1024, kBarrier = 8;
    const int width = schedule.bn / products;
    columns = width % 64 == 0 ? 64 : 32;
    const int of_warp = schedule.rows() / 64 * (width / columns);
    const int ring = schedule.ring_bytes();
    const int box = 16 * columns * 2, warps = schedule.groups * 4;
    const int left = most_shared_bytes(schedule.blocks) - 2 * kAlignment - ring;
    count = std::clamp(left / (warps * box), std::min(of_warp, 2), std::min(of_warp, 4));
    staged_bytes = count * box;
    shared_bytes = ring + warps * staged_bytes + 2 * schedule.stages * kBarrier + kAlignment;
  }
};

bool fits_joined(const WgmmaJoinedSchedule& schedule, const JoinedProblem& problem) {
  return schedule.splits == 1 && schedule.go_together() && schedule.kept == 0 &&
         schedule.bn % (kLeastWidth * problem.products) == 0 &&
         JoinedBoxes(schedule, problem.products).shared_bytes <= most_shared_bytes(schedule.blocks);
}

// A matrix in lines along the depth, or of results along the columns: boxes of `width` and `lines`.
TensorMap map_of_lines(int buffer, int64_t offset, DType dtype,
                       const std::pair<int64_t, Dim>& sizes, int64_t pitch,
                       std::pair<int, int> box) {
  TensorMap map;
  map.buffer = buffer;
  map.offset = offset * size_of(dtype);
  map.dtype = dtype;
  map.sizes = {sizes.first, sizes.second};
  map.strides = {pitch * size_of(dtype)};
  map.box = {box.first, box.second};
  finish_map(map);
  return map;
}

// What becomes of the sums, each text once, and which one a part has.
struct Epilogues {
  std::vector<std::string> texts;
  std::vector<int> of_part;
};

class WgmmaJoinedKernel {
 public:
  WgmmaJoinedKernel(const Graph& graph, const WgmmaJoinedSchedule& schedule, const Target& target)
      : graph_(graph),
        schedule_(schedule),
        problem_(JoinedProblem::of(graph)),
        boxes_(schedule, problem_.products),
        width_(static_cast<int>(problem_.width(schedule.bn))),
        row_tiles_(ceil_div(problem_.all.m, schedule.bm)),
        column_tiles_(problem_.tiles_before(problem_.parts.size(), schedule.bn)),
        most_blocks_(int64_t{cuda_limits(target).sms} * schedule.blocks),
        blocks_(is_open() ? most_blocks_ : std::min(row_tiles_ * column_tiles_, most_blocks_)),
        epilogues_(distinct_epilogues()) {}

  Source print() const {
    Source source;
    source.recipe = argument_recipe(graph_);
    KernelParameters parameters(graph_);
    add_maps(parameters);
    for (const int input : problem_.second_operands()) parameters.add_ready(input);
    source.text = cuda_preamble(graph_, 2, {"mma.cuh", "matmul.cuh", "warpgroup.cuh", "ring.cuh"}) +
                  print_tiling() +
                  "struct A { static constexpr bool depth_inner = true; };\nusing B = A;\n" +
                  print_wgmma({"warpgroup_multiply", problem_.all.a.dtype, problem_.all.b.dtype,
                               schedule_.bn, true, true}) +
                  std::string(device_text("wgmma_matmul.cuh")) + print_joined() +
                  std::string(device_text("wgmma_joined.cuh"));
    Phase phase{"multiply", Grid::of_any(blocks_, problem_.rows), schedule_.threads(), 1,
                boxes_.shared_bytes};
    source.text += cuda_kernel("multiply", graph_, schedule_.threads(), schedule_.blocks,
                               print_sizes({problem_.rows}) + print_finish() + print_body(),
                               parameters.text(), KernelStart::kAsTheBodySays);
    phase.arguments = std::move(parameters).arguments();
    source.recipe.phases = {std::move(phase)};
    return source;
  }

 private:
  bool is_open() const { return !problem_.rows.is_constant(); }
  void add_maps(KernelParameters& parameters) const {
    const MatmulProblem& all = problem_.all;
    const int depth = WgmmaMatmulSchedule::kDepth;
    parameters.add_map("a",
                       map_of_lines(all.a.input, all.a.offset, all.stored, {all.k, problem_.rows},
                                    all.a.row_stride, {depth, schedule_.bm}));
    int output = static_cast<int>(graph_.inputs().size());
    for (size_t i = 0; i < problem_.parts.size(); ++i) {
      const JoinedProblem::Part& part = problem_.parts[i];
      for (size_t p = 0; p < part.b.size(); ++p)
        parameters.add_map(fmt::format("b{}_{}", i, p),
                           map_of_lines(part.b[p].input, part.b[p].offset, all.stored,
                                        {all.k, part.n}, part.b[p].column_stride, {depth, width_}));
      parameters.add_map(fmt::format("out{}", i),
                         map_of_lines(output++, 0, graph_.node(part.nodes.output).dtype,
                                      {part.n, problem_.rows}, part.n, {boxes_.columns, 16}));
    }
  }

  std::string print_tiling() const {
    return fmt::format(
        "struct Tiling {{\n"
        "  static constexpr int rows = {}, columns = {}, groups = {}, stages = {};\n"
        "  static constexpr int staged_bytes = {}, all_rows = {};\n"
        "  static constexpr int row_tiles = {}, column_tiles = {}, batches = 1, steps = {};\n"
        "  static constexpr int depth = {}, kept = 0, splits = 1;\n"
        "  static constexpr bool promotes = false, ping_pong = {};\n"
        "  static constexpr int blocks = {}, raster = {};\n"
        "  static constexpr int copying_registers = {}, multiplying_registers = {};\n}};\n"
        "using Accumulator = float;\n",
        schedule_.bm, schedule_.bn, schedule_.groups, schedule_.stages, boxes_.staged_bytes,
        is_open() ? 0 : problem_.all.m, is_open() ? 0 : row_tiles_, column_tiles_,
        ceil_div(problem_.all.k, WgmmaMatmulSchedule::kDepth), WgmmaMatmulSchedule::kDepth,
        schedule_.ping_pong == 1, blocks_, schedule_.raster,
        schedule_.copying_registers(kCopyingRegisters),
        schedule_.multiplying_registers(kCopyingRegisters));
  }

  // Joined, Weights and Results of wgmma_joined.cuh.
  std::string print_joined() const {
    std::vector<std::string> bodies, results, weights;
    std::string weight_members, result_members;
    for (size_t i = 0; i < problem_.parts.size(); ++i) {
      bodies.push_back(std::to_string(epilogues_.of_part[i]));
      results.push_back(fmt::format("out{}", i));
      result_members += fmt::format("  const CUtensorMap* out{};\n", i);
      std::string of_part = fmt::format("b{}_0", i);
      for (int p = 0; p < problem_.products; ++p) {
        weight_members += fmt::format("  const CUtensorMap* b{}_{};\n", i, p);
        if (p > 0) of_part = fmt::format("(product == {} ? b{}_{} : {})", p, i, p, of_part);
      }
      weights.push_back(of_part);
    }
    return fmt::format(
        "struct Joined {{\n"
        "  static constexpr int products = {}, box_columns = {}, boxes = {}, bodies = {};\n"
        "  static KILN_MEMBER int part_of([[maybe_unused]] int tile) {{\n    return {};\n  }}\n"
        "  static KILN_MEMBER int first_tile([[maybe_unused]] int part) {{\n    return {};\n  }}\n"
        "  static KILN_MEMBER int body_of([[maybe_unused]] int part) {{\n    return {};\n  "
        "}}\n}};\n"
        "struct Weights {{\n{}"
        "  KILN_MEMBER void bring(char* to, char* barrier, [[maybe_unused]] int part,\n"
        "                         [[maybe_unused]] int product, int line, int depth) const {{\n"
        "    const int at[2] = {{depth, line}};\n"
        "    copy_box(to, {}, barrier, at);\n  }}\n}};\n"
        "struct Results {{\n{}"
        "  KILN_MEMBER const CUtensorMap* map([[maybe_unused]] int part) const {{\n"
        "    return {};\n  }}\n}};\n",
        problem_.products, boxes_.columns, boxes_.count, epilogues_.texts.size(),
        problem_.part_of("tile", schedule_.bn), problem_.first_tile("part", schedule_.bn),
        problem_.by_part("part", bodies), weight_members, problem_.by_part("part", weights),
        result_members, problem_.by_part("part", results));
  }

  // Parts whose epilogues read no input of their own, and that end as tiles do, have one text.
  Epilogues distinct_epilogues() const {
    Epilogues found;
    for (size_t i = 0; i < problem_.parts.size(); ++i) {
      const JoinedProblem::Part& part = problem_.parts[i];
      const EpilogueText text =
          joined_epilogue(graph_, static_cast<int>(i), part.nodes.products, 2, {.returns = true});
      std::string body;
      if (part.n % width_ != 0)
        body = fmt::format("    column = smaller(column, {});\n", part.n - 2);
      body += text.once + text.vector;
      const auto same = std::ranges::find(found.texts, body);
      found.of_part.push_back(static_cast<int>(same - found.texts.begin()));
      if (same == found.texts.end()) found.texts.push_back(std::move(body));
    }
    return found;
  }

  // The lambda `finish`. Places beyond the results are computed too, and not stored.
  std::string print_finish() const {
    const std::vector<std::string>& texts = epilogues_.texts;
    std::string bodies;
    for (size_t i = 0; i + 1 < texts.size(); ++i)
      bodies += fmt::format("    if (body == {}) {{\n{}    }}\n", i, texts[i]);
    bodies += texts.back();
    std::string sums;
    for (int p = 0; p < problem_.products; ++p)
      sums += fmt::format("    const Vec<Accumulator>& sums{0} = sums[{0}];\n", p);
    return fmt::format(
        "  const auto finish = [&]([[maybe_unused]] int body, [[maybe_unused]] index_t row,\n"
        "                          [[maybe_unused]] index_t column,\n"
        "                          const Vec<Accumulator> (&sums)[{}]) {{\n{}{}{}  }};\n",
        problem_.products, sums,
        is_open() ? "    row = smaller(row, static_cast<index_t>(sizes.all_rows() - 1));\n"
        : problem_.all.m % schedule_.bm != 0
            ? fmt::format("    row = smaller(row, {});\n", problem_.all.m - 1)
            : "",
        bodies);
  }

  std::string print_body() const {
    std::vector<std::string> weights, results;
    for (size_t i = 0; i < problem_.parts.size(); ++i) {
      for (int p = 0; p < problem_.products; ++p)
        weights.push_back(fmt::format("&b{}_{}_map", i, p));
      results.push_back(fmt::format("&out{}_map", i));
    }
    return fmt::format(
        "  const Weights weights{{{}}};\n"
        "  const Results results{{{}}};\n"
        "  const Ring ring(shared_memory());\n"
        "  JoinedEnding<decltype(finish)> ending{{ring, results, finish}};\n"
        "  multiply_all(JoinedTiles{{&a_map, weights, sizes, {}}}, ring, ending, NoScales{{}}, "
        "sizes);\n",
        fmt::join(weights, ", "), fmt::join(results, ", "), are_ready(problem_.second_operands()));
  }

  const Graph& graph_;
  const WgmmaJoinedSchedule schedule_;
  const JoinedProblem problem_;
  const JoinedBoxes boxes_;
  const int width_;  // of an output's columns in a tile
  const int64_t row_tiles_, column_tiles_, most_blocks_, blocks_;
  const Epilogues epilogues_;
};

Status check_wgmma_joined(const Workload& workload) {
  if (!JoinedProblem::of(workload.graph).all.rms_norm) return {};
  return fail(Code::kUnsupported, "wgmma kernels are not written for rows that a norm scales");
}

std::vector<Schedule> wgmma_joined_candidates(const Workload& workload, const Target& target) {
  const JoinedProblem problem = JoinedProblem::of(workload.graph);
  MatmulProblem ranked = problem.all;
  // As many as the smallest tile has, which is not left out for being half empty then.
  ranked.n = std::max(ranked.n, int64_t{kLeastWidth} * problem.products);
  return ranked_schedules<WgmmaJoinedSchedule>(ranked, target, [&](const auto& tried) {
    return fits_joined(WgmmaJoinedSchedule{tried}, problem);
  });
}

Result<Source> print_wgmma_joined(const Graph& graph, const WgmmaJoinedSchedule& schedule,
                                  const Target& target) {
  if (!fits_joined(schedule, JoinedProblem::of(graph)))
    return fail(Code::kInvalidArgument,
                "the operands do not allow " + to_schedule(schedule).to_string());
  return WgmmaJoinedKernel(graph, schedule, target).print();
}

}  // namespace

const KernelTemplate& wgmma_joined() {
  static const PrintedTemplate<WgmmaJoinedSchedule> made({
      .version = 7,
      .backend = Backend::kCuda,
      .family = Family::kProducts,
      .isa = "sm_90a",
      .check = check_wgmma_joined,
      .candidates = wgmma_joined_candidates,
      .print_for = print_wgmma_joined,
      .expected_efficiency =
          [](const Workload& workload) {
            return wgmma_efficiency(JoinedProblem::of(workload.graph).all);
          },
  });
  return made;
}

}  // namespace kiln
