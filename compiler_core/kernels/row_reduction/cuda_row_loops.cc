#include "compiler_core/kernels/row_reduction/cuda_row_loops.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Vectors of a thread that a loop waits for at once; of the 32 at most that a row has, 8 groups.
constexpr int64_t kCopyGroup = 4;

}  // namespace

RowLayout::RowLayout(const Graph& g, const CudaRowReductionSchedule& s)
    : graph(g),
      schedule(s),
      shape(RowShape::of(g)),
      passes(ReductionPasses::of(g, s.keep)),
      sizes(passes.space.shape),
      batch_rank(static_cast<size_t>(passes.space.reduced_begin)),
      step(int64_t{s.threads} * s.cluster),
      row_vectors(ceil_text(shape.row, s.lanes)),
      vectors(s.vectors) {
  // An empty row has no maximum to scale sums by, and one of any length may be empty.
  if (!shape.row.is_constant()) return;
  const int64_t all = shape.vectors(s.lanes);
  row_vectors = std::to_string(all);
  piece_vectors = ceil_div(all, s.split);
  if (piece_vectors > 256) piece_vectors = ceil_div(piece_vectors, 32) * 32;  // whole lines
  pieces = ceil_div(all, piece_vectors);
  if (!rereads()) vectors = ceil_div(all, step);
  // In registers the second look at a row costs less than rescaling does.
  if (s.storage != RowStorage::kRegisters) online = take_sums_online(graph, passes);
}

RowLoops::RowLoops(const RowLayout& layout, size_t first, size_t last)
    : layout_(layout), printer_(layout.graph, Dialect::kCuda), first_(first), last_(last) {
  const size_t rank = layout.sizes.size();
  for (size_t k = 0; k < rank; ++k) {
    const bool batch = k < layout.batch_rank, inner = k + 1 == rank;
    at_.push_back(LoopVar{inner ? "j" : fmt::format("i{}", k),
                          inner ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                          batch ? Level::kOuter : Level::kInner, 0, layout.sizes[k],
                          !inner           ? 1
                          : layout.peels() ? layout.shape.alignment
                                           : layout.schedule.lanes});
  }
  if (layout.peels()) {
    Index flat;
    Dim stride = 1;
    for (size_t k = rank; k-- > 0; stride = stride * layout.sizes[k]) flat = flat + at_[k] * stride;
    printer_.align(flat, at_.back(), layout.schedule.lanes);
  }
  at_reduced_.assign(at_.begin(), at_.begin() + static_cast<std::ptrdiff_t>(layout.batch_rank));
}

std::string RowLoops::text() {
  std::string text = coordinates("row", 0, layout_.batch_rank, 2) + phase_text(layout_);
  if (!layout_.rereads()) text += hold(layout_.shape.reads, "0", 2);
  return text + loops();
}

std::string RowLoops::walk_text(
    const std::function<std::string(const std::string& group)>& row_of) {
  const CudaRowReductionSchedule& s = layout_.schedule;
  const int64_t groups = ceil_div(layout_.shape.rows.constant(), s.rows);
  std::string next, held;
  for (NodeId id : layout_.shape.reads) {
    const std::string_view type = memory_type(node(id).dtype);
    next += fmt::format("  Packed<{}> next{}[{}];\n", type, id, layout_.vectors);
    held += fmt::format(
        "  Packed<{0}> held{1}[{2}];\n"
        "  _Pragma(\"unroll\") for (int u = 0; u < {2}; ++u) held{1}[u] = next{1}[u];\n",
        type, id, layout_.vectors);
    printer_.load_packed(id, at_, fmt::format("next{}[u]", id), false);
    printer_.bind_packed(id, fmt::format("held{}[u]", id));
  }
  const std::string body = printer_.take(Level::kInner, 6);
  const std::string begin = coordinates("row", 0, layout_.batch_rank, 2) + phase_text(layout_) +
                            printer_.take(Level::kOuter, 2);
  const std::string load = begin + each_vector(body, "0", 2);
  std::string text = next + "  {\n" + row_of("block_index()") + load + "  }\n";
  text += fmt::format("  for (index_t group = block_index(); group < {}; group += {}) {{\n{}",
                      groups, s.walk, held);
  text += fmt::format("  if (group + {} < {}) {{\n{}{}  }}\n", s.walk, groups,
                      row_of(fmt::format("(group + {})", s.walk)), load);
  text += row_of("group") + begin + loops();
  size_t meetings = 0;
  for (const ReductionPasses::Pass& pass : layout_.passes.passes) meetings += pass.reduces.size();
  // Readers of what was exchanged may be late; another meeting waits for them.
  if (s.threads > 32 && meetings == 1) text += "  block_barrier();\n";
  return text + "  }\n";
}

std::string RowLoops::loops() {
  const auto& passes = layout_.passes.passes;
  std::string text;
  for (size_t p = 0; p < first_; ++p) text += read_partials(p);
  for (size_t p = first_; p < last_; ++p) text += loop(p);
  if (last_ == passes.size()) text += reduced_outputs();
  // A block's shared memory is there as long as the others of its cluster may read it.
  if (layout_.schedule.cluster > 1) text += "  cluster_barrier();\n";
  return text;
}

std::string RowLoops::element_type(NodeId id) const {
  return fmt::format("element<{}>::type", register_type(node(id).dtype));
}

std::string RowLoops::coordinates(const std::string& flat, size_t begin, size_t end,
                                  int indent) const {
  std::vector<NamedAxis> axes = named_axes(layout_.sizes, begin, end);
  if (end == layout_.sizes.size()) axes.back().name = "j";
  return declare_coordinates("index_t", flat, axes, indent);
}

// The operands that the loop reads, beside what earlier ones kept.
std::vector<NodeId> RowLoops::reads_of(const ReductionPasses::Pass& pass) const {
  std::vector<bool> needed(static_cast<size_t>(layout_.graph.size()), false);
  for (NodeId id : pass.reduces) needed[static_cast<size_t>(node(id).operands[0])] = true;
  for (int output : pass.outputs)
    needed[static_cast<size_t>(layout_.graph.outputs()[static_cast<size_t>(output)])] = true;
  std::vector<NodeId> reads;
  for (NodeId id = layout_.graph.size(); id-- > 0;) {
    if (!needed[static_cast<size_t>(id)] || !layout_.passes.is_full(layout_.graph, id)) continue;
    const auto& all = layout_.shape.reads;
    if (std::find(all.begin(), all.end(), id) != all.end()) reads.push_back(id);
    for (NodeId operand : node(id).operands) needed[static_cast<size_t>(operand)] = true;
  }
  std::reverse(reads.begin(), reads.end());
  return reads;
}

std::string RowLoops::shared(int64_t bytes) {
  std::string address = fmt::format("shared_memory() + {}", shared_bytes_);
  shared_bytes_ += ceil_div(bytes, 16) * 16;
  return address;
}

std::string RowLoops::hold(const std::vector<NodeId>& reads, const std::string& from, int indent) {
  const CudaRowReductionSchedule& s = layout_.schedule;
  const bool in_shared = s.storage == RowStorage::kShared;
  std::string declared;
  for (NodeId id : reads) {
    const std::string_view type = memory_type(node(id).dtype);
    std::string packed = fmt::format("held{}[u]", id);
    if (in_shared) {
      const int64_t threads = s.threads * s.rows;
      // Never less than a word a vector: see Packed.
      const int64_t bytes = std::max<int64_t>(s.lanes * size_of(node(id).dtype), 4);
      declared += fmt::format(
          "{:{}}Packed<{}>* const held{} = reinterpret_cast<Packed<{}>*>({}) + thread_index();\n",
          "", indent, type, id, type, shared(layout_.vectors * threads * bytes));
      packed = fmt::format("held{}[u * {}]", id, threads);
    } else {
      declared +=
          fmt::format("{:{}}Packed<{}> held{}[{}];\n", "", indent, type, id, layout_.vectors);
    }
    printer_.load_packed(id, at_, packed, in_shared);
    printer_.bind_packed(id, packed);
  }
  const std::string body = printer_.take(Level::kInner, indent + 4);
  if (reads.empty()) return "";
  std::string text = printer_.take(Level::kOuter, indent) + declared;
  const bool groups = in_shared && layout_.vectors >= 2 * kCopyGroup;
  text += each_vector(
      body, from, indent, "",
      groups ? fmt::format("if (u % {0} == {0} - 1) cp_async_commit();", kCopyGroup) : "");
  if (!groups) return text + (in_shared ? fmt::format("{:{}}copies_arrived();\n", "", indent) : "");
  copy_groups_ = ceil_div(layout_.vectors, kCopyGroup);
  if (layout_.vectors % kCopyGroup != 0)
    text += fmt::format("{:{}}cp_async_commit();\n", "", indent);
  return text;
}

std::string RowLoops::each_vector(const std::string& body, const std::string& from, int indent,
                                  const std::string& before, const std::string& after) const {
  const bool several = layout_.shape.several;
  const std::string first = several ? "e" : "j";
  std::string text;
  const auto line = [&](int more, const std::string& statement) {
    text += fmt::format("{:{}}{}\n", "", indent + more, statement);
  };
  // Registers have no addresses: what waits in them is unrolled altogether.
  const bool in_shared = layout_.schedule.storage == RowStorage::kShared;
  line(0, fmt::format("_Pragma(\"unroll{}\") for (int u = 0; u < {}; ++u) {{",
                      in_shared ? " 4" : "", layout_.vectors));
  std::string vector = fmt::format("u * {} + member", layout_.step);
  if (from != "0") vector = from + " + " + vector;
  if (!before.empty()) line(2, before);
  text += vector_text(
      layout_, vector, first,
      several ? coordinates("e", layout_.batch_rank, layout_.sizes.size(), indent + 2) : "", body,
      indent + 2);
  if (!after.empty()) line(2, after);
  line(0, "}");
  return text;
}

std::string RowLoops::loop(size_t p) {
  const ReductionPasses::Pass& pass = layout_.passes.passes[p];
  if (pass.empty()) return "";
  const bool rereads = layout_.rereads();
  std::string held, declared;
  if (rereads) held = hold(reads_of(pass), "from", 4);
  const std::string body = loop_body(pass);
  std::string text = printer_.take(Level::kOuter, 2);
  for (NodeId id : pass.kept)
    text += fmt::format("  {} kept{}[{}];\n", register_type(node(id).dtype), id, layout_.vectors);
  text += ReductionLoop{layout_.graph, pass.reduces}.declare(2);
  if (rereads) {
    text += fmt::format("  for (index_t from = {}; from < {}; from += {}) {{\n",
                        is_cut() ? "begin" : "0", is_cut() ? "end" : layout_.row_vectors,
                        layout_.step * layout_.vectors);
    text += held + each_vector(body, "from", 4) + "  }\n";
  } else {
    std::string wait;
    if (copy_groups_ > 0)
      wait = fmt::format("if (u % {0} == 0) copies_arrived_but({1} - u / {0});", kCopyGroup,
                         copy_groups_ - 1);
    copy_groups_ = 0;
    text += each_vector(body, "0", 2, wait);
  }
  for (NodeId id : pass.reduces)
    if (is_cut() || !is_online(id)) text += fold(id);
  if (!is_cut())
    for (const auto& [sum, maximum] : layout_.online)
      if (std::find(pass.reduces.begin(), pass.reduces.end(), sum) != pass.reduces.end())
        text += fold_online(maximum, sum);
  return text;
}

std::string RowLoops::loop_body(const ReductionPasses::Pass& pass) {
  for (NodeId id : pass.reduces) {
    if (layout_.online.count(id) != 0) continue;
    const Register x = printer_.value(node(id).operands[0], at_);
    bool with_sum = false;
    for (const auto& [sum, maximum] : layout_.online)
      if (maximum == id) {
        with_sum = true;
        printer_.emit(Level::kInner,
                      fmt::format("add_online(live, acc{}_0, acc{}_0, {});", id, sum, x.name));
      }
    if (with_sum) continue;
    printer_.emit(Level::kInner,
                  fmt::format("acc{0}_0 = where_live(live, {1}::combine(acc{0}_0, {2}), acc{0}_0);",
                              id, combiner(node(id).op), x.name));
  }
  for (int output : pass.outputs) printer_.store(output, at_, layout_.schedule.stream);
  for (NodeId id : pass.kept)
    printer_.emit(Level::kInner, fmt::format("kept{}[u] = {};", id, printer_.value(id, at_).name));
  std::string body = printer_.take(Level::kInner, layout_.rereads() ? 8 : 6);
  for (NodeId id : pass.kept)
    printer_.bind(id, {fmt::format("kept{}[u]", id), Level::kInner, false});
  return body;
}

bool RowLoops::is_online(NodeId id) const {
  const auto has = [&](const auto& pair) { return pair.first == id || pair.second == id; };
  return std::any_of(layout_.online.begin(), layout_.online.end(), has);
}

// After its loop a reduction is known: to every thread of its row, or, of a piece, in the
// workspace, where the next phase finds it.
std::string RowLoops::fold(NodeId id) {
  const CudaRowReductionSchedule& s = layout_.schedule;
  const std::string type = element_type(id);
  std::string folded = fmt::format("across_lanes<{}>(acc{}_0)", combiner(node(id).op), id);
  const auto exchange = [&](int64_t values) {
    return fmt::format("reinterpret_cast<{}*>({})", type, shared(values * 8));
  };
  folded = fmt::format("across_threads<{}, {}>({}, {})", combiner(node(id).op), s.threads, folded,
                       s.threads > 32 ? exchange(s.threads * s.rows / 32)
                                      : fmt::format("static_cast<{}*>(nullptr)", type));
  if (s.cluster > 1)
    folded = fmt::format("across_cluster<{}, {}>({}, {})", combiner(node(id).op), s.cluster, folded,
                         exchange(1));
  if (!is_cut()) return result(id, folded, "");
  std::string text;
  if (const auto online = layout_.online.find(id); online != layout_.online.end())
    text =
        fmt::format("  acc{0}_0 = rescaled(acc{0}_0, acc{1}_0, partial{1});\n", id, online->second);
  return text + fmt::format(
                    "  const {0} partial{1} = splat<{0}>({2});\n"
                    "  if (member == 0) store_one({3} + block_index(), partial{1});\n",
                    register_type(node(id).dtype), id, folded, partials(id));
}

// A maximum and its sum, in one meeting.
std::string RowLoops::fold_online(NodeId maximum, NodeId sum) {
  const CudaRowReductionSchedule& s = layout_.schedule;
  const auto exchange = [&](int64_t values) {
    return fmt::format("reinterpret_cast<Online*>({})", shared(values * 8));
  };
  std::string folded = fmt::format(
      "online_across_threads<{}>(Online{{acc{}_0[0], acc{}_0[0]}}, {})", s.threads, maximum, sum,
      s.threads > 32 ? exchange(s.threads * s.rows / 32)
                     : std::string("static_cast<Online*>(nullptr)"));
  if (s.cluster > 1)
    folded = fmt::format("online_across_cluster<{}>({}, {})", s.cluster, folded, exchange(1));
  std::string text = fmt::format("  const Online both{} = {};\n", sum, folded);
  text += result(maximum, fmt::format("both{}.greatest", sum), "");
  // Under an infinite maximum exp(x - maximum) is NaN somewhere.
  return text + result(sum, fmt::format("both{}.sum", sum),
                       fmt::format(" + (result{0} - result{0})", maximum));
}

// Declares what `reduce` is for the whole row.
std::string RowLoops::result(NodeId reduce, const std::string& value, const std::string& special) {
  const std::string_view vector = register_type(node(reduce).dtype);
  printer_.bind(reduce, {fmt::format("result{}", reduce), Level::kOuter, true});
  return fmt::format("  const {} result{} = {}{};\n", vector, reduce,
                     finished(node(reduce), fmt::format("splat<{}>({})", vector, value)), special);
}

// The partial results of reduction `id` in the workspace: one for each row and piece.
std::string RowLoops::partials(NodeId id) const {
  int64_t offset = 0;
  for (NodeId other = 0; other < id; ++other)
    if (traits(node(other).op).kind == OpKind::kReduce)
      offset += layout_.shape.rows.constant() * layout_.pieces * 8;
  return fmt::format("reinterpret_cast<{}*>(workspace + {})", memory_type(node(id).dtype), offset);
}

std::string RowLoops::read_partials(size_t p) {
  std::string text;
  for (NodeId id : layout_.passes.passes[p].reduces) {
    const std::string_view vector = register_type(node(id).dtype);
    const std::string type = element_type(id);
    text +=
        fmt::format("  {} acc{}_0 = splat<{}>({});\n", vector, id, vector, identity_text(node(id)));
    const auto partial = [&](NodeId reduce) {
      return fmt::format("load_splat({} + row * {} + other)", partials(reduce), layout_.pieces);
    };
    std::string other = partial(id), special;
    if (const auto online = layout_.online.find(id); online != layout_.online.end()) {
      const NodeId maximum = online->second;
      other = fmt::format("rescaled({}, {}, result{})", other, partial(maximum), maximum);
      special = fmt::format(" + (result{0} - result{0})", maximum);
    }
    text += fmt::format(
        "  for (index_t other = member; other < {}; other += {})\n"
        "    acc{}_0 = {}::combine(acc{}_0, {});\n",
        layout_.pieces, layout_.step, id, combiner(node(id).op), id, other);
    const std::string folded = fmt::format(
        "across_threads<{}, {}>(acc{}_0[0], reinterpret_cast<{}*>({}))", combiner(node(id).op),
        layout_.schedule.threads, id, type, shared(layout_.schedule.threads / 32 * 8));
    text += fmt::format("  const {} result{} = {}{};\n", vector, id,
                        finished(node(id), fmt::format("splat<{}>({})", vector, folded)), special);
    printer_.bind(id, {fmt::format("result{}", id), Level::kOuter, true});
  }
  return text;
}

std::string RowLoops::reduced_outputs() {
  for (int output : layout_.passes.reduced_outputs) printer_.store_one(output, at_reduced_);
  const std::string stores = printer_.take(Level::kOuter, 4);
  if (stores.empty()) return "";
  const bool once = is_cut() && !layout_.passes.passes.back().empty();
  return fmt::format("  if (member == 0{}) {{\n{}  }}\n", once ? " && piece == 0" : "", stores);
}

}  // namespace kiln
