#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/printed_template.h"
#include "compiler_core/kernels/row_reduction/cuda_row_shape.h"

namespace kiln {
namespace {

using Keep = ReductionPasses::Keep;

constexpr int kMostRegisters = 200;  // a thread; 255 there are
constexpr int64_t kUnrolledRegisters = 112;
constexpr int kFewRegisters = 24;          // that a kernel gets by with, beside its vectors
constexpr int kLoneRegisters = 28;         // addresses, indices, a vector in the making
constexpr int64_t kBytesInFlight = 40960;  // an SM asks for at once to keep the memory busy
// From here on an output is larger than what the L2 keeps for its reader.
constexpr int64_t kL2StreamBytes = int64_t{32} << 20;
// Rows shorter than this have little but a first and a last vector; of rows longer than that those
// are little.
constexpr int64_t kPeeledElements = 64, kLongPeeled = 256;
// Rows shorter than this are not worth two phases.
constexpr int64_t kCudaSplitElements = 32768;
// Rows shorter than this leave room for enough blocks anyway.
constexpr int64_t kCrowdedElements = 4096;
// Rows shorter than this are not worth a cluster.
constexpr int64_t kClusterBytes = 65536;
// So large a block has an SM to itself, and its threads wait for one another.
constexpr int kMostThreads = 512;

// A workload's candidates, each with a guess of how well it keeps the memory busy: 1 is best.
class RowSpace {
 public:
  RowSpace(const Workload& workload, const Target& target)
      : graph_(workload.graph),
        limits_(cuda_limits(target)),
        shape_(RowShape::of(graph_)),
        rows_(shape_.rows.constant()),
        plain_(ReductionPasses::of(graph_, Keep::kNothing)) {
    int64_t widest = 1;
    for (NodeId id : shape_.reads) widest = std::max(widest, size_of(graph_.node(id).dtype));
    int64_t stored = 0;
    size_t most = 1;
    for (const ReductionPasses::Pass& pass : plain_.passes) {
      for (int output : pass.outputs) {
        const DType dtype = graph_.node(graph_.outputs()[static_cast<size_t>(output)]).dtype;
        stored += size_of(dtype);
        widest = std::max(widest, size_of(dtype));
      }
      most = std::max(most, pass.reduces.size());
    }
    reduces_ = static_cast<int>(most);
    ReductionPasses online = plain_;
    take_sums_online(graph_, online);
    read_once_ = std::count_if(online.passes.begin(), online.passes.end(),
                               [](const auto& pass) { return !pass.empty(); }) == 1;
    size_t inputs = 0;
    for (NodeId id = 0; id < graph_.size(); ++id) inputs += graph_.node(id).op == Op::kInput;
    has_weights_ = inputs > shape_.reads.size();
    stream_ = stored * rows_ * shape_.elements() >= kL2StreamBytes;
    // Whole 16 bytes of the narrowest, so that nothing is read in smaller pieces; then of the
    // widest.
    narrowest_ = widest;
    for (NodeId id : shape_.reads)
      narrowest_ = std::min(narrowest_, size_of(graph_.node(id).dtype));
    const auto add_lanes = [&](int64_t bytes, int64_t limit) {
      int64_t lanes = std::min({16 / bytes, limit, int64_t{8}});
      while (lanes > shape_.elements()) lanes /= 2;
      if (std::find(lanes_.begin(), lanes_.end(), lanes) == lanes_.end())
        lanes_.push_back(static_cast<int>(lanes));
    };
    // Peeled: first where rows are long, not at all where they are a few vectors.
    if (shape_.peels(8) && shape_.elements() >= kLongPeeled) add_lanes(narrowest_, 8);
    for (const int64_t bytes : {narrowest_, widest}) add_lanes(bytes, shape_.alignment);
    if (shape_.peels(8) && shape_.elements() >= kPeeledElements) add_lanes(narrowest_, 8);
  }

  std::vector<Schedule> run() {
    const bool few = rows_ * 2 < limits_.sms && shape_.elements() >= kCudaSplitElements;
    const Keep keep = kept(Keep::kCostly) > 0 ? Keep::kCostly : Keep::kNothing;
    if (few) add_split();
    if (read_once_) add_stream();
    // The best of both, then what each has left.
    std::vector<Guess> guesses = guess(RowStorage::kRegisters, lanes_[0], keep);
    const std::vector<Guess> shared = guess(RowStorage::kShared, lanes_[0], Keep::kNothing);
    for (size_t i = 0, j = 0; i + j < 4;) {
      if (i < guesses.size() && (j >= shared.size() || guesses[i].score >= shared[j].score))
        add(guesses[i++].schedule);
      else if (j < shared.size())
        add(shared[j++].schedule);
      else
        break;
    }
    take(guesses, 4);
    take(shared, 2);
    add_crowded(shared);
    add_tight(guesses);
    add_walking();
    if (keep != Keep::kNothing) take(guess(RowStorage::kRegisters, lanes_[0], Keep::kNothing), 2);
    if (lanes_.size() > 1) take(guess(RowStorage::kRegisters, lanes_.back(), keep), 2);
    if (stream_ && !guesses.empty()) {
      guesses[0].schedule.stream = false;
      take(guesses, 1);
    }
    if (space_.empty() || shape_.elements() * shape_.read_bytes > 131072) add_reread();
    return std::move(space_);
  }

 private:
  struct Guess {
    CudaRowReductionSchedule schedule;
    double score = 0;
  };

  int64_t kept(Keep keep) const {
    return ReductionPasses::of(graph_, keep).kept_bytes_per_element(graph_);
  }

  // 32-bit registers a thread needs, when it has `vectors` at once.
  int64_t registers(const CudaRowReductionSchedule& s, int64_t vectors) const {
    // Kept values take the place of what they were computed from, vector by vector.
    // Where nothing is to be kept the compiler likes to keep it itself.
    const int64_t reads = shape_.read_bytes, keeps = kept(Keep::kCostly);
    int64_t held = reads;
    if (s.storage == RowStorage::kShared) held = 0;
    if (s.storage == RowStorage::kRegisters)
      held = std::max(reads, keeps) + std::min(reads, keeps) / 4;
    return vectors * s.lanes * held / 4 + (reduces_ + 2) * s.lanes + kLoneRegisters;
  }

  std::vector<Guess> guess(RowStorage storage, int lanes, Keep keep) const {
    std::vector<Guess> guesses;
    for (int cluster = 1; cluster <= limits_.max_cluster; cluster *= 2)
      for (int threads = 1; threads <= kMostThreads; threads *= 2) {
        CudaRowReductionSchedule s;
        s.lanes = lanes;
        s.threads = threads;
        s.cluster = cluster;
        s.storage = storage;
        s.vectors = 4;  // means nothing then; as it has always been written
        s.keep = keep;
        s.stream = stream_;
        s.rows = cluster > 1 ? 1 : std::max(1, 128 / threads);
        while (s.rows > 1 && s.rows * threads > 32 && s.rows / 2 >= rows_) s.rows /= 2;
        if (s.rows * threads < 32) continue;
        if (const double score = rate(s); score > 0) guesses.push_back({s, score});
      }
    std::stable_sort(guesses.begin(), guesses.end(),
                     [](const Guess& a, const Guess& b) { return a.score > b.score; });
    return guesses;
  }

  // 0 when it can't be written. Sets how many blocks are to fit an SM.
  double rate(CudaRowReductionSchedule& s) const {
    const int64_t row_vectors = shape_.vectors(s.lanes);
    const int64_t members = int64_t{s.threads} * s.cluster;
    // Copies past the registers have 4 bytes at least.
    if (s.storage == RowStorage::kShared && s.lanes * narrowest_ < 4) return 0;
    const int64_t vectors = ceil_div(row_vectors, members);
    if (members > 1 && members >= 2 * row_vectors) return 0;
    if (s.cluster > 1 && (s.threads < 128 || vectors < 2)) return 0;
    if (s.cluster > 1 && shape_.elements() * shape_.read_bytes < kClusterBytes) return 0;
    if (vectors > 32 || (s.storage == RowStorage::kRegisters && vectors * s.lanes > 64)) return 0;
    // Neighbouring threads would read far apart; and the compiler, given so much, spills.
    if (s.threads <= 2 && vectors * s.lanes >= 16) return 0;
    const int64_t needed = registers(s, vectors);
    if (needed > kMostRegisters) return 0;
    const int64_t threads = int64_t{s.threads} * s.rows;
    int64_t blocks =
        std::min<int64_t>(limits_.sm_threads / threads, limits_.sm_registers / (threads * needed));
    const int64_t shared = s.storage == RowStorage::kShared
                               ? vectors * threads * s.lanes * shape_.read_bytes + 1024
                               : 0;
    if (shared > limits_.block_shared_bytes) return 0;
    if (shared > 0) blocks = std::min<int64_t>(blocks, limits_.sm_shared_bytes / (shared + 1024));
    if (blocks == 0) return 0;
    // The compiler has its own mind about when to load: what it wants is bounded with a margin.
    const bool wide = vectors * s.lanes > 32 || s.storage == RowStorage::kShared;
    const int64_t margin = wide ? needed : needed / 3;
    // Several short rows a block, and values of two registers, are unrolled beyond the estimate.
    const bool unrolled = s.storage == RowStorage::kShared && (s.rows > 1 || narrowest_ == 8);
    const int64_t least = unrolled ? kUnrolledRegisters : 0;
    const int64_t bounded = limits_.sm_registers / (threads * std::max(needed + margin, least));
    s.blocks = static_cast<int>(std::clamp<int64_t>(std::min(blocks, bounded), 1, 32));
    const auto ratio = [](int64_t a, int64_t b) {
      return std::min(1.0, static_cast<double>(a) / static_cast<double>(b));
    };
    // Bytes an SM asks for at once; how many of its threads have work; warps to hide arithmetic.
    double score = ratio(blocks * threads * vectors * s.lanes * shape_.read_bytes, kBytesInFlight);
    score *= ratio(row_vectors, vectors * members);
    score *= std::pow(ratio(blocks * threads, 1024), 0.3);
    // Values in shared memory are unpacked, and dear ones computed, in every loop again.
    if (s.storage == RowStorage::kShared) score *= kept(Keep::kCostly) > 0 ? 0.65 : 0.75;
    // Long unrolled code: dear to compile, and to fetch.
    if (s.storage == RowStorage::kRegisters && vectors * s.lanes > 32) score *= 0.8;
    // Meetings: between warps, between blocks.
    for (int64_t more = 32; more < members; more *= 2) score *= more < 128 ? 0.99 : 0.96;
    for (int more = 1; more < s.cluster; more *= 2) score *= 0.75;
    // While one block computes, another loads.
    if (blocks < 3) score *= blocks == 1 ? 0.6 : 0.85;
    // Neighbouring threads are to read whole sectors, or better whole lines, of memory.
    const int64_t run = std::min(members, row_vectors) * s.lanes * narrowest_;
    if (run < 128 && run < shape_.elements() * narrowest_)
      score *= run >= 64 ? 0.96 : run >= 32 ? 0.7 : 0.5;
    // A row's few vectors share the price of its reductions.
    if (s.threads > 1 && vectors == 1) score *= 0.93;
    // The last wave of blocks leaves SMs without work.
    const double waves =
        static_cast<double>(rows_ * s.cluster) / static_cast<double>(s.rows * blocks * limits_.sms);
    if (waves > 1) score *= std::sqrt(waves / std::ceil(waves));
    return score;
  }

  void take(const std::vector<Guess>& guesses, size_t most) {
    for (size_t i = 0; i < std::min(most, guesses.size()); ++i) add(guesses[i].schedule);
  }
  void add(const CudaRowReductionSchedule& schedule) {
    add_unless_present(space_, to_schedule(schedule));
  }

  // As many blocks an SM as its shared memory has room for, so that some load while others compute:
  // where the compiler can do with fewer registers than it would take.
  void add_crowded(const std::vector<Guess>& shared) {
    if (shape_.elements() < kCrowdedElements || narrowest_ > 4) return;
    for (size_t i = 0; i < std::min<size_t>(2, shared.size()); ++i) {
      CudaRowReductionSchedule s = shared[i].schedule;
      const int64_t row_bytes = shape_.elements() * shape_.read_bytes / s.cluster * s.rows;
      const int64_t threads = int64_t{s.threads} * s.rows;
      const int64_t blocks = std::min(
          {limits_.sm_shared_bytes / (row_bytes + 2048), limits_.sm_threads / threads,
           limits_.sm_registers / (threads * (kFewRegisters + s.lanes * shape_.read_bytes))});
      if (blocks <= s.blocks || blocks > 8) continue;
      s.blocks = static_cast<int>(blocks);
      add(s);
    }
  }

  // The best without a margin of registers.
  void add_tight(const std::vector<Guess>& guesses) {
    if (guesses.empty()) return;
    CudaRowReductionSchedule s = guesses[0].schedule;
    const int64_t vectors = ceil_div(shape_.elements(), int64_t{s.lanes} * s.threads * s.cluster);
    if (vectors * s.lanes > 32 || vectors == 1) return;
    const int64_t most = limits_.sm_registers / (s.threads * s.rows * registers(s, vectors));
    s.blocks = static_cast<int>(std::clamp<int64_t>(most, 1, 7));
    add(s);
  }

  // Blocks that stay, and read a row while they work on the one before.
  void add_walking() {
    std::vector<Guess> guesses = guess(RowStorage::kRegisters, lanes_[0], Keep::kNothing);
    for (size_t i = 0; i < std::min<size_t>(2, guesses.size()); ++i) {
      CudaRowReductionSchedule& s = guesses[i].schedule;
      const int64_t threads = int64_t{s.threads} * s.rows;
      const int64_t lanes = ceil_div(shape_.vectors(s.lanes), s.threads) * s.lanes;
      if (s.cluster > 1 || lanes > 32) continue;
      const int64_t needed = lanes * shape_.read_bytes / 2 + (reduces_ + 1) * s.lanes +
                             kLoneRegisters + (has_weights_ && lanes > 16 ? lanes / 2 : 0);
      const int64_t blocks = std::min<int64_t>(limits_.sm_registers / (threads * needed),
                                               limits_.sm_threads / threads);
      s.blocks = static_cast<int>(std::clamp<int64_t>(blocks, 1, 32));
      s.walk = s.blocks * limits_.sms;
      if (s.walk * s.rows * 4 <= rows_) add(s);
    }
  }

  CudaRowReductionSchedule rereading(int threads, int vectors) const {
    CudaRowReductionSchedule s;
    s.lanes = lanes_[0];
    s.stream = stream_;
    s.threads = threads;
    s.vectors = vectors;
    s.blocks = static_cast<int>(
        std::clamp<int64_t>(limits_.sm_registers / (threads * registers(s, vectors)), 1, 16));
    return s;
  }
  int loads() const {
    const int64_t words = std::max<int64_t>(lanes_[0] * shape_.read_bytes / 4, 1);
    return static_cast<int>(std::clamp<int64_t>(16 / words, 1, 4));
  }
  void add_reread() {
    for (const int threads : {512, 1024}) add(rereading(threads, loads()));
  }
  // A kernel that looks at a row once need not hold it: many small blocks, each with a few vectors
  // in flight.
  void add_stream() {
    constexpr std::pair<int, int> kForms[] = {{256, 4}, {128, 4}, {256, 8}, {512, 4}, {128, 8}};
    const int64_t row_vectors = shape_.elements() / lanes_[0];
    for (const auto& [threads, vectors] : kForms)
      if (vectors <= 2 * loads() && row_vectors >= int64_t{2} * threads * vectors)
        add(rereading(threads, vectors));
  }
  void add_split() {
    for (const int64_t waves : {4, 2, 8}) {
      CudaRowReductionSchedule s = rereading(256, loads());
      const int64_t chunks = ceil_div(shape_.elements(), int64_t{s.lanes} * s.vectors * s.threads);
      s.split = std::clamp<int64_t>(limits_.sms * waves / rows_, 2, std::max<int64_t>(chunks, 2));
      add(s);
    }
  }

  const Graph& graph_;
  const CudaLimits limits_;
  const RowShape shape_;
  const int64_t rows_;
  const ReductionPasses plain_;
  std::vector<int> lanes_;    // best guess first
  int reduces_ = 1;           // of one loop
  int64_t narrowest_ = 1;     // bytes of the narrowest element that a row reads
  bool has_weights_ = false;  // reads what is the same for every row, too
  bool stream_ = false;
  bool read_once_ = false;  // one loop takes everything, where nothing is held
  std::vector<Schedule> space_;
};

}  // namespace

bool CudaRowReductionSchedule::go_together() const {
  const bool whole_warps = threads * rows % 32 == 0;
  const bool in_registers = storage == RowStorage::kRegisters;
  const bool alone = cluster == 1 && rows == 1;
  return whole_warps && (cluster == 1 || rows == 1) &&
         (split == 1 || (storage == RowStorage::kReread && alone)) &&
         (keep == Keep::kNothing || in_registers) && (walk == 0 || (in_registers && cluster == 1));
}

std::vector<Schedule> cuda_row_reduction_candidates(const Workload& workload,
                                                    const Target& target) {
  return RowSpace(workload, target).run();
}

namespace {

// A row that is a block's, and read again by every loop, in vectors that are aligned whatever the
// sizes are.
CudaRowReductionSchedule rereading(const Graph& graph, CudaRowReductionSchedule chosen) {
  const RowShape shape = RowShape::of(graph);
  const auto lanes = static_cast<int>(std::min<int64_t>(chosen.lanes, shape.alignment));
  CudaRowReductionSchedule schedule;
  schedule.lanes = has_whole_vectors(shape.columns, lanes) ? lanes : 1;
  schedule.threads = std::clamp(chosen.threads * chosen.cluster, 32, 1024);
  schedule.stream = chosen.stream;
  return schedule;
}

// With any number of rows of one length all that a row's threads do is known, but where the
// memory's vectors lie when that differs from row to row.
std::optional<CudaRowReductionSchedule> adapt(const Graph& graph, CudaRowReductionSchedule chosen) {
  const RowShape shape = RowShape::of(graph);
  if (!shape.row.is_constant()) return rereading(graph, chosen);
  if (chosen.split > 1 || chosen.walk > 0 || chosen.lanes > shape.alignment) return std::nullopt;
  return chosen;
}

// Threads were chosen for rows that stay in registers; rows of any length do not, so that other
// numbers of threads are worth a try.
std::vector<Schedule> with_other_threads(const Graph& graph, std::vector<Schedule> space) {
  if (RowShape::of(graph).row.is_constant()) return space;
  CudaRowReductionSchedule schedule = *decisions_of<CudaRowReductionSchedule>(space[0]);
  for (const int threads : {64, 128, 256, 512, 1024}) {
    schedule.threads = threads;
    add_unless_present(space, to_schedule(schedule));
  }
  return space;
}

}  // namespace

const KernelTemplate& cuda_row_reduction() {
  static const PrintedTemplate<CudaRowReductionSchedule> made({
      .version = 7,
      .backend = Backend::kCuda,
      .family = Family::kRowReduction,
      .candidates = cuda_row_reduction_candidates,
      .print_for = print_cuda_row_reduction,
      .adapt = adapt,
      .fallback = rereading,
      .extend = with_other_threads,
  });
  return made;
}

}  // namespace kiln
