#include "compiler_core/kernels/attention/cpu_attention.h"

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

constexpr int64_t kFewRows = 64;
constexpr int64_t kKeysATile = 128;

struct Tile {
  int rows, vectors;
};

// Best first. For a few rows, what a tile computes past the last row and the last key counts.
std::vector<Tile> tiles_for(const AttentionProblem& problem, const Target& target, int lanes) {
  const bool wide = vector_bytes(target) == 64;
  const int64_t rows = problem.rows.constant(), keys = problem.keys.constant();
  if (rows > kFewRows)
    return wide ? std::vector<Tile>{{12, 2}, {6, 4}, {14, 2}, {8, 3}}
                : std::vector<Tile>{{6, 2}, {4, 3}, {5, 2}};
  std::vector<Tile> tiles =
      wide ? std::vector<Tile>{{12, 2}, {6, 4}, {14, 2}, {8, 3}, {16, 1}, {8, 2}, {8, 1}}
           : std::vector<Tile>{{6, 2}, {4, 3}, {5, 2}, {8, 1}, {4, 2}};
  const auto computed = [&](const Tile& tile) {
    return round_up(rows, tile.rows) *
           round_up(std::min(keys, kKeysATile), int64_t{lanes} * tile.vectors);
  };
  std::stable_sort(tiles.begin(), tiles.end(),
                   [&](const Tile& x, const Tile& y) { return computed(x) < computed(y); });
  tiles.resize(4);
  return tiles;
}

}  // namespace

std::vector<Schedule> cpu_attention_candidates(const Workload& workload, const Target& target) {
  const AttentionProblem problem = AttentionProblem::of(workload.graph);
  const int64_t rows = problem.rows.constant(), all_keys = problem.keys.constant();
  const int lanes = vector_bytes(target) / 4;
  const std::vector<Tile> tiles = tiles_for(problem, target, lanes);
  // Queries a block: packing a tile of keys and values is shared by them.
  constexpr std::pair<int64_t, int64_t> kBlocks[] = {{96, 128}, {192, 128}, {96, 256},
                                                     {48, 256}, {288, 192}, {48, 64}};
  const int64_t units = std::max(target.units, 1);
  std::vector<Schedule> full, starved;
  for (const auto& [queries, keys] : kBlocks)
    for (const Tile& tile : tiles) {
      if (&tile != &tiles[0] && (queries != 96 || keys != 128)) continue;
      const int64_t width = int64_t{lanes} * tile.vectors;
      CpuAttentionSchedule made{lanes, tile.rows, tile.vectors, 0, 0};
      made.queries = round_up(std::min(queries, rows), tile.rows);
      made.keys = round_up(std::min(keys, all_keys), width);
      const int64_t blocks =
          problem.batches.constant() * ((rows + made.queries - 1) / made.queries);
      std::vector<Schedule>& list = blocks < units ? starved : full;
      add_unless_present(list, to_schedule(made));
    }
  if (full.empty()) {  // smaller blocks, so that nobody waits
    CpuAttentionSchedule made{lanes, tiles[0].rows, tiles[0].vectors, 0, 0};
    made.queries = tiles[0].rows;
    made.keys = round_up(std::min<int64_t>(128, all_keys), int64_t{lanes} * made.vectors);
    full.push_back(to_schedule(made));
  }
  full.insert(full.end(), starved.begin(), starved.end());
  return full;
}

namespace {

constexpr int64_t kLeastQueries = 96, kLeastKeys = 128;

// Blocks of the usual size, where there may be far more queries and keys than were measured.
std::optional<CpuAttentionSchedule> adapt(const Graph& graph, CpuAttentionSchedule schedule) {
  const AttentionProblem problem = AttentionProblem::of(graph);
  if (!problem.rows.is_constant())
    schedule.queries = round_up(std::max(kLeastQueries, schedule.queries), int64_t{schedule.mr});
  if (!problem.keys.is_constant())
    schedule.keys =
        round_up(std::max(kLeastKeys, schedule.keys), int64_t{schedule.lanes} * schedule.vectors);
  return schedule;
}

}  // namespace

const KernelTemplate& cpu_attention() {
  static const PrintedTemplate<CpuAttentionSchedule> made({
      .version = 3,
      .backend = Backend::kCpu,
      .family = Family::kAttention,
      .check = check_operands_lie_in_memory,
      .candidates = cpu_attention_candidates,
      .print = print_cpu_attention,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
