#include "compiler_core/kernels/pointwise/cuda_pointwise.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/pointwise/cuda_pointwise_streams.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise_tile.h"
#include "compiler_core/kernels/pointwise/cuda_symbolic_pointwise.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

// Vectors are numbered in 32 bits where their number fits, with room for a chunk past the end.
constexpr int64_t kMostShortNumber = int64_t{1} << 30;

class CudaPointwiseKernel {
 public:
  CudaPointwiseKernel(const Graph& graph, const CudaPointwiseSchedule& schedule)
      : graph_(graph),
        schedule_(schedule),
        printer_(graph, Dialect::kCuda),
        sizes_(constant_sizes(graph.node(graph.outputs()[0]).shape)) {
    if (!sizes_.empty()) columns_ = sizes_.back();
    for (size_t k = 0; k + 1 < sizes_.size(); ++k) rows_ *= sizes_[k];
    if (rows_ == 1 || columns_ % schedule.lanes != 0) schedule_.map = PointwiseMap::kFlat;
    row_vectors_ = columns_ / schedule.lanes;
    number_chunks();
  }

  Source print() {
    const std::string whole = chunks_ > 0 ? print_chunks() : "";
    const std::string rest = tail_ > 0 ? print_tail() : "";
    const std::string body =
        "  const AllLanes live;\n" + printer_.take(Level::kKernel, 2) + whole + rest;
    Source source;
    source.text = cuda_preamble(graph_, schedule_.lanes) +
                  cuda_kernel("kernel", graph_, schedule_.threads, 1, body);
    source.recipe = argument_recipe(graph_);
    source.recipe.phases = {{"kernel", std::max<int64_t>(chunks_, 1), schedule_.threads, 1, 0}};
    return source;
  }

 private:
  using Place = std::vector<Index>;  // of a vector in the space

  // A number stands for a vector, or (kDown) for `unroll` vectors one below the other.
  void number_chunks() {
    const bool down = schedule_.map == PointwiseMap::kDown;
    if (schedule_.map == PointwiseMap::kFlat) {
      numbers_ = rows_ * columns_ / schedule_.lanes;
      tail_ = rows_ * columns_ % schedule_.lanes;
    } else if (down) {
      numbers_ = (rows_ + schedule_.unroll - 1) / schedule_.unroll * row_vectors_;
    } else {
      numbers_ = rows_ * row_vectors_;
    }
    chunk_ = int64_t{schedule_.threads} * (down ? 1 : schedule_.unroll);
    chunks_ = (numbers_ + chunk_ - 1) / chunk_;
  }
  const char* number_type() const { return numbers_ < kMostShortNumber ? "unsigned" : "uint64_t"; }

  std::string print_chunks() {
    std::string text = fmt::format("  {{\n    const {} chunk = block_index();\n", number_type());
    std::string places;
    const std::vector<Place> at = schedule_.map == PointwiseMap::kFlat   ? flat_places(places)
                                  : schedule_.map == PointwiseMap::kDown ? places_below(places)
                                  : chunk_stays_in_a_row()               ? places_in_a_row(text)
                                                                         : places_in_rows(places);
    print_stores(at);
    text += printer_.take(Level::kOuter, 4) + places + printer_.take(Level::kInner, 4);
    return text + "  }\n";
  }

  // What a whole number of vectors leaves over: one thread's.
  std::string print_tail() {
    std::string places = fmt::format("    const SomeLanes live{{{}}};\n    const index_t f = {};\n",
                                     tail_, numbers_ * schedule_.lanes);
    print_stores({flat_place("f", "", places)});
    return "  if (block_index() == 0 && thread_index() == 0) {\n" + places +
           printer_.take(Level::kInner, 4) + "  }\n";
  }

  // The stores of all outputs, behind the loads of all vectors: as many as possible are in flight
  // at once.
  void print_stores(const std::vector<Place>& at) {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      const bool loads = node.op == Op::kInput ||
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
    if (numbers_ % chunk_ != 0) first = fmt::format("smaller({}, {})", first, numbers_ - 1);
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
    int64_t quotients = rows_ * columns_;
    std::string previous;
    for (size_t k = sizes_.size(); k-- > 0;) {
      quotients /= sizes_[k];
      if (k == 0 || quotients == 1) {
        at[k] = rest;
        break;
      }
      const std::string quotient = fmt::format("h{}_{}", k, suffix);
      text +=
          previous.empty()
              ? fmt::format("    const vindex {} = quotients({}, {});\n", quotient, name, sizes_[k])
              : fmt::format("    const vindex {} = {} / {};\n", quotient, previous, sizes_[k]);
      const Index above = LoopVar{quotient, LoopVar::Kind::kLanes, Level::kInner, 0, quotients};
      at[k] = rest + above * -sizes_[k];
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

  bool chunk_stays_in_a_row() const { return row_vectors_ % chunk_ == 0; }
  std::vector<Place> places_in_a_row(std::string& text) const {
    const int64_t row_chunks = row_vectors_ / chunk_;
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
      if (rows_ % schedule_.unroll != 0) row = fmt::format("smaller({}, {})", row, rows_ - 1);
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
    int64_t stride = 1;
    for (size_t k = at.size(); k-- > 0;) {
      const std::string name = fmt::format("i{}_{}", k, suffix);
      std::string value = "row" + suffix;
      if (stride > 1) value += fmt::format(" / {}", stride);
      if (stride * sizes_[k] < rows_) value += fmt::format(" % {}", sizes_[k]);
      text += fmt::format("    const index_t {} = {};\n", name, value);
      at[k] = LoopVar{name, LoopVar::Kind::kScalar, level, 0, sizes_[k]};
      stride *= sizes_[k];
    }
    return at;
  }

  const Graph& graph_;
  CudaPointwiseSchedule schedule_;
  ExpressionPrinter printer_;
  const std::vector<bool> in_space_ = nodes_in_space(graph_);
  const std::vector<int64_t> sizes_;
  int64_t rows_ = 1, columns_ = 1;
  int64_t row_vectors_ = 1;
  int64_t numbers_ = 0, tail_ = 0;  // what is numbered; elements that are left over
  int64_t chunk_ = 1, chunks_ = 0;  // numbers a block takes at a time; how many chunks that makes
};

}  // namespace

Result<Source> print_cuda_pointwise(const Graph& graph, const CudaPointwiseSchedule& schedule) {
  if (!graph.symbols().empty()) return print_cuda_symbolic_pointwise(graph, schedule);
  if (can_tile(graph, schedule)) return print_cuda_pointwise_tile(graph, schedule);
  return CudaPointwiseKernel(graph, schedule).print();
}

}  // namespace kiln
