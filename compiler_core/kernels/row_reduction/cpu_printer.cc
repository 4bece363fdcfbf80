#include "compiler_core/kernels/row_reduction/cpu_row_reduction.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Long f32 sums are taken in stretches of this many elements, whose sums are then added: the error
// grows with the length of a stretch and their number, not with their product.
constexpr int64_t kStretch = 16384;

// The bound of a thread's scratch, where only a symbol's range bounds it.
constexpr int64_t kMostScratchBytes = int64_t{1} << 30;

// The shape of the problem, shared by the functions of a kernel.
struct Rows {
  const Graph& graph;
  CpuRowReductionSchedule schedule;
  ReductionPasses passes;
  Shape sizes;
  size_t batch_rank = 0;
  Dim rows = 1;
  Dim repeats = 1;     // product of the reduced axes but the last
  Dim columns = 1;     // the last axis
  int64_t pieces = 1;  // of a row
  Dim piece = 0;       // elements of one

  Rows(const Graph& g, const CpuRowReductionSchedule& s)
      : graph(g),
        schedule(s),
        passes(ReductionPasses::of(g, s.split > 1 ? ReductionPasses::Keep::kNothing : s.keep)),
        sizes(passes.space.shape),
        batch_rank(static_cast<size_t>(passes.space.reduced_begin)),
        columns(sizes.back()) {
    for (size_t k = 0; k + 1 < sizes.size(); ++k) {
      Dim& product = k < batch_rank ? rows : repeats;
      product = product * sizes[k];
    }
    piece = columns;
    if (!can_be_cut()) return;
    // Pieces start at whole vectors.
    const int64_t size = columns.constant();
    const int64_t vectors = ceil_div(ceil_div(size, schedule.split), schedule.lanes);
    pieces = ceil_div(size, vectors * schedule.lanes);
    if (pieces > 1) piece = vectors * schedule.lanes;
  }
  // Only a single reduced axis of constant size is cut.
  bool can_be_cut() const { return repeats.is(1) && columns.is_constant(); }
  bool last_pass_is_empty() const { return passes.passes.back().empty(); }
};

// One function of the kernel: the loops [first, last) over each of its rows.
class RowFunction {
 public:
  RowFunction(const Rows& rows, size_t first, size_t last)
      : rows_(rows), printer_(rows.graph), first_(first), last_(last) {
    const auto rank = rows.sizes.size();
    for (size_t k = 0; k < rank; ++k) {
      const bool batch = k < rows.batch_rank, inner = k + 1 == rank;
      at_.push_back(LoopVar{inner ? "j" : fmt::format("i{}", k),
                            inner ? LoopVar::Kind::kVector : LoopVar::Kind::kScalar,
                            batch ? Level::kOuter : Level::kInner, 0, rows.sizes[k]});
    }
    at_reduced_.assign(at_.begin(), at_.begin() + static_cast<std::ptrdiff_t>(rows.batch_rank));
    stream_ = rows.schedule.stream && is_multiple(rows.columns, rows.schedule.lanes);
  }

  // Statements of one row, indented by 4, where `row` (and `from`, `to` when it is cut) are known.
  std::string row_text() {
    std::string text = coordinates("row", 0, rows_.batch_rank, 4);
    for (size_t p = 0; p < first_; ++p) text += read_partials(p);
    for (size_t p = first_; p < last_; ++p) text += loop(p);
    if (last_ == rows_.passes.passes.size()) text += reduced_outputs();
    return text;
  }
  std::string kernel_text() { return printer_.take(Level::kKernel, 2) + scratch_pointers_; }
  int64_t scratch_bytes() const { return scratch_bytes_; }
  bool streams() const { return stream_; }

 private:
  const Node& node(NodeId id) const { return rows_.graph.node(id); }
  bool is_cut() const { return rows_.pieces > 1; }

  // Declares i{begin}.. i{end - 1} from the flat index in `flat`.
  std::string coordinates(const std::string& flat, size_t begin, size_t end, int indent) const {
    return declare_coordinates("int64_t", flat, named_axes(rows_.sizes, begin, end), indent);
  }

  std::string loop(size_t p) {
    const ReductionPasses::Pass& pass = rows_.passes.passes[p];
    if (pass.empty()) return "";
    const int unroll = rows_.schedule.unroll;
    const ReductionLoop reductions{rows_.graph, pass.reduces, unroll};
    const std::string body = loop_body(pass);
    std::string text = printer_.take(Level::kOuter, 4);
    const bool stretches = needs_stretches(pass);
    const bool bounded = is_cut() || stretches;
    const VectorLoop vectors{.variable = "j",
                             .from = bounded ? "from" : "0",
                             .to = bounded ? "to" : size_text(rows_.columns),
                             .unroll = unroll,
                             .body = body,
                             .parameters = reductions.parameters(),
                             .arguments = [&](int u) { return reductions.arguments(u); }};
    for (NodeId id : pass.reduces)
      text += fmt::format("    {} result{};\n", register_type(node(id).dtype), id);
    text += "    {\n";
    if (!stretches) text += reductions.declare(6);
    for (NodeId id : pass.reduces)
      if (stretches)
        text += fmt::format("      result{} = splat<{}>({});\n", id, register_type(node(id).dtype),
                            identity_text(node(id)));
    if (!rows_.repeats.is(1)) {
      text +=
          fmt::format("      for (int64_t repeat = 0; repeat < {}; ++repeat) {{\n", rows_.repeats);
      text += coordinates("repeat", rows_.batch_rank, rows_.sizes.size() - 1, 6);
    }
    if (stretches) text += open_stretch() + reductions.declare(6);
    text += vectors.text(6);
    if (stretches) text += close_stretch(pass, reductions);
    if (!rows_.repeats.is(1)) text += "      }\n";
    if (!stretches) text += reductions.combine(6);
    for (NodeId id : pass.reduces)
      text +=
          fmt::format("      result{} = {};\n", id,
                      finished(node(id), fmt::format("across_lanes<{}>({})", combiner(node(id).op),
                                                     stretches ? fmt::format("result{}", id)
                                                               : fmt::format("acc{}_0", id))));
    text += "    }\n";
    return text + publish(p);
  }

  std::string loop_body(const ReductionPasses::Pass& pass) {
    for (NodeId id : pass.reduces) {
      const Register x = printer_.value(node(id).operands[0], at_);
      printer_.emit(Level::kInner,
                    fmt::format("acc{0} = where_live(live, {1}::combine(acc{0}, {2}), acc{0});", id,
                                combiner(node(id).op), x.name));
    }
    for (int output : pass.outputs) printer_.store(output, at_, stream_);
    // A row's strides, as kept values lie.
    std::vector<Dim> strides = contiguous_strides(rows_.sizes);
    std::fill_n(strides.begin(), rows_.batch_rank, Dim(0));
    for (NodeId id : pass.kept) {
      Index flat;
      for (size_t k = 0; k < at_.size(); ++k) flat = flat + at_[k] * strides[k];
      printer_.store_to(printer_.value(id, at_), fmt::format("kept{}", id), flat);
    }
    std::string body = printer_.take(Level::kInner, 8);
    for (NodeId id : pass.kept) {
      printer_.bind_buffer(id, fmt::format("kept{}", id), strides);
      const std::string_view type = memory_type(node(id).dtype);
      scratch_pointers_ += fmt::format(
          "  {0}* kept{1} = reinterpret_cast<{0}*>(static_cast<char*>(scratch) + {2});\n", type, id,
          scratch_bytes_);
      const int64_t bytes = upper_bound(rows_.repeats * rows_.columns * size_of(node(id).dtype),
                                        rows_.graph.symbols());
      scratch_bytes_ += (bytes + 63) / 64 * 64;
    }
    return body;
  }

  bool needs_stretches(const ReductionPasses::Pass& pass) const {
    const bool sums = std::any_of(pass.reduces.begin(), pass.reduces.end(), [&](NodeId id) {
      return node(id).op == Op::kReduceSum && node(id).dtype == DType::kF32;
    });
    return sums && !is_at_least(4 * kStretch, rows_.repeats * rows_.piece);
  }
  std::string open_stretch() const {
    const std::string begin = is_cut() ? "piece_begin" : "0";
    const std::string end = is_cut() ? "piece_end" : size_text(rows_.columns);
    return fmt::format(
        "      for (int64_t from = {0}; from < {1}; from += {2}) {{\n"
        "      const int64_t to = smaller(from + {2}, {1});\n",
        begin, end, kStretch);
  }
  std::string close_stretch(const ReductionPasses::Pass& pass, const ReductionLoop& reductions) {
    std::string text = reductions.combine(6);
    for (NodeId id : pass.reduces)
      text += fmt::format("      result{0} = {1}::combine(result{0}, acc{0}_0);\n", id,
                          combiner(node(id).op));
    return text + "      }\n";
  }

  // After loop p its reductions are known: in this row's registers, or, of a piece, in the
  // workspace, where the next phase finds them.
  std::string publish(size_t p) {
    std::string text;
    for (NodeId id : rows_.passes.passes[p].reduces) {
      printer_.bind(id, {fmt::format("result{}", id), Level::kOuter, true});
      if (is_cut()) text += fmt::format("    store_one({} + block, result{});\n", partials(id), id);
    }
    return text;
  }
  // The partial results of reduction `id` in the workspace: one for each row and piece.
  std::string partials(NodeId id) const {
    Dim offset = 0;
    for (NodeId other = 0; other < id; ++other)
      if (traits(node(other).op).kind == OpKind::kReduce)
        offset = offset + rows_.rows * rows_.pieces * 8;
    return fmt::format("reinterpret_cast<{}*>(static_cast<char*>(workspace) + {})",
                       memory_type(node(id).dtype), offset);
  }
  std::string read_partials(size_t p) {
    std::string text;
    for (NodeId id : rows_.passes.passes[p].reduces) {
      const std::string_view type = register_type(node(id).dtype);
      text += fmt::format("    {} result{} = splat<{}>({});\n", type, id, type,
                          identity_text(node(id)));
      text += fmt::format(
          "    for (int64_t other = 0; other < {0}; ++other)\n"
          "      result{1} = {2}::combine(result{1}, load_splat({3} + row * {0} + other));\n",
          rows_.pieces, id, combiner(node(id).op), partials(id));
      text += fmt::format("    result{0} = {1};\n", id,
                          finished(node(id), fmt::format("result{}", id)));
      printer_.bind(id, {fmt::format("result{}", id), Level::kOuter, true});
    }
    return text;
  }

  std::string reduced_outputs() {
    for (int output : rows_.passes.reduced_outputs) printer_.store_one(output, at_reduced_);
    std::string stores = printer_.take(Level::kOuter, is_cut() ? 6 : 4);
    if (!is_cut() || rows_.last_pass_is_empty() || stores.empty()) return stores;
    return "    if (block % " + std::to_string(rows_.pieces) + " == 0) {\n" + stores + "    }\n";
  }

  const Rows& rows_;
  ExpressionPrinter printer_;
  const size_t first_, last_;
  std::vector<Index> at_, at_reduced_;
  std::string scratch_pointers_;
  int64_t scratch_bytes_ = 0;
  bool stream_ = false;
};

// All loops over a row in one function: a row is one thread's.
void print_whole(const Rows& rows, Source& source) {
  RowFunction function(rows, 0, rows.passes.passes.size());
  const std::string row = function.row_text();
  const int64_t block = rows.rows.is_constant() ? std::min(rows.schedule.rows, rows.rows.constant())
                                                : rows.schedule.rows;
  std::string body = function.kernel_text();
  body += fmt::format(
      "  const int64_t row_end = smaller(end * {0}, {1});\n"
      "  for (int64_t row = begin * {0}; row < row_end; ++row) {{\n",
      block, rows.rows);
  body += row + "  }\n";
  if (function.streams()) body += "  finish_streams();\n";
  source.text += entry_function("kernel", rows.graph, body);
  source.recipe.phases = {{"kernel", Grid(std::vector<GridAxis>{{rows.rows, block}})}};
  source.recipe.scratch_bytes = function.scratch_bytes();
}

// Rows cut into pieces: one phase a loop, its reductions meet in the workspace.
void print_cut(const Rows& rows, Source& source) {
  const size_t phases = rows.passes.passes.size();
  int64_t reduces = 0;
  for (size_t p = 0; p < phases; ++p) {
    reduces += static_cast<int64_t>(rows.passes.passes[p].reduces.size());
    RowFunction function(rows, p, p + 1);
    const std::string row = function.row_text();
    // A pass without a loop runs once a row.
    const int64_t pieces = rows.passes.passes[p].empty() ? 1 : rows.pieces;
    std::string body = function.kernel_text();
    body += "  for (int64_t block = begin; block < end; ++block) {\n";
    body += fmt::format("    const int64_t row = block / {};\n", pieces);
    body += fmt::format(
        "    const int64_t piece_begin = block % {0} * {1};\n"
        "    const int64_t piece_end = smaller(piece_begin + {1}, {2});\n"
        "    const int64_t from = piece_begin, to = piece_end;\n",
        pieces, rows.piece, rows.columns);
    body += row + "  }\n";
    if (function.streams()) body += "  finish_streams();\n";
    const std::string entry = fmt::format("phase{}", p);
    source.text += entry_function(entry, rows.graph, body);
    source.recipe.phases.push_back({entry, Grid(rows.rows * pieces)});
  }
  // Nothing left to do after the last reduction but reduced outputs, or nothing at all.
  source.recipe.workspace_bytes = rows.rows * (reduces * rows.pieces * 8);
}

bool keeps_without_bound(const Rows& rows) {
  const int64_t kept = rows.passes.kept_bytes_per_element(rows.graph);
  return kept > 0 &&
         upper_bound(rows.repeats * rows.columns * kept, rows.graph.symbols()) > kMostScratchBytes;
}

}  // namespace

Result<Source> print_cpu_row_reduction(const Graph& graph,
                                       const CpuRowReductionSchedule& schedule) {
  const Rows rows(graph, schedule);
  if (schedule.split > 1 && !rows.columns.is_constant())
    return fail(Code::kInvalidArgument, "rows whose length is known only at run time are not cut");
  if (keeps_without_bound(rows))
    return fail(Code::kInvalidArgument, "nothing bounds the values of a row that would be kept");
  Source source;
  source.text = preamble(graph, schedule.lanes);
  source.recipe = argument_recipe(graph);
  if (rows.pieces > 1)
    print_cut(rows, source);
  else
    print_whole(rows, source);
  return source;
}

}  // namespace kiln
