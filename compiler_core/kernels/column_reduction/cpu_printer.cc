#include "compiler_core/kernels/column_reduction/cpu_column_reduction.h"

#include <fmt/core.h>

#include "compiler_core/ir/affine.h"
#include "compiler_core/kernels/printing/accumulators.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cpu_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {

Columns::Columns(const Graph& g, const CpuColumnReductionSchedule& s)
    : graph(g),
      schedule(s),
      passes(ReductionPasses::of(g, s.split > 0 ? ReductionPasses::Keep::kNothing : s.keep)),
      sizes(passes.space.shape),
      columns(sizes.back()) {
  for (size_t k = 0; k + 1 < sizes.size(); ++k) {
    const bool reduced = static_cast<int>(k) >= passes.space.reduced_begin &&
                         static_cast<int>(k) < passes.space.reduced_end;
    (reduced ? reduced_axes : group_axes).push_back(k);
    Dim& product = reduced ? rows : groups;
    product = product * sizes[k];
  }
}

std::string Columns::coordinates(const std::string& flat, const std::vector<size_t>& axes,
                                 int indent) const {
  return declare_coordinates("int64_t", flat, named_axes(sizes, axes), indent);
}

namespace {

// The bound of a thread's scratch, where only a symbol's range bounds it.
constexpr int64_t kMostScratchBytes = int64_t{1} << 30;

// A lambda that takes `vectors` adjacent vectors of columns through all loops.
class Slab {
 public:
  Slab(const Columns& columns, int vectors)
      : columns_(columns), vectors_(vectors), printer_(columns.graph) {
    for (int v = 0; v < vectors; ++v) {
      std::vector<Index> at;
      const size_t rank = columns.sizes.size();
      for (size_t k = 0; k + 1 < rank; ++k) {
        const bool reduced = static_cast<int>(k) >= columns.passes.space.reduced_begin &&
                             static_cast<int>(k) < columns.passes.space.reduced_end;
        at.push_back(LoopVar{fmt::format("i{}", k), LoopVar::Kind::kScalar,
                             reduced ? Level::kInner : Level::kOuter, 0, columns.sizes[k]});
      }
      at.push_back(LoopVar{fmt::format("j{}", v), LoopVar::Kind::kVector, Level::kOuter, 0,
                           columns.sizes.back()});
      at_.push_back(at);
    }
  }

  std::string text(const std::string& name) {
    std::string text = fmt::format(
        "    const auto {} = [&](int64_t j0, [[maybe_unused]] auto live) KILN_LAMBDA {{\n", name);
    for (int v = 1; v < vectors_; ++v)
      text += fmt::format("      const int64_t j{} = j0 + {} * LANES;\n", v, v);
    std::string loops;
    for (const ReductionPasses::Pass& pass : columns_.passes.passes)
      if (!pass.empty()) loops += loop(pass);
    loops += reduced_outputs();
    return text + scratch_pointers_ + loops + "    };\n";
  }
  std::string kernel_text() { return printer_.take(Level::kKernel, 4); }
  int64_t scratch_bytes() const { return scratch_bytes_; }

 private:
  const Node& node(NodeId id) const { return columns_.graph.node(id); }
  std::string name(const char* what, NodeId id, int v) const {
    return fmt::format("{}{}_{}", what, id, v);
  }

  std::string loop(const ReductionPasses::Pass& pass) {
    const std::string body = loop_body(pass);
    std::string text = printer_.take(Level::kOuter, 6);
    std::string parameters;
    for (NodeId id : pass.reduces)
      for (int v = 0; v < vectors_; ++v) {
        parameters += fmt::format(", {}& {}", register_type(node(id).dtype), name("acc", id, v));
        text += fmt::format("      {} {};\n", register_type(node(id).dtype), name("result", id, v));
      }
    text += "      {\n" + declare(pass);
    text +=
        fmt::format("        const auto body = [&](int64_t row{}) KILN_LAMBDA {{\n", parameters);
    text += columns_.coordinates("row", columns_.reduced_axes, 10) + body + "        };\n";
    text += walk(pass) + finish(pass) + "      }\n";
    for (NodeId id : pass.kept) {
      printer_.unbind(id);
      bind_kept(id);
    }
    return text;
  }

  std::string declare(const ReductionPasses::Pass& pass) const {
    std::string text;
    for (NodeId id : pass.reduces)
      for (int v = 0; v < vectors_; ++v)
        for (int u = 0; u < columns_.schedule.unroll; ++u)
          text +=
              fmt::format("        {0} {1}_{2} = splat<{0}>({3});\n", register_type(node(id).dtype),
                          name("acc", id, v), u, identity_text(node(id)));
    return text;
  }

  // Down the rows, `unroll` at a time.
  std::string walk(const ReductionPasses::Pass& pass) const {
    const auto arguments = [&](int u) {
      std::string text;
      for (NodeId id : pass.reduces)
        for (int v = 0; v < vectors_; ++v) text += fmt::format(", {}_{}", name("acc", id, v), u);
      return text;
    };
    const int unroll = columns_.schedule.unroll;
    std::string text = "        int64_t row = 0;\n";
    if (unroll > 1) {
      text +=
          fmt::format("        for (; row + {0} <= {1}; row += {0}) {{\n", unroll, columns_.rows);
      for (int u = 0; u < unroll; ++u)
        text += fmt::format("          body(row + {}{});\n", u, arguments(u));
      text += "        }\n";
    }
    return text + fmt::format("        for (; row < {}; ++row) body(row{});\n", columns_.rows,
                              arguments(0));
  }

  std::string finish(const ReductionPasses::Pass& pass) {
    std::string text;
    for (NodeId id : pass.reduces)
      for (int v = 0; v < vectors_; ++v) {
        const std::string acc = name("acc", id, v);
        for (int u = 1; u < columns_.schedule.unroll; ++u)
          text += fmt::format("        {0}_0 = {1}::combine({0}_0, {0}_{2});\n", acc,
                              combiner(node(id).op), u);
        text += fmt::format("        {} = {};\n", name("result", id, v),
                            finished(node(id), acc + "_0"));
      }
    return text;
  }

  // Binds what differs between the vectors of the slab: reductions known so far.
  void enter(int v) {
    for (NodeId id = 0; id < columns_.graph.size(); ++id)
      if (traits(node(id).op).kind == OpKind::kReduce)
        printer_.bind(id, {name("result", id, v), Level::kOuter, false});
  }

  std::string loop_body(const ReductionPasses::Pass& pass) {
    for (int v = 0; v < vectors_; ++v) {
      enter(v);
      const std::vector<Index>& at = at_[static_cast<size_t>(v)];
      for (NodeId id : pass.reduces) {
        const Register x = printer_.value(node(id).operands[0], at);
        printer_.emit(Level::kInner,
                      fmt::format("{0} = {1}::combine({0}, {2});", name("acc", id, v),
                                  combiner(node(id).op), x.name));
      }
      for (int output : pass.outputs) printer_.store(output, at);
      for (NodeId id : pass.kept) {
        Index flat;
        const std::vector<Dim> strides = kept_strides();
        for (size_t k = 0; k < at.size(); ++k) flat = flat + at[k] * strides[k];
        printer_.store_to(printer_.value(id, at), kept_pointer(id), flat);
      }
    }
    return printer_.take(Level::kInner, 10);
  }

  // Kept values of a slab lie row by row, as wide as the slab.
  std::vector<Dim> kept_strides() const {
    std::vector<Dim> strides(columns_.sizes.size(), 0);
    strides.back() = 1;
    Dim stride = int64_t{vectors_} * columns_.schedule.lanes;
    for (size_t k = columns_.reduced_axes.size(); k-- > 0;) {
      strides[columns_.reduced_axes[k]] = stride;
      stride = stride * columns_.sizes[columns_.reduced_axes[k]];
    }
    return strides;
  }
  static std::string kept_pointer(NodeId id) { return fmt::format("kept{} - j0", id); }
  void bind_kept(NodeId id) {
    printer_.bind_buffer(id, kept_pointer(id), kept_strides());
    const std::string_view type = memory_type(node(id).dtype);
    scratch_pointers_ += fmt::format(
        "      {0}* kept{1} = reinterpret_cast<{0}*>(static_cast<char*>(scratch) + {2});\n", type,
        id, scratch_bytes_);
    const int64_t elements =
        upper_bound(columns_.rows * vectors_ * columns_.schedule.lanes, columns_.graph.symbols());
    scratch_bytes_ += (elements * size_of(node(id).dtype) + 63) / 64 * 64;
  }

  std::string reduced_outputs() {
    for (int v = 0; v < vectors_; ++v) {
      enter(v);
      const std::vector<Index>& at = at_[static_cast<size_t>(v)];
      std::vector<Index> reduced;
      for (size_t k = 0; k < at.size(); ++k)
        if (static_cast<int>(k) < columns_.passes.space.reduced_begin ||
            static_cast<int>(k) >= columns_.passes.space.reduced_end)
          reduced.push_back(at[k]);
      for (int output : columns_.passes.reduced_outputs) printer_.store(output, reduced);
    }
    std::string text = printer_.take(Level::kOuter, 6);
    return text + printer_.take(Level::kInner, 6);
  }

  const Columns& columns_;
  const int vectors_;
  ExpressionPrinter printer_;
  std::vector<std::vector<Index>> at_;  // for each vector of the slab
  std::string scratch_pointers_;
  int64_t scratch_bytes_ = 0;
};

// A block takes some columns of one group through all loops.
Source print_slabs(const Columns& columns) {
  const int vectors = columns.schedule.vectors;
  const int64_t width = int64_t{vectors} * columns.schedule.lanes;
  Slab wide(columns, vectors), narrow(columns, 1);
  const bool has_wide = vectors > 1 && !is_less(columns.columns, width);
  std::string lambdas = narrow.text("narrow");
  lambdas = narrow.kernel_text() + lambdas;
  if (has_wide) {
    const std::string text = wide.text("wide");
    // Names of the two printers overlap: the wide one's constants stand in front of its own use.
    lambdas += "    const auto wide_slab = [&](int64_t column) KILN_LAMBDA {\n" +
               wide.kernel_text() + text + "    wide(column, AllLanes{});\n    };\n";
  }
  std::string body = "  for (int64_t block = begin; block < end; ++block) {\n";
  body += fmt::format(
      "    const int64_t group = block / {0};\n"
      "    const int64_t column_begin = block % {0} * {1};\n"
      "    const int64_t column_end = smaller(column_begin + {1}, {2});\n",
      ceil_text(columns.columns, width), width, columns.columns);
  body += columns.coordinates("group", columns.group_axes, 4) + lambdas;
  body += "    int64_t column = column_begin;\n";
  if (has_wide)
    body += fmt::format(
        "    if (column + {0} <= column_end) {{\n      wide_slab(column);\n      continue;\n"
        "    }}\n",
        width);
  body +=
      "    for (; column + LANES <= column_end; column += LANES) narrow(column, AllLanes{});\n"
      "    if (column < column_end) narrow(column, SomeLanes{column_end - column});\n  }\n";

  Source source;
  source.text = preamble(columns.graph, columns.schedule.lanes) +
                entry_function("kernel", columns.graph, body);
  source.recipe = argument_recipe(columns.graph);
  source.recipe.phases = {
      {"kernel", Grid(std::vector<GridAxis>{{columns.groups, 1}, {columns.columns, width}})}};
  source.recipe.scratch_bytes = std::max(narrow.scratch_bytes(), wide.scratch_bytes());
  return source;
}

bool keeps_without_bound(const Columns& columns) {
  const int64_t kept = columns.passes.kept_bytes_per_element(columns.graph);
  const int64_t width = int64_t{columns.schedule.vectors} * columns.schedule.lanes;
  return kept > 0 &&
         upper_bound(columns.rows * (width * kept), columns.graph.symbols()) > kMostScratchBytes;
}

}  // namespace

Result<Source> print_cpu_column_reduction(const Graph& graph,
                                          const CpuColumnReductionSchedule& schedule) {
  const Columns columns(graph, schedule);
  if (keeps_without_bound(columns))
    return fail(Code::kInvalidArgument, "nothing bounds the values of a slab that would be kept");
  return schedule.split > 0 ? print_split_columns(columns) : print_slabs(columns);
}

}  // namespace kiln
