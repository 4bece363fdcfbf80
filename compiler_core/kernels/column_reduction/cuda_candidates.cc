#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <optional>

#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/analysis/reduction_passes.h"
#include "compiler_core/kernels/column_reduction/column_extent.h"
#include "compiler_core/kernels/column_reduction/cuda_column_fold.h"
#include "compiler_core/kernels/printed_template.h"

namespace kiln {
namespace {

// Figures of the H200 (and not far from the A100's): what ranks the schedules, nothing else.
constexpr double kBytesAnUs = 4.3e6;        // to and from device memory
constexpr double kSmInFlight = 32 << 10;    // bytes that an SM's share of it takes for a latency
constexpr double kMostInFlight = 96 << 10;  // more do not make an SM faster
constexpr double kBlockUs = 1.5;            // of a block's life without loads in flight
constexpr double kPhaseUs = 3;              // of a launch after another
constexpr double kClusterUs = 6;            // of blocks that meet
constexpr double kCopyCost = 1.03;          // times the bytes that go through shared memory
constexpr double kNarrowBytes = 16;         // rows of a strip that cost twice their bytes
constexpr double kBatchShare = 0.75;        // of a batch's bytes in flight, on the average
constexpr size_t kMostSchedules = 12;
constexpr double kLargeBlockUs = 0.2;  // more threads end later
constexpr int kLargeBlock = 512;       // threads
constexpr size_t kFewSchedules = 5;
constexpr double kHopeless = 1.4;  // times the best estimate: not among more than few
constexpr long kMostOfForm = 3;    // see is_same_form
constexpr int kWidest = 16;        // bytes of one load

// The memory and registers that a workload asks for, a row and column of its space.
struct Traffic {
  int narrowest = 8;  // bytes of the narrowest full operand or output
  double read = 0, written = 0;
  int passes = 0;
  int words = 0;         // registers of a lane's full operands
  int accumulators = 0;  // registers of a lane's accumulators, and of what is known of its column
  int scratch = 22;      // registers of addresses, counters and the work on one vector
};

Traffic traffic_of(const Graph& graph, const ReductionPasses& passes) {
  const std::vector<int64_t> sizes = constant_sizes(passes.space.shape);
  Traffic traffic;
  const auto note = [&](NodeId id) {
    const int bytes = static_cast<int>(size_of(graph.node(id).dtype));
    traffic.narrowest = std::min(traffic.narrowest, bytes);
    return bytes;
  };
  for (NodeId id = 0; id < graph.size(); ++id)
    if (is_streamed(graph, sizes, id)) {
      traffic.read += note(id);
      traffic.words +=
          graph.node(id).dtype == DType::kF64 || graph.node(id).dtype == DType::kI64 ? 2 : 1;
    }
  // Values that one loop found are known in the next.
  int known = 0;
  const bool divides = std::any_of(graph.nodes().begin(), graph.nodes().end(),
                                   [](const Node& node) { return node.op == Op::kDiv; });
  for (const ReductionPasses::Pass& pass : passes.passes) {
    int accumulators = 0;
    for (NodeId id : pass.reduces) accumulators += size_of(graph.node(id).dtype) > 4 ? 2 : 1;
    traffic.accumulators = std::max(traffic.accumulators, known + accumulators);
    for (int output : pass.outputs)
      traffic.written += note(graph.outputs()[static_cast<size_t>(output)]);
    traffic.passes += pass.empty() ? 0 : 1;
    known += accumulators;
  }
  if (traffic.passes > 1 && divides) {
    traffic.accumulators += 1;  // the divisor's reciprocal
    traffic.scratch += 6;       // a call
  }
  // The functions of f64 are long sequences of instructions.
  const auto is_long = [&](const Node& node) {
    return node.dtype == DType::kF64 && is_elementwise(node.op) && node.op != Op::kAdd &&
           node.op != Op::kSub && node.op != Op::kMul && node.op != Op::kCast;
  };
  if (std::any_of(graph.nodes().begin(), graph.nodes().end(), is_long)) traffic.scratch += 18;
  return traffic;
}

class ColumnRanking {
 public:
  ColumnRanking(const Workload& workload, const Target& target)
      : graph_(workload.graph),
        passes_(ReductionPasses::of(workload.graph, ReductionPasses::Keep::kNothing)),
        extent_(passes_.space),
        traffic_(traffic_of(workload.graph, passes_)),
        limits_(cuda_limits(target)) {}

  std::vector<Schedule> best() {
    list();
    std::stable_sort(found_.begin(), found_.end(),
                     [](const Ranked& a, const Ranked& b) { return a.us < b.us; });
    std::vector<Ranked> chosen;
    for (const Ranked& next : found_) {
      if (chosen.size() >= kFewSchedules && next.us > kHopeless * found_[0].us) break;
      const CudaColumnReductionSchedule& a = next.schedule;
      long of_form = 0, alike = 0;
      for (const Ranked& other : chosen) {
        const CudaColumnReductionSchedule& b = other.schedule;
        if (!is_same_form(a, b)) continue;
        ++of_form;
        // Schedules of one strip width whose blocks are all large, or all small, run alike.
        alike += a.lanes * a.across == b.lanes * b.across && (!a.copy || a.unroll == b.unroll) &&
                         (a.threads() >= kLargeBlock) == (b.threads() >= kLargeBlock)
                     ? 1
                     : 0;
      }
      if (of_form == kMostOfForm || alike > 0) continue;
      chosen.push_back(next);
      if (chosen.size() == kMostSchedules) break;
    }
    std::vector<Schedule> schedules;
    for (const Ranked& ranked : chosen) schedules.push_back(to_schedule(ranked.schedule));
    return schedules;
  }

 private:
  // Both whole, split or kept; in clusters or not; copied ahead or not; all at once or in waves.
  bool is_same_form(const CudaColumnReductionSchedule& a,
                    const CudaColumnReductionSchedule& b) const {
    return (a.split > 0) == (b.split > 0) && a.keep == b.keep && a.copy == b.copy &&
           (a.cluster > 1) == (b.cluster > 1) && (waves(a) > 1) == (waves(b) > 1);
  }

  struct Ranked {
    CudaColumnReductionSchedule schedule;
    double us;
  };

  void list() {
    int widest = kWidest / traffic_.narrowest;
    if (const int64_t fold = column_fold(extent_.columns, widest);
        fold > 1 && fold_columns(graph_, passes_, extent_, fold))
      list_lanes(widest);
    while (extent_.columns % widest != 0) widest /= 2;
    for (int lanes = widest; lanes >= 1 && lanes * 4 >= widest; lanes /= 2) list_lanes(lanes);
    // Whatever the figures say, there is a kernel.
    if (found_.empty()) found_.push_back({{}, 0});
  }

  void list_lanes(int lanes) {
    CudaColumnReductionSchedule schedule;
    schedule.lanes = lanes;
    for (schedule.across = 4; schedule.across <= 128; schedule.across *= 2) {
      if (schedule.across > 4 && int64_t{schedule.across} * lanes / 2 >= columns(schedule)) break;
      for (schedule.down = 1; schedule.down <= 256; schedule.down *= 2)
        for (const int unroll : {2, 4, 8}) {
          schedule.unroll = unroll;
          schedule.copy = false;
          list_forms(schedule);
          schedule.copy = true;
          // Four bytes at least are copied.
          if (unroll >= 4 && lanes * traffic_.narrowest >= 4) list_forms(schedule);
        }
    }
  }

  void list_forms(CudaColumnReductionSchedule schedule) {
    const int threads = schedule.threads();
    if (threads < 128 || threads > limits_.max_block_threads) return;
    if (schedule.down > rows(schedule) && threads > 128) return;
    const int64_t fewest = fold(schedule) > 1 ? 1 : 2;
    for (; fold(schedule) == 1 && schedule.cluster <= limits_.max_cluster; schedule.cluster *= 2) {
      if (schedule.cluster > 1 && extent_.rows / schedule.cluster < 2 * schedule.down) break;
      add(schedule);
      // A thread's rows are what it has in flight; they fit half of its registers at 512 threads.
      const int64_t kept_rows = thread_rows(schedule);
      if (traffic_.passes > 1 && schedule.unroll == 4 && !schedule.copy &&
          kept_rows <= kMostKeptRows && kept_rows * schedule.lanes * traffic_.words <= 48) {
        CudaColumnReductionSchedule kept = schedule;
        kept.keep = true;
        kept.unroll = 1;
        if (threads <= 512) add(kept);
      }
    }
    schedule.cluster = 1;
    for (const int waves : {1, 2, 4, 8}) {
      const int64_t pieces = waves * slots(schedule) / (extent_.groups * strips(schedule));
      if (pieces < fewest || pieces > 256 || rows(schedule) / pieces < 2 * schedule.down) continue;
      schedule.split = pieces;
      add(schedule);
    }
  }

  void add(const CudaColumnReductionSchedule& schedule) {
    if (registers(schedule) > limits_.sm_registers / resident_threads(schedule)) return;
    if (shared_bytes(schedule) > limits_.block_shared_bytes) return;
    found_.push_back({schedule, estimated_us(schedule)});
  }

  int64_t strips(const CudaColumnReductionSchedule& schedule) const {
    const int64_t width = int64_t{schedule.across} * schedule.lanes;
    return (columns(schedule) + width - 1) / width;
  }
  // The fold of the matrix as it is streamed through.
  int64_t fold(const CudaColumnReductionSchedule& schedule) const {
    return column_fold(extent_.columns, schedule.lanes);
  }
  int64_t rows(const CudaColumnReductionSchedule& schedule) const {
    return extent_.rows / fold(schedule);
  }
  int64_t columns(const CudaColumnReductionSchedule& schedule) const {
    return extent_.columns * fold(schedule);
  }
  static int64_t pieces(const CudaColumnReductionSchedule& schedule) {
    return std::max<int64_t>({schedule.split, schedule.cluster, 1});
  }
  int64_t thread_rows(const CudaColumnReductionSchedule& schedule) const {
    const int64_t each = pieces(schedule) * schedule.down;
    return (rows(schedule) + each - 1) / each;
  }
  // An estimate: what ptxas makes of it decides, and a spill shows in its log.
  int registers(const CudaColumnReductionSchedule& schedule) const {
    const double in_flight = schedule.keep
                                 ? static_cast<double>(thread_rows(schedule)) * traffic_.words
                             : schedule.copy ? traffic_.words
                                             : schedule.unroll * std::max(traffic_.read / 4, 0.5);
    return static_cast<int>(schedule.lanes * (in_flight + traffic_.accumulators)) +
           traffic_.scratch;
  }
  int shared_bytes(const CudaColumnReductionSchedule& schedule) const {
    const int ring = schedule.copy ? schedule.unroll * static_cast<int>(traffic_.read) : 0;
    return schedule.threads() * schedule.lanes * (ring + traffic_.accumulators * 4);
  }
  // As the launch bounds of the printed kernels have it.
  int64_t resident(const CudaColumnReductionSchedule& schedule) const {
    const int by_shared = limits_.sm_shared_bytes / (shared_bytes(schedule) + 1024);
    return std::max(1, std::min(by_shared, resident_threads(schedule) / schedule.threads()));
  }
  // So that each has 64 registers, or 128 to hold rows in.
  static int resident_threads(const CudaColumnReductionSchedule& schedule) {
    return schedule.keep ? 512 : 1024;
  }
  int64_t slots(const CudaColumnReductionSchedule& schedule) const {
    // Clusters stay inside a GPC, of 16 or 18 SMs; a small device, or a part of one, is less than
    // that.
    const int64_t blocks = resident(schedule);
    const bool fills = 2 * blocks % schedule.cluster == 0 || limits_.sms < 16;
    const int64_t sms = fills ? limits_.sms : limits_.sms / 16 * 16;
    return sms * blocks;
  }

  int64_t blocks(const CudaColumnReductionSchedule& schedule) const {
    return extent_.groups * strips(schedule) * pieces(schedule);
  }
  int64_t waves(const CudaColumnReductionSchedule& schedule) const {
    return (blocks(schedule) + slots(schedule) - 1) / slots(schedule);
  }

  double estimated_us(const CudaColumnReductionSchedule& schedule) const {
    const int64_t pieces = this->pieces(schedule);
    const auto blocks = static_cast<double>(this->blocks(schedule));
    const auto slots = static_cast<double>(this->slots(schedule));
    const auto thread_rows = static_cast<double>(this->thread_rows(schedule));
    const double at_once =
        schedule.keep ? thread_rows : std::min<double>(schedule.unroll, thread_rows);
    // Columns past the end are idle threads.
    const double busy = static_cast<double>(columns(schedule)) /
                        static_cast<double>(strips(schedule) * schedule.across * schedule.lanes);
    // Bytes in flight on an SM that has blocks.
    const double sms = std::min<double>(blocks, limits_.sms);
    const double in_flight = std::min(blocks, slots) / sms * schedule.threads() * at_once *
                             schedule.lanes * std::max(traffic_.read, 1.0) * busy *
                             (schedule.copy ? 1 : kBatchShare);
    const double times = sms * std::min(in_flight, kMostInFlight) / (kSmInFlight * limits_.sms);
    const double share = times / std::cbrt(1 + times * times * times);
    const double row_bytes = schedule.across * schedule.lanes * traffic_.narrowest;
    const double reads = schedule.keep ? 1 : traffic_.passes;
    const auto elements = static_cast<double>(extent_.groups * extent_.rows * extent_.columns);
    const double bytes = elements * (traffic_.read * reads + traffic_.written) *
                         (schedule.copy ? kCopyCost : 1) *
                         (1 + kNarrowBytes * kNarrowBytes / (row_bytes * row_bytes));
    const auto waves = static_cast<double>(this->waves(schedule));
    // Blocks beside each other begin and end at different times.
    const double begins = 1 + std::min(waves - 1, 3.0) / static_cast<double>(resident(schedule));
    // Several short waves balance better than two long ones.
    const double idle = waves > 1 ? 0.3 * (waves * slots / blocks - 1) : 0;
    const double phases = schedule.split > 0 ? 2.0 * traffic_.passes - (traffic_.passes > 1) : 1;
    const double partials = schedule.split > 0 ? static_cast<double>(pieces * extent_.groups) *
                                                     static_cast<double>(columns(schedule)) * 8
                                               : 0;
    return bytes / (kBytesAnUs * share) * (1 + idle) + partials / kBytesAnUs +
           kBlockUs * (begins + reads - 1) + kPhaseUs * (phases - 1) +
           (schedule.cluster > 1 ? kClusterUs * traffic_.passes : 0) + 0.02 * schedule.unroll +
           kLargeBlockUs * schedule.threads() / kLargeBlock;
  }

  const Graph& graph_;
  const ReductionPasses passes_;
  const ColumnExtent extent_;
  const Traffic traffic_;
  const CudaLimits limits_;
  std::vector<Ranked> found_;
};

}  // namespace

bool is_streamed(const Graph& graph, const std::vector<int64_t>& sizes, NodeId id) {
  const Node& node = graph.node(id);
  if (constant_sizes(node.shape) != sizes) return false;
  if (node.op != Op::kView) return node.op == Op::kInput;
  const std::vector<Dim>& strides = std::get<ViewAttr>(node.attr).strides;
  return graph.node(node.operands[0]).op == Op::kInput &&
         std::none_of(strides.begin(), strides.end(),
                      [](const Dim& stride) { return stride.constant() == 0; });
}

std::vector<Schedule> cuda_column_reduction_candidates(const Workload& workload,
                                                       const Target& target) {
  return ColumnRanking(workload, target).best();
}

namespace {

// A thread a column.
std::optional<CudaColumnReductionSchedule> adapt(const Graph& /*graph*/,
                                                 CudaColumnReductionSchedule chosen) {
  CudaColumnReductionSchedule schedule;
  schedule.down = 1;
  schedule.across = std::min(chosen.threads(), 256);
  return schedule;
}

}  // namespace

const KernelTemplate& cuda_column_reduction() {
  static const PrintedTemplate<CudaColumnReductionSchedule> made({
      .version = 6,
      .backend = Backend::kCuda,
      .family = Family::kColumnReduction,
      .candidates = cuda_column_reduction_candidates,
      .print_for = print_cuda_column_reduction,
      .adapt = adapt,
  });
  return made;
}

}  // namespace kiln
