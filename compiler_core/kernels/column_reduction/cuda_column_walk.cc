#include "compiler_core/kernels/column_reduction/cuda_column_walk.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/coordinates.h"

namespace kiln {
namespace {

constexpr int kWarp = 32;

int register_bytes(DType dtype) {
  const std::string_view type = register_type(dtype);
  return type == "vf64" || type == "vi64" ? 8 : 4;
}

}  // namespace

std::string column_coordinates(const ColumnExtent& extent, const std::string& flat,
                               const std::vector<size_t>& axes, const std::string& suffix) {
  const Shape sizes(extent.sizes.begin(), extent.sizes.end());
  return declare_coordinates("index_t", flat, named_axes(sizes, axes, suffix), 0);
}

ColumnWalk::ColumnWalk(const Graph& graph, const ColumnExtent& extent,
                       const CudaColumnReductionSchedule& schedule, int64_t piece, int vector,
                       int64_t begin)
    : graph_(graph),
      extent_(extent),
      schedule_(schedule),
      vector_(vector),
      begin_(begin),
      rows_(extent.rows - begin),
      piece_(piece),
      pieces_(std::max<int64_t>(ceil_div(rows_, piece), schedule.cluster)),
      strips_(ceil_div(extent.columns, int64_t{schedule.across} * schedule.lanes)),
      kept_(schedule.keep ? static_cast<int>(ceil_div(piece, schedule.down)) : 0),
      even_rows_((schedule.cluster == 1 || piece * pieces_ == rows_) &&
                 piece % (int64_t{schedule.down} * rows_at_once()) == 0 &&
                 rows_ % (int64_t{schedule.down} * rows_at_once()) == 0),
      even_strips_(extent.columns % (int64_t{schedule.across} * schedule.lanes) == 0),
      printer_(graph, Dialect::kCuda) {}

std::string ColumnWalk::position() const {
  const int64_t width = int64_t{schedule_.across} * schedule_.lanes;
  const bool is_cluster = schedule_.cluster > 1;
  std::string text = fmt::format(
      "  constexpr {0};\n"
      "  const index_t block = block_index(){1};\n"
      "  const index_t group = {2}, piece = {3};\n"
      "  const index_t place = block % {4} * {5} + thread_index() % {6} * {7};\n"
      "  const index_t down = thread_index() / {6};\n",
      vector_ > schedule_.lanes ? fmt::format("SomeLanes live{{{}}}", schedule_.lanes)
                                : "AllLanes live{}",
      is_cluster ? fmt::format(" / {}", schedule_.cluster) : "",
      extent_.groups > 1 ? fmt::format("block / {}", is_cluster ? strips_ : pieces_ * strips_)
                         : "0",
      is_cluster    ? "cluster_rank()"
      : pieces_ > 1 ? fmt::format("block / {} % {}", strips_, pieces_)
                    : "0",
      strips_, width, schedule_.across, schedule_.lanes);
  if (even_strips_)
    text += "  constexpr bool mine = true;\n  const index_t j = place;\n";
  else
    text +=
        fmt::format("  const bool mine = place < {};\n  const index_t j = smaller(place, {});\n",
                    extent_.columns, extent_.columns - schedule_.lanes);
  const std::string end = piece_ * pieces_ == rows_
                              ? fmt::format("row_begin + {}", piece_)
                              : fmt::format("smaller(row_begin + {}, {})", piece_, extent_.rows);
  text += fmt::format(
      "  const index_t row_begin = {}piece * {};\n"
      "  const index_t row_end = {};\n"
      "  const index_t first_row = row_begin + down;\n",
      begin_ > 0 ? fmt::format("{} + ", begin_) : "", piece_,
      even_strips_ ? end : fmt::format("mine ? {} : 0", end));
  std::string rest = column_coordinates(extent_, "group", extent_.group_axes);
  if (schedule_.keep) rest += kept_rows();
  for (size_t at = 0; at < rest.size(); at = rest.find('\n', at) + 1) rest.insert(at, "  ");
  return text + rest;
}

// Which rows a thread keeps: `alive{u}` says that row u exists, and row{u} then is it.
std::string ColumnWalk::kept_rows() const {
  std::string text;
  const bool guarded = !even_rows_ || !even_strips_;
  for (int u = 0; u < kept_; ++u) {
    const std::string row = fmt::format("first_row + {}", u * schedule_.down);
    if (guarded)
      text += fmt::format(
          "const bool alive{0} = {1} < row_end;\n"
          "const index_t row{0} = smaller({1}, {2});\n",
          u, row, extent_.rows - 1);
    if (extent_.reduced_axes.size() > 1)
      text += column_coordinates(extent_, guarded ? fmt::format("row{}", u) : "(" + row + ")",
                                 extent_.reduced_axes, fmt::format("_{}", u));
  }
  return text;
}

// The indices of row u of a batch. What they need is printed when they are asked for.
std::vector<Index> ColumnWalk::indices(int u, bool guarded) {
  const Level level = schedule_.keep ? Level::kOuter : Level::kInner;
  const int64_t offset = int64_t{u} * schedule_.down;
  const std::string base = schedule_.keep ? "first_row" : "row";
  const std::string row = guarded ? fmt::format("row{}", u) : base;
  if (guarded && !schedule_.keep)
    printer_.emit(level, fmt::format("const bool alive{0} = row + {1} < row_end;\n"
                                     "const index_t row{0} = smaller(row + {1}, row_end - 1);",
                                     u, offset));
  const bool one_axis = extent_.reduced_axes.size() == 1;
  const std::string suffix = fmt::format("_{}", u);
  if (!one_axis && !schedule_.keep) {
    const std::string flat = guarded ? row : fmt::format("({} + {})", row, offset);
    std::string text = column_coordinates(extent_, flat, extent_.reduced_axes, suffix);
    text.pop_back();  // emit() ends the line
    printer_.emit(level, text);
  }
  std::vector<Index> at;
  for (size_t k = 0; k + 1 < extent_.sizes.size(); ++k) {
    if (!extent_.is_reduced(k))
      at.push_back(LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar, Level::kOuter, 0,
                           extent_.sizes[k]});
    else if (!one_axis)
      at.push_back(LoopVar{fmt::format("i{}{}", k, suffix), LoopVar::Kind::kScalar, level, 0,
                           extent_.sizes[k]});
    else if (guarded)
      at.push_back(LoopVar{row, LoopVar::Kind::kScalar, level, 0, extent_.rows});
    else
      at.push_back(
          Index(LoopVar{row, LoopVar::Kind::kScalar, level, 0,
                        schedule_.copy ? extent_.rows
                                       : extent_.rows - (rows_at_once() - 1) * schedule_.down}) +
          Index(offset));
  }
  at.push_back(
      LoopVar{"j", LoopVar::Kind::kVector, Level::kOuter, 0, extent_.columns, schedule_.lanes});
  return at;
}

// Loads what a batch reads of full operands before it computes anything: the loads of all its rows
// are in flight together.
void ColumnWalk::load_leaves(NodeId id, const std::vector<Index>& at, std::vector<bool>& visited) {
  if (visited[static_cast<size_t>(id)]) return;
  visited[static_cast<size_t>(id)] = true;
  const Node& x = node(id);
  if (x.op == Op::kInput || x.op == Op::kView) {
    printer_.value(id, at);
  } else if (is_elementwise(x.op)) {
    for (NodeId operand : x.operands) load_leaves(operand, at, visited);
  }
}

void ColumnWalk::batch(const ReductionPasses::Pass& pass, bool guarded) {
  std::vector<std::vector<Index>> rows;
  for (int u = 0; u < rows_at_once(); ++u) {
    rows.push_back(indices(u, guarded));
    std::vector<bool> visited(static_cast<size_t>(graph_.size()), false);
    for (NodeId id : pass.reduces) load_leaves(node(id).operands[0], rows.back(), visited);
    for (int output : pass.outputs)
      load_leaves(graph_.outputs()[static_cast<size_t>(output)], rows.back(), visited);
  }
  for (int u = 0; u < rows_at_once(); ++u) {
    row(pass, rows[static_cast<size_t>(u)], guarded ? fmt::format("if (alive{})", u) : "");
  }
}

// Prints the arithmetic of one row, done where `condition` holds.
void ColumnWalk::row(const ReductionPasses::Pass& pass, const std::vector<Index>& at,
                     const std::string& condition) {
  for (NodeId id : pass.reduces) {
    const Register x = printer_.value(node(id).operands[0], at);
    printer_.emit(Level::kInner,
                  fmt::format("{0}{1}acc{2} = {3}::combine(acc{2}, {4});", condition,
                              condition.empty() ? "" : " ", id, combiner(node(id).op), x.name));
  }
  for (int output : pass.outputs) {
    // Known before the store, which then is one statement that the condition governs.
    printer_.value(graph_.outputs()[static_cast<size_t>(output)], at);
    if (!condition.empty()) printer_.emit(Level::kInner, condition);
    printer_.store(output, at);
  }
}

// The full operands that vectors of a row are copied of as they lie.
std::vector<NodeId> ColumnWalk::copied_leaves(const ReductionPasses::Pass& pass) {
  std::vector<NodeId> found;
  std::vector<bool> visited(static_cast<size_t>(graph_.size()), false);
  const std::vector<Index> at = indices(0, false);
  for (NodeId id : pass.reduces) find_copied(node(id).operands[0], at, visited, found);
  for (int output : pass.outputs)
    find_copied(graph_.outputs()[static_cast<size_t>(output)], at, visited, found);
  printer_.take(Level::kInner, 0);
  return found;
}

void ColumnWalk::find_copied(NodeId id, const std::vector<Index>& at, std::vector<bool>& visited,
                             std::vector<NodeId>& found) {
  if (visited[static_cast<size_t>(id)]) return;
  visited[static_cast<size_t>(id)] = true;
  const Node& x = node(id);
  if (is_streamed(graph_, extent_.sizes, id)) {
    const Index place = printer_.place(id, at);
    if (place.level() == Level::kInner && !place.has_lanes() && place.lane_stride() == 1)
      found.push_back(id);
  } else if (is_elementwise(x.op)) {
    for (NodeId operand : x.operands) find_copied(operand, at, visited, found);
  }
}

// Asks for `row` + `ahead`, if there is one; a group of copies either way.
std::string ColumnWalk::row_copies(const std::vector<NodeId>& leaves, int ahead) {
  const std::vector<Index> at = indices(ahead, false);
  for (NodeId id : leaves) printer_.load_packed(id, at, fmt::format("ring{}[slot]", id), true);
  return fmt::format("      if (row + {} < row_end) {{\n{}      }}\n      cp_async_commit();\n",
                     int64_t{ahead} * schedule_.down, printer_.take(Level::kInner, 8));
}

int ColumnWalk::ring_bytes(NodeId id) const {
  return schedule_.unroll * schedule_.threads() *
         std::max(4, vector_ * static_cast<int>(size_of(node(id).dtype)));
}

// All full operands count, so that one place after them serves all loops.
int ColumnWalk::copy_bytes() const {
  if (!schedule_.copy) return 0;
  int bytes = 0;
  for (NodeId id = 0; id < graph_.size(); ++id)
    if (is_streamed(graph_, extent_.sizes, id)) bytes += ring_bytes(id);
  return bytes;
}

// A ring of `unroll` rows a thread in shared memory, its own: nobody else waits for them. The loop
// is small, and not unrolled: it waits for memory.
std::string ColumnWalk::copying_loop(const ReductionPasses::Pass& pass) {
  const std::vector<NodeId> leaves = copied_leaves(pass);
  std::string text;
  int bytes = 0;
  for (NodeId id : leaves) {
    text += fmt::format(
        "    auto* const ring{0} = reinterpret_cast<Packed<{1}>*>(shared_memory() + {2}) + "
        "thread_index();\n",
        id, memory_type(node(id).dtype), bytes);
    bytes += ring_bytes(id);
    printer_.bind_packed(id, fmt::format("ring{}[slot]", id));
  }
  const int threads = schedule_.threads(), slots = schedule_.unroll * threads;
  text += fmt::format(
      "    index_t row = first_row;\n"
      "    _Pragma(\"unroll 1\") for (int slot = 0; slot < {}; slot += {}) {{\n{}"
      "      row += {};\n"
      "    }}\n"
      "    row = first_row;\n",
      slots, threads, row_copies(leaves, 0), schedule_.down);
  row(pass, indices(0, false), "");
  text += fmt::format(
      "    _Pragma(\"unroll 1\") for (int slot = 0; row < row_end; row += {}) {{\n"
      "      cp_async_wait<{}>();\n{}",
      schedule_.down, schedule_.unroll - 1, printer_.take(Level::kInner, 6));
  text += row_copies(leaves, schedule_.unroll);
  return text + fmt::format("      slot = slot == {} ? 0 : slot + {};\n    }}\n", slots - threads,
                            threads);
}

std::string declare_accumulators(const Graph& graph, std::span<const NodeId> reduces) {
  std::string text;
  for (NodeId id : reduces)
    text += fmt::format("  {0} acc{1} = splat<{0}>({2});\n", register_type(graph.node(id).dtype),
                        id, identity_text(graph.node(id)));
  return text;
}

std::string ColumnWalk::pass(const ReductionPasses::Pass& pass) {
  const std::string text = declare_accumulators(graph_, pass.reduces);
  if (schedule_.keep) {
    batch(pass, !even_rows_ || !even_strips_);
    const std::string outer = printer_.take(Level::kOuter, 2);
    return outer + text + printer_.take(Level::kInner, 2);
  }
  if (schedule_.copy) {
    const std::string loop = copying_loop(pass);
    return printer_.take(Level::kOuter, 2) + text + "  {\n" + loop + "  }\n";
  }
  const int64_t batch_rows = int64_t{schedule_.unroll} * schedule_.down;
  std::string loop = "  {\n    index_t row = first_row;\n";
  // One batch in the text, however the rows end: twice as many instructions compile for twice as
  // long, and the loop waits for memory either way.
  batch(pass, !even_rows_ && schedule_.unroll > 1);
  loop += fmt::format("    _Pragma(\"unroll 1\") for (; row < row_end; row += {}) {{\n{}    }}\n",
                      batch_rows, printer_.take(Level::kInner, 6));
  return printer_.take(Level::kOuter, 2) + text + loop + "  }\n";
}

std::string ColumnWalk::reduced_outputs(const std::vector<int>& outputs) {
  if (outputs.empty()) return "";
  std::vector<Index> at;
  for (size_t k : extent_.group_axes)
    at.push_back(
        LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar, Level::kOuter, 0, extent_.sizes[k]});
  at.push_back(
      LoopVar{"j", LoopVar::Kind::kVector, Level::kOuter, 0, extent_.columns, schedule_.lanes});
  for (int output : outputs) printer_.store(output, at);
  const std::string outer = printer_.take(Level::kOuter, 4);
  return "  if (down == 0 && mine) {\n" + outer + printer_.take(Level::kInner, 4) + "  }\n";
}

int ThreadRows::shared_bytes(const Graph& graph, std::span<const NodeId> reduces) const {
  // A cluster's sums have a row of their own.
  const int rows = threads / std::max(across, kWarp) + (cluster > 1 ? 1 : 0);
  int bytes = 0;
  if (rows > 1)
    for (NodeId id : reduces) bytes += rows * across * lanes * register_bytes(graph.node(id).dtype);
  return bytes;
}

std::string ThreadRows::fold(const Graph& graph, std::span<const NodeId> reduces,
                             bool again) const {
  const bool meets = shared_bytes(graph, reduces) > 0;
  std::string put, combine, meet, get;
  int at = offset;
  for (const NodeId id : reduces) {
    const Node& reduce = graph.node(id);
    const std::string_view type = register_type(reduce.dtype), how = combiner(reduce.op);
    std::string result = fmt::format("acc{}", id);
    if (across < kWarp)
      put += fmt::format("  acc{0} = down_warp<{1}, {2}>(acc{0});\n", id, how, across);
    if (meets) {
      put += fmt::format(
          "  auto* const rows{0} = reinterpret_cast<element<{1}>::type*>(shared_memory() + {2});\n"
          "  put_row<{3}, {4}>(rows{0}, acc{0});\n",
          id, type, at, across, lanes);
      const std::string shape =
          fmt::format("{}, {}, {}", across * lanes, threads, threads / std::max(across, kWarp));
      combine += fmt::format("  fold_rows<{}, {}>(rows{});\n", how, shape, id);
      if (cluster > 1)
        meet += fmt::format("  fold_cluster<{}, {}, {}>(rows{});\n", how, cluster, shape, id);
      const int sums = cluster > 1 ? across * lanes * (threads / std::max(across, kWarp)) : 0;
      result = fmt::format("combined_row<{}, {}>(rows{}{})", across, lanes, id,
                           sums > 0 ? fmt::format(" + {}", sums) : "");
    }
    const NodeId one[] = {id};
    at += shared_bytes(graph, one);
    get += fmt::format("  const {} result{} = {};\n", type, id, finished(reduce, result));
  }
  if (!meets) return put + get;
  const std::string_view barrier = cluster > 1 ? "  cluster_barrier();\n" : "  block_barrier();\n";
  put = (again ? "  block_barrier();\n" : "") + put + "  block_barrier();\n" + combine;
  put += barrier;
  if (cluster > 1) (put += meet) += barrier;
  return put + get;
}

}  // namespace kiln
