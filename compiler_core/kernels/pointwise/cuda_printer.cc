#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>
#include <string>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"
#include "compiler_core/kernels/pointwise/written_row.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"

namespace kiln {
namespace {

// Vectors are numbered in 32 bits where their number fits, with room for a chunk past the end.
constexpr int64_t kMostShortNumber = int64_t{1} << 30;

class CudaPointwiseKernel {
 public:
  // `row`: what is written of the outputs; all of them where there is none.
  CudaPointwiseKernel(const Graph& graph, const CudaPointwiseSchedule& schedule,
                      std::optional<WrittenRow> row = {})
      : graph_(graph),
        schedule_(schedule),
        printer_(graph, Dialect::kCuda),
        row_(std::move(row)),
        sizes_(row_ ? row_->other_axes() : graph.node(graph.outputs()[0]).shape) {
    if (!sizes_.empty()) columns_ = sizes_.back();
    for (size_t k = 0; k + 1 < sizes_.size(); ++k) rows_ = rows_ * sizes_[k];
    if (!graph.symbols().empty() || row_) {
      schedule_.map = PointwiseMap::kRows;
      if (!rows_.is(1) && !is_multiple(columns_, schedule.lanes)) schedule_.lanes = 1;
    }
    if (rows_.is(1) || !is_multiple(columns_, schedule_.lanes))
      schedule_.map = PointwiseMap::kFlat;
    else
      row_vectors_ = *ceil_divide(columns_, schedule_.lanes);
    printer_.whole_vectors(schedule_.lanes);
    number_chunks();
  }

  Source print() {
    const std::string whole = has_chunks_ ? print_chunks() : "";
    const std::string rest = tail_.empty() ? "" : print_tail();
    const std::string body =
        "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2) + whole + rest;
    Source source;
    source.text = cuda_preamble(graph_, schedule_.lanes) +
                  cuda_kernel("kernel", graph_, schedule_.threads, 1, body);
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"kernel", blocks_, schedule_.threads, 1, 0}};
    if (row_) source.recipe.kept = row_->kept_outputs();
    return source;
  }

 private:
  using Place = std::vector<Index>;  // of a vector in the space

  // A number stands for a vector, or (kDown) for `unroll` vectors one below the other.
  void number_chunks() {
    const bool down = schedule_.map == PointwiseMap::kDown;
    const int lanes = schedule_.lanes;
    const Dim elements = rows_ * columns_;
    chunk_ = int64_t{schedule_.threads} * (down ? 1 : schedule_.unroll);
    if (!elements.is_constant()) {
      const auto exact = ceil_divide(elements, lanes);
      numbers_ = exact ? size_text(*exact) : fmt::format("({} / {})", elements, lanes);
      last_ = numbers_ + " - 1";
      is_even_ = is_multiple(elements, lanes * chunk_);
      if (!is_multiple(elements, lanes)) tail_ = fmt::format("({} % {})", elements, lanes);
      blocks_ = Grid({GridAxis{elements, chunk_ * lanes}});
      return;
    }
    int64_t numbers = elements.constant() / lanes;
    if (const int64_t rest = elements.constant() % lanes; rest > 0) tail_ = std::to_string(rest);
    if (down) numbers = ceil_div(rows_.constant(), schedule_.unroll) * row_vectors_.constant();
    numbers_ = std::to_string(numbers);
    last_ = std::to_string(numbers - 1);
    is_short_ = numbers < kMostShortNumber;
    has_chunks_ = numbers > 0;
    is_even_ = numbers % chunk_ == 0;
    blocks_ = std::max<int64_t>(ceil_div(numbers, chunk_), 1);
  }
  const char* number_type() const { return is_short_ ? "unsigned" : "uint64_t"; }

  std::string print_chunks() {
    // An unknown number of elements may be less than one vector.
    const bool may_be_none = !tail_.empty() && !(rows_ * columns_).is_constant();
    std::string text = may_be_none ? fmt::format("  if ({} > 0) {{\n", numbers_) : "  {\n";
    text += fmt::format("    const {} chunk = block_index();\n", number_type());
    std::string places;
    const std::vector<Place> at = schedule_.map == PointwiseMap::kFlat   ? flat_places(places)
                                  : schedule_.map == PointwiseMap::kDown ? places_below(places)
                                  : chunk_stays_in_a_row()               ? places_in_a_row(text)
                                                                         : places_in_rows(places);
    print_stores(at);
    text += printer_.take(Level::kOuter, 4) + places + printer_.take(Level::kInner, 4);
    return text + "  }\n";
  }

  // The elements that a whole number of vectors leaves over: one thread's.
  std::string print_tail() {
    const bool known = (rows_ * columns_).is_constant();
    const std::string first =
        known ? std::to_string((rows_ * columns_).constant() - std::stoll(tail_))
              : fmt::format("{} - {}", rows_ * columns_, tail_);
    std::string places =
        fmt::format("    const SomeLanes live{{{}}};\n    const index_t f = {};\n",
                    known ? tail_ : fmt::format("static_cast<index_t>({})", tail_), first);
    print_stores({flat_place("f", "", places)});
    return fmt::format("  if (block_index() == 0 && thread_index() == 0{}) {{\n",
                       known ? "" : fmt::format(" && {} > 0", tail_)) +
           places + printer_.take(Level::kInner, 4) + "  }\n";
  }

  // The stores of all outputs, behind the loads of all vectors: as many as possible are in flight
  // at once.
  void print_stores(std::vector<Place> at) {
    if (row_)
      for (Place& place : at) row_->put(place, printer_);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      const bool loads = node.op == Op::kInput || node.op == Op::kConcat ||
                         (node.op == Op::kView && graph_.node(node.operands[0]).op == Op::kInput);
      if (loads && in_space_[static_cast<size_t>(id)])
        for (const Place& place : at) printer_.value(id, place);
    }
    for (const Place& place : at)
      for (size_t i = 0; i < graph_.outputs().size(); ++i)
        printer_.store(static_cast<int>(i), place, schedule_.stream);
  }

  // ---- Places. Each appends the statements that declare its variables to `text`.

  // n0.. : the numbers of this thread's vectors. Past the end the last one is done again: the same
  // bits to the same place.
  std::string number(int u) const {
    std::string first = fmt::format("chunk * {} + thread_index()", chunk_);
    if (u > 0) first += fmt::format(" + {}", int64_t{u} * schedule_.threads);
    if (!is_even_) first = fmt::format("smaller({}, {})", first, last_);
    return fmt::format("    const {} n{} = {};\n", number_type(), u, first);
  }

  std::vector<Place> flat_places(std::string& text) const {
    std::vector<Place> at;
    for (int u = 0; u < schedule_.unroll; ++u) {
      text += number(u);
      text += fmt::format("    const index_t f{0} = n{0} * LANES;\n", u);
      at.push_back(flat_place(fmt::format("f{}", u), std::to_string(u), text));
    }
    return at;
  }
  // With f the element's number in the space, and h{k} the quotient by the sizes from axis k on,
  // the index along an axis is h{k+1} - h{k} * size: in the address of what lies as the space does
  // all quotients cancel, and the address is f.
  Place flat_place(const std::string& name, const std::string& suffix, std::string& text) const {
    Index rest =
        LoopVar{name, LoopVar::Kind::kVector, Level::kInner, 0, rows_ * columns_, schedule_.lanes};
    Place at(sizes_.size());
    std::vector<Dim> outside(sizes_.size(), Dim(1));  // of each axis
    for (size_t k = 1; k < sizes_.size(); ++k) outside[k] = outside[k - 1] * sizes_[k - 1];
    std::string previous;
    for (size_t k = sizes_.size(); k-- > 0;) {
      const Dim& quotients = outside[k];
      if (quotients.is(1)) {
        at[k] = rest;
        break;
      }
      const std::string quotient = fmt::format("h{}_{}", k, suffix);
      text +=
          previous.empty()
              ? fmt::format("    const vindex {} = quotients({}, {});\n", quotient, name, sizes_[k])
              : fmt::format("    const vindex {} = {} / {};\n", quotient, previous, sizes_[k]);
      const Index above = LoopVar{quotient, LoopVar::Kind::kLanes, Level::kInner, 0, quotients};
      at[k] = rest + above * (sizes_[k] * -1);
      rest = above;
      previous = quotient;
    }
    return at;
  }

  std::vector<Place> places_in_rows(std::string& text) const {
    std::vector<Place> at;
    for (int u = 0; u < schedule_.unroll; ++u) {
      text += number(u);
      text += fmt::format("    const {} row{} = n{} / {};\n", number_type(), u, u, row_vectors_);
      text +=
          fmt::format("    const index_t j{0} = (n{0} - row{0} * {1}) * LANES;\n", u, row_vectors_);
      at.push_back(row_place(std::to_string(u), Level::kInner, text));
      at.back().push_back(column(u));
    }
    return at;
  }

  bool chunk_stays_in_a_row() const { return is_multiple(row_vectors_, chunk_); }
  std::vector<Place> places_in_a_row(std::string& text) const {
    const Dim row_chunks = *ceil_divide(row_vectors_, chunk_);
    text += fmt::format("    const {} row = chunk / {};\n", number_type(), row_chunks);
    const Place row = row_place("", Level::kOuter, text);
    std::vector<Place> at;
    for (int u = 0; u < schedule_.unroll; ++u) {
      text += fmt::format(
          "    const index_t j{} = ((chunk - row * {}) * {} + thread_index() + {}) * LANES;\n", u,
          row_chunks, chunk_, int64_t{u} * schedule_.threads);
      at.push_back(row);
      at.back().push_back(column(u));
    }
    return at;
  }

  std::vector<Place> places_below(std::string& text) const {
    text += number(0);
    text += fmt::format("    const {} group = n0 / {};\n", number_type(), row_vectors_);
    text += fmt::format("    const index_t j0 = (n0 - group * {}) * LANES;\n", row_vectors_);
    std::vector<Place> at;
    for (int u = 0; u < schedule_.unroll; ++u) {
      std::string row = fmt::format("group * {} + {}", schedule_.unroll, u);
      if (!is_multiple(rows_, schedule_.unroll))
        row = fmt::format("smaller({}, {})", row, rows_ - 1);
      text += fmt::format("    const {} row{} = {};\n", number_type(), u, row);
      at.push_back(row_place(std::to_string(u), Level::kInner, text));
      at.back().push_back(column(0));
    }
    return at;
  }

  Index column(int u) const {
    return LoopVar{fmt::format("j{}", u), LoopVar::Kind::kVector, Level::kInner, 0, columns_,
                   schedule_.lanes};
  }

  // The place of row{suffix} on each outer axis.
  Place row_place(const std::string& suffix, Level level, std::string& text) const {
    Place at(sizes_.size() - 1);
    Dim stride = 1;
    for (size_t k = at.size(); k-- > 0;) {
      const std::string name = fmt::format("i{}_{}", k, suffix);
      std::string value = "row" + suffix;
      if (!stride.is(1)) value += fmt::format(" / {}", stride);
      if (stride * sizes_[k] != rows_) value += fmt::format(" % {}", sizes_[k]);
      text += fmt::format("    const index_t {} = {};\n", name, value);
      at[k] = LoopVar{name, LoopVar::Kind::kScalar, level, 0, sizes_[k]};
      stride = stride * sizes_[k];
    }
    return at;
  }

  const Graph& graph_;
  CudaPointwiseSchedule schedule_;
  ExpressionPrinter printer_;
  const std::vector<bool> in_space_ = nodes_in_space(graph_);
  std::optional<WrittenRow> row_;
  const Shape sizes_;  // of what is written
  Dim rows_ = 1, columns_ = 1;
  Dim row_vectors_ = 1;
  std::string numbers_, last_;  // how much is numbered; the last number
  std::string tail_;            // elements that are left over; empty: none, whatever the sizes
  int64_t chunk_ = 1;           // numbers a block takes at a time
  bool has_chunks_ = true;      // there may be some
  bool is_even_ = false;        // every chunk is whole
  bool is_short_ = false;       // numbers fit 32 bits
  Grid blocks_;
};

}  // namespace

Result<Source> print_cuda_row_update(const Graph& graph, const CudaRowUpdateSchedule& schedule) {
  return CudaPointwiseKernel(graph, {schedule.lanes, schedule.threads, 1}, WrittenRow(graph))
      .print();
}

Result<Source> print_cuda_pointwise(const Graph& graph, const CudaPointwiseSchedule& schedule) {
  if (graph.symbols().empty() && can_tile(graph, schedule))
    return print_cuda_pointwise_tile(graph, schedule);
  return CudaPointwiseKernel(graph, schedule).print();
}

}  // namespace kiln
