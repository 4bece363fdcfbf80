#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// From here on an output is larger than what the L2 keeps for its reader.
constexpr int64_t kL2StreamBytes = int64_t{48} << 20;
// More statements than this in one thread's code take longer to compile than they gain.
constexpr int64_t kMostOperations = 640;
constexpr int kMostLanes = 16;
constexpr int kMostUnroll = 16;

// A part of a Concat is an address and a comparison; or a load and a choice for each lane.
constexpr int64_t kStatementsAPart = 8;
// Vectors across rows or edges choose a part lane by lane: with more parts than these they compile for
// long and read every lane of every part.
constexpr int kMostPartsByLane = 4;

// The unrolling of a vector's arithmetic that a thread can hold at a time.
int bounded_unroll(const PointwiseStreams& streams, int lanes, int unroll) {
  const int64_t choices =
      kStatementsAPart * streams.joined * (lanes <= streams.alignment ? 1 : lanes);
  while (unroll > 1 && (streams.arithmetic * lanes + choices) * unroll > kMostOperations)
    unroll /= 2;
  return unroll;
}

class Space {
 public:
  Space(const Workload& workload, const Target& target)
      : streams_(pointwise_streams(workload.graph)),
        limits_(cuda_limits(target)),
        large_(streams_.bytes_written >= kL2StreamBytes) {
    // 16 bytes of the narrowest operand, unless the widest would need too many registers then.
    widest_ = std::min({16 / streams_.narrowest_bytes, 32 / streams_.widest_bytes, kMostLanes});
    widest_ = std::max(widest_, 1);
  }

  std::vector<Schedule> list() {
    if (!streams_.across.empty()) add_tiles();
    // Beside tiles the others are there for axes that are too short for them.
    const Extent most = streams_.across.empty() ? kAll : kFew;
    const bool whole = !streams_.rows_differ || streams_.rows == 1;
    const int64_t row_bits = whole ? widest_ : lowest_bit(streams_.columns);
    const int fitting =
        static_cast<int>(std::min({int64_t{widest_}, row_bits, whole ? 16 : streams_.alignment}));
    if (fitting == widest_) {
      add_lanes(widest_, PointwiseMap::kRows, most);
    } else if (row_bits < widest_) {
      // Rows that are no whole number of vectors: vectors across rows, or narrow ones.
      const bool across = streams_.joined <= kMostPartsByLane;
      if (across) add_lanes(widest_, PointwiseMap::kFlat, most);
      add_lanes(static_cast<int>(std::min<int64_t>(row_bits, widest_)), PointwiseMap::kRows,
                across ? kFew : most);
    } else if (streams_.joined > kMostPartsByLane) {
      add_lanes(fitting, PointwiseMap::kRows, most);
    } else {
      // Some operand's rows begin anywhere: its elements are loaded one by one, the rest as
      // vectors, of which narrow ones leave fewer lines to each load.
      add_lanes(std::min(2 * fitting, widest_), PointwiseMap::kRows, most);
      add_lanes(widest_, PointwiseMap::kRows, kFew);
      add_lanes(fitting, PointwiseMap::kRows, kFew);
    }
    return space_;
  }

 private:
  static int64_t lowest_bit(int64_t x) { return x & -x; }

  void add(CudaPointwiseSchedule schedule) { add_unless_present(space_, to_schedule(schedule)); }

  void add_tiles() {
    const int64_t both = lowest_bit(streams_.columns) | lowest_bit(streams_.across_size);
    const int lanes = static_cast<int>(std::min<int64_t>(lowest_bit(both), widest_));
    for (const auto& [tile, threads] : {std::pair(64, 256), {32, 256}, {64, 512}, {128, 512}}) {
      if (tile * tile < lanes * threads || tile * tile > lanes * threads * 16) continue;
      if (int64_t{tile} * (tile + 4) * streams_.widest_bytes *
              static_cast<int64_t>(streams_.across.size()) >
          kMostTileBytes)
        continue;
      add({lanes, threads, 1, PointwiseMap::kRows, tile, false});
      if (large_ && tile == 64) add({lanes, threads, 1, PointwiseMap::kRows, tile, true});
    }
  }

  enum Extent { kFew, kAll };
  void add_lanes(int lanes, PointwiseMap map, Extent extent) {
    const int64_t vectors = std::max<int64_t>(streams_.rows * streams_.columns / lanes, 1);
    // As many bytes in flight as wide vectors have.
    const int more = std::clamp(widest_ / lanes, 1, 4);
    const auto try_one = [&](int threads, int unroll, PointwiseMap how, bool stream) {
      unroll = bounded_unroll(streams_, lanes, std::min(unroll * more, kMostUnroll));
      // Every SM gets a block before a thread gets a second vector.
      while (unroll > 1 && vectors < int64_t{limits_.sms} * threads * unroll) unroll /= 2;
      while (threads > 64 && vectors < int64_t{limits_.sms} * threads) threads /= 2;
      add({lanes, threads, unroll, how, 0, stream});
    };
    const bool repeats = map == PointwiseMap::kRows && streams_.repeats_rows && streams_.rows >= 64;
    if (repeats && extent == kAll) {
      try_one(256, 4, PointwiseMap::kDown, false);
      if (large_) try_one(256, 4, PointwiseMap::kDown, true);
      try_one(128, 8, PointwiseMap::kDown, false);
    }
    try_one(256, 2, map, false);
    if (extent == kFew) return;
    if (large_) try_one(256, 2, map, true);
    try_one(256, 1, map, false);
    try_one(128, 4, map, false);
    try_one(512, 2, map, false);
  }

  static constexpr int64_t kMostTileBytes = 96 << 10;
  const PointwiseStreams streams_;
  const CudaLimits limits_;
  const bool large_;
  int widest_ = 1;
  std::vector<Schedule> space_;
};

}  // namespace

std::vector<Schedule> cuda_pointwise_candidates(const Workload& workload, const Target& target) {
  return Space(workload, target).list();
}

namespace {

// Vectors only where rows are known to be whole ones; no tiles.
std::optional<CudaPointwiseSchedule> adapt(const Graph& graph, CudaPointwiseSchedule chosen) {
  const Shape& shape = graph.node(graph.outputs()[0]).shape;
  CudaPointwiseSchedule schedule;
  schedule.threads = chosen.tile > 0 ? schedule.threads : chosen.threads;
  schedule.lanes =
      shape.size() < 2 || has_whole_vectors(shape.back(), chosen.lanes) ? chosen.lanes : 1;
  schedule.stream = chosen.stream;
  return schedule;
}

}  // namespace

const KernelTemplate& cuda_pointwise() {
  static const PrintedTemplate<CudaPointwiseSchedule> made({
      .version = 8,
      .backend = Backend::kCuda,
      .family = Family::kPointwise,
      .candidates = cuda_pointwise_candidates,
      .print = print_cuda_pointwise,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
