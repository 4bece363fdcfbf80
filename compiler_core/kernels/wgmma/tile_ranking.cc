// ranked_tiles(): the tiles that a product on wgmma tries, best guess first. A model of an SM's cycles ranks
// them; records (tests/gpu/LOG.md) say which to leave out.

#include <algorithm>
#include <array>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

namespace kiln {
namespace {

// A core compiles one in 0.2 s. tests/gpu/LOG.md: the best, or one 2 % from it, is among so many.
constexpr size_t kMostCandidates = 4;
// The same where the second operand is kept in some and comes again in others.
constexpr size_t kMostOfBothForms = 5;
// Candidates whose warpgroups take tiles by turns (ping-pong), of the tiles that won anywhere.
constexpr size_t kMostPingPong = 2;
constexpr WgmmaTile kPingPongTiles[] = {{128, 128, 2}, {64, 224, 2}, {64, 256, 2}, {128, 96, 2}};
// Each step takes longer than the model says, beside other schedules: both operands come in smaller tiles.
constexpr double kPingPongStep = 1.04;
// Candidates in which blocks of a cluster divide the depth of a tile, and the steps that each has at least.
constexpr size_t kMostDivided = 2;
constexpr int kLeastSteps = 4;
// Such blocks meet in so many cycles, and bring each other so many bytes in a cycle.
constexpr double kMeetingCycles = 3500, kClusterBytes = 16;
// Clusters of three and four leave multiprocessors idle: 30 of four fit an H200 of 132, by its driver.
constexpr double kUsedByClusters = 0.9;
// Candidates with several blocks an SM. Products of at most kFlatSteps steps have them.
constexpr size_t kMostTogether = 2;
constexpr int kFlatSteps = 8;
constexpr int64_t kMostKeptColumns = 12;  // tiles side by side: blocks are so many times a number

// Sums of a thread: at most 128 registers.
constexpr WgmmaTile kTiles[] = {
    {128, 256, 2}, {128, 128, 2}, {256, 128, 2}, {128, 192, 2}, {128, 224, 2},
    {128, 160, 2}, {64, 256, 1},  {64, 128, 1},  {192, 128, 3}, {128, 96, 2},
    {64, 192, 1},  {64, 64, 1},   {192, 64, 3},  {128, 64, 2},  {64, 96, 1},
    {64, 32, 1},   {256, 32, 2},  {192, 32, 3},  {192, 192, 3}, {192, 96, 3},
    {256, 96, 2},  {128, 176, 2}, {128, 144, 2}, {128, 112, 2}, {128, 80, 2}};

// An SM's work in a cycle, enough to rank tiles: products, and bytes that come from the L2.
constexpr double kProducts = 1900, kL2Bytes = 60, kMemoryBytes = 20;
constexpr double kTileCycles = 1500;  // until the first step has come, and the last is stored

int64_t tiles_of(const MatmulProblem& problem, int bm, int bn) {
  return problem.batches * ceil_div(problem.m, bm) * ceil_div(problem.n, bn);
}

double operand_bytes(const MatmulProblem& problem) {
  return static_cast<double>(problem.batches * size_of(problem.a.dtype) * (problem.m + problem.n) *
                             problem.k);
}

}  // namespace

std::span<const WgmmaTile> wgmma_tiles() {
  return kTiles;
}

double step_cycles(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem) {
  constexpr int kStepBytes = WgmmaMatmulSchedule::kStepBytes;
  const double bm = schedule.bm, bn = schedule.bn;
  // One warpgroup alone leaves the tensor cores idle while it stores, or adds up what they have added.
  const double alone = schedule.groups > 1 ? 1 : is_f8(problem.a.dtype) ? 0.6 : 0.9;
  // kProducts are of halves; of 8 bits there are twice as many in a step, and in a cycle.
  const double compute = bm * bn * (kStepBytes / 2.0) / (alone * kProducts);
  return std::max({compute, (bm + bn) * kStepBytes / kL2Bytes, 130.0});
}

double tile_cycles(const WgmmaMatmulSchedule& schedule, double steps) {
  // Three warpgroups compute results side by side, which shows where there is little else; narrow boxes
  // are more. Of 16 columns, whose rows are a sector each, they cost 3,000 cycles in tiles of 128x176.
  const double boxes = schedule.bn % 64 == 0 ? 1 : schedule.bn % 32 == 0 ? 1.3 : 4;
  const double together = schedule.groups == 3 && steps <= kFlatSteps ? 36 : 24;
  return kTileCycles + boxes * schedule.bm * schedule.bn / together;
}

double sm_cycles(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, double steps,
                 int64_t waves) {
  const double step = step_cycles(schedule, problem), around = tile_cycles(schedule, steps);
  const auto tiles = static_cast<double>(waves);
  if (schedule.ping_pong == 1) {  // what stands around a tile's steps meets the steps of another
    const double multiplies = kPingPongStep * steps * step;
    return tiles * std::max(multiplies, (multiplies + around) / 2) + around;
  }
  // Blocks of one SM take turns to multiply, and wait side by side.
  return tiles * (schedule.blocks * steps * step + around);
}

bool take_turns(int64_t tiles, int64_t sms) {
  return 2 * tiles >= 3 * sms;
}

double memory_cycles(double bytes, int64_t blocks) {
  return bytes / (kMemoryBytes * static_cast<double>(blocks));
}

namespace {

// A block of a cluster brings the others all of a tile but what it ends itself.
double meeting_cycles(const WgmmaMatmulSchedule& schedule) {
  if (schedule.splits == 1) return 0;
  const double brought = 4.0 * schedule.bm * schedule.bn * (schedule.splits - 1) / schedule.splits;
  return kMeetingCycles + brought / kClusterBytes;
}

double estimate(const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem, int sms,
                double operands) {
  const auto steps =
      static_cast<double>(ceil_div(ceil_div(problem.k, step_depth(problem)), schedule.splits));
  const int64_t blocks = tiles_of(problem, schedule.bm, schedule.bn) * schedule.splits;
  const int64_t waves = ceil_div(blocks, int64_t{sms} * schedule.blocks);
  return std::max(sm_cycles(schedule, problem, steps, waves) + meeting_cycles(schedule),
                  memory_cycles(operands, std::min<int64_t>(sms, blocks)));
}

// Whether threads of blocks that share an SM have registers enough. The compiler needs 26 beside a
// thread's sums. Kernels with fewer than 48 beside them spilled, or were slower than those of one block
// an SM (tests/gpu/LOG.md, "Tuning").
bool has_registers_together(const WgmmaMatmulSchedule& schedule, bool promotes) {
  constexpr int kToCompile = 26, kToMultiply = 48, kLeastCopying = 40;
  const int first = 65536 / schedule.blocks / (128 * (schedule.groups + 1)) / 8 * 8;
  const int sums = schedule.registers(promotes);
  return sums + kToCompile <= first &&
         sums + kToMultiply <= schedule.multiplying_registers(kLeastCopying, promotes);
}

// Whether a tile computes columns that do not exist and stores in boxes of 32 columns: such tiles never won.
bool wastes_columns(const WgmmaMatmulSchedule& schedule, int64_t columns) {
  const double used =
      static_cast<double>(columns) / static_cast<double>(round_up(columns, int64_t{schedule.bn}));
  return schedule.bn > 32 && schedule.bn % 64 != 0 && used < (schedule.blocks == 1 ? 0.85 : 0.7);
}

// The schedules of one product that fit, by estimated cycles.
class TileRanking {
 public:
  using Fits = std::function<bool(const WgmmaMatmulSchedule&)>;

  TileRanking(const MatmulProblem& problem, const Target& target, const Fits& fits, double operands)
      : problem_(problem), fits_(fits), sms_(cuda_limits(target).sms), operands_(operands) {}

  void add(const WgmmaTile& tile) {
    // A tile of which at most half is used has a smaller sister.
    if ((tile.bm > 64 && tile.bm >= 2 * problem_.m) || (tile.bn > 32 && tile.bn >= 2 * problem_.n))
      return;
    const int64_t columns = ceil_div(problem_.n, tile.bn);
    const int64_t tiles = tiles_of(problem_, tile.bm, tile.bn);
    // Where every tile has an SM, all have the L2 together in whatever order: the plainest one.
    const int raster = tiles <= sms_ ? 1 : 8;
    for (int blocks = 1; blocks <= (is_flat() ? 3 : 1); ++blocks) {
      if (blocks > 1 && tiles < 2 * sms_ * blocks) break;
      const int stages = blocks > 1 ? 4 : most_stages(tile);
      const WgmmaMatmulSchedule most{tile.bm, tile.bn, tile.groups, stages, raster, blocks};
      const bool has_turns = is_flat() && tiles >= 2 * sms_ * blocks;
      // Where several tiles lie side by side, either form may be the faster one.
      if (has_turns && columns <= kMostKeptColumns && add_with_stages(keeping(most))) {
        if (columns == 1 || blocks > 1) continue;
        has_both_forms_ = true;
      }
      add_with_stages(most);
    }
  }

  void add_ping_pong(const WgmmaTile& tile) {
    if (!take_turns(tiles_of(problem_, tile.bm, tile.bn), sms_)) return;
    WgmmaMatmulSchedule schedule{tile.bm, tile.bn, tile.groups, 8, 8};
    schedule.ping_pong = 1;
    add_with_stages(schedule);
  }

  void add_divided(const WgmmaTile& tile) {
    const int64_t tiles = tiles_of(problem_, tile.bm, tile.bn);
    for (const int splits : {2, 3, 4}) {
      const double room = splits == 2 ? sms_ : kUsedByClusters * sms_;
      if (static_cast<double>(tiles * splits) > room ||
          problem_.k < splits * kLeastSteps * step_depth(problem_))
        return;
      WgmmaMatmulSchedule schedule{tile.bm, tile.bn, tile.groups, 8, 1};
      schedule.splits = splits;
      add_with_stages(schedule);
    }
  }

  // Best first, those of several blocks an SM behind the others.
  std::vector<WgmmaMatmulSchedule> best() {
    leave_out_waste();
    for (Ranked* each : lists()) sort(*each);
    vary_waves();
    Ranked best;
    take(alone_, has_both_forms_ ? kMostOfBothForms : kMostCandidates, best);
    take(ping_pong_, kMostPingPong, best);
    take(divided_, kMostDivided, best);
    sort(best);
    take(together_, kMostTogether, best);
    std::vector<WgmmaMatmulSchedule> schedules;
    for (const auto& [cycles, schedule] : best) schedules.push_back(schedule);
    return schedules;
  }

 private:
  using Ranked = std::vector<std::pair<double, WgmmaMatmulSchedule>>;

  // Products of few steps spend their time around them: several blocks an SM do that side by side, and
  // blocks of many tiles bring the second operand once.
  bool is_flat() const { return problem_.k <= kFlatSteps * step_depth(problem_); }

  // The next kernel cannot begin beside eight stages that take half of an SM's memory: there are more, then.
  static int most_stages(const WgmmaTile& tile) {
    constexpr int kUsual = 8, kMost = 13, kHalf = 114 << 10;
    return kUsual * (tile.bm + tile.bn) * WgmmaMatmulSchedule::kStepBytes < kHalf ? kUsual : kMost;
  }

  WgmmaMatmulSchedule keeping(WgmmaMatmulSchedule schedule) const {
    schedule.kept = static_cast<int>(ceil_div(problem_.k, step_depth(problem_)));
    schedule.raster = 1;
    return schedule;
  }

  // With as many stages as fit; false: too few do.
  bool add_with_stages(WgmmaMatmulSchedule schedule) {
    const bool alone = schedule.blocks == 1;
    while (schedule.stages > (alone ? 3 : 2) && !fits_(schedule)) --schedule.stages;
    if (!fits_(schedule)) return false;
    if (!alone && !has_registers_together(schedule, is_f8(problem_.a.dtype))) return false;
    (schedule.ping_pong == 1 ? ping_pong_
     : schedule.splits > 1   ? divided_
     : alone                 ? alone_
                             : together_)
        .emplace_back(estimate(schedule, problem_, sms_, operands_), schedule);
    return true;
  }

  std::array<Ranked*, 4> lists() { return {&alone_, &ping_pong_, &divided_, &together_}; }

  // Leaves out tiles that waste columns, unless all do.
  void leave_out_waste() {
    const auto wastes = [&](const auto& entry) { return wastes_columns(entry.second, problem_.n); };
    if (std::ranges::all_of(lists(),
                            [&](Ranked* each) { return std::ranges::all_of(*each, wastes); }))
      return;
    for (Ranked* each : lists()) std::erase_if(*each, wastes);
  }

  int64_t waves(const WgmmaMatmulSchedule& schedule) const {
    return ceil_div(tiles_of(problem_, schedule.bm, schedule.bn), int64_t{sms_});
  }

  // The model knows least how waves of tiles follow each other: where the first three candidates have as many,
  // the next is the best of another number. REQUIRES: alone_ is sorted.
  void vary_waves() {
    constexpr size_t kAlike = kMostCandidates - 1;
    if (alone_.size() <= kAlike) return;
    const auto is_other = [&](const auto& entry) {
      return waves(entry.second) != waves(alone_[0].second);
    };
    const auto next = alone_.begin() + kAlike;
    if (std::any_of(alone_.begin(), next, is_other)) return;
    const auto other = std::find_if(next, alone_.end(), is_other);
    if (other != alone_.end()) std::rotate(next, other, other + 1);
  }

  static void sort(Ranked& schedules) {
    std::ranges::stable_sort(schedules, {}, [](const auto& entry) { return entry.first; });
  }
  static void take(const Ranked& from, size_t most, Ranked& best) {
    for (size_t i = 0; i < std::min(most, from.size()); ++i) best.push_back(from[i]);
  }

  const MatmulProblem& problem_;
  const Fits& fits_;
  const int sms_;
  const double operands_;
  Ranked alone_, ping_pong_, divided_;  // of one block an SM
  Ranked together_;                     // of several
  bool has_both_forms_ = false;
};

}  // namespace

std::vector<WgmmaMatmulSchedule> ranked_tiles(
    const MatmulProblem& problem, const Target& target,
    const std::function<bool(const WgmmaMatmulSchedule&)>& fits, std::optional<double> bytes) {
  TileRanking ranking(problem, target, fits, bytes.value_or(operand_bytes(problem)));
  for (const WgmmaTile& tile : kTiles) ranking.add(tile);
  for (const WgmmaTile& tile : kPingPongTiles) ranking.add_ping_pong(tile);
  for (const WgmmaTile& tile : kTiles) ranking.add_divided(tile);
  return ranking.best();
}

}  // namespace kiln
