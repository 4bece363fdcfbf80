#include "compiler_core/kernels/wgmma/wgmma_product.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/base/math.h"
#include "compiler_core/kernels/analysis/device_limits.h"
#include "compiler_core/kernels/printing/coordinates.h"
#include "compiler_core/kernels/printing/cuda_kernel_text.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"
#include "compiler_core/kernels/printing/size.h"
#include "compiler_core/kernels/wgmma/column_terms.h"
#include "compiler_core/kernels/wgmma/wgmma_text.h"

namespace kiln {

ProductSizes ProductSizes::of(const MatmulProblem& problem) {
  return {problem.m, {problem.batch.begin(), problem.batch.end()}};
}

Dim ProductSizes::batches() const {
  Dim count = 1;
  for (const Dim& size : batch) count = count * size;
  return count;
}

std::string print_sizes(const ProductSizes& sizes) {
  if (sizes.is_constant()) return "  const Sizes sizes{};\n";
  return fmt::format(
      "  const Sizes sizes{{static_cast<int>({}), static_cast<int>({})}};\n"
      "  if (static_cast<int>(block_index()) >= sizes.tiles()) {{\n"
      "    wait_for_kernel_before();  // it ends after that one in any case\n"
      "    return;\n  }}\n",
      sizes.rows, sizes.batches());
}

WgmmaProduct::WgmmaProduct(const Graph& workload, const Graph& epilogue,
                           const WgmmaMatmulSchedule& schedule, const MatmulProblem& problem,
                           ProductSizes sizes, const Target& target, std::optional<WgmmaRuns> runs)
    : graph_(workload),
      epilogue_(epilogue),
      schedule_(schedule),
      problem_(problem),
      sizes_(std::move(sizes)),
      in_runs_(runs.has_value()),
      boxes_(ends_in_boxes(epilogue, problem.n)),
      addend_(boxes_ && !in_runs_ ? boxed_addend(epilogue, problem.product) : kInvalidNode),
      lanes_(boxes_ ? 2
                    : std::min(product_lanes(epilogue, problem.n), schedule.staged_columns(false))),
      batches_(in_runs_ ? 1 : problem.batches),
      row_tiles_(runs ? runs->most_row_tiles : ceil_div(problem.m, schedule.bm)),
      column_tiles_(ceil_div(problem.n, schedule.bn)),
      sms_(cuda_limits(target).sms) {}

Dim WgmmaProduct::all_rows() const {
  return sizes_.rows * (in_runs_ ? problem_.batches : 1);
}

int64_t WgmmaProduct::blocks(const WgmmaOperands& operands) const {
  if (operands.sharing_blocks > 0) return operands.sharing_blocks;
  if (schedule_.splits > 1) return row_tiles_ * column_tiles_ * batches_ * schedule_.splits;
  const int64_t most = sms_ * schedule_.blocks;
  const int64_t blocks = is_open() ? most : std::min(row_tiles_ * column_tiles_ * batches_, most);
  // A block's next tile is so many tiles on: a multiple of those side by side has the same columns.
  return schedule_.kept > 0 ? std::max<int64_t>(blocks / column_tiles_, 1) * column_tiles_ : blocks;
}

std::vector<NodeId> WgmmaProduct::terms_of(const WgmmaOperands& operands) const {
  // All warpgroups compute them, of which some may have no tile where they take those by turns. A block that
  // ends a share of one tile would compute them for it alone.
  if (!boxes_ || in_runs_ || operands.sharing_blocks > 0 || schedule_.ping_pong == 1 ||
      schedule_.splits > 1)
    return {};
  std::vector<NodeId> terms = column_terms(epilogue_, problem_.product);
  const int64_t bytes = schedule_.shared_bytes(true) + column_terms_bytes(terms, problem_.n);
  return bytes <= most_shared_bytes(schedule_.blocks) ? terms : std::vector<NodeId>{};
}

Source WgmmaProduct::print(const WgmmaOperands& operands) const {
  Source source;
  source.recipe = argument_recipe(graph_);
  source.text =
      cuda_preamble(graph_, lanes_, {"mma.cuh", "matmul.cuh", "warpgroup.cuh", "ring.cuh"}) +
      print_tiling(operands) + operands.types +
      print_wgmma({"warpgroup_multiply", problem_.a.dtype, problem_.b.dtype, schedule_.bn,
                   operands.a_inner, operands.b_inner}) +
      std::string(device_text("wgmma_matmul.cuh"));
  for (const std::string_view name : operands.device) source.text += device_text(name);
  const std::vector<NodeId> terms = terms_of(operands);
  Phase phase{
      "multiply", Grid::of_any(blocks(operands), sizes_.rows * sizes_.batches()),
      schedule_.threads(), schedule_.splits,
      schedule_.shared_bytes(boxes_) + static_cast<int>(column_terms_bytes(terms, problem_.n))};
  KernelParameters parameters(graph_);
  for (const auto& [name, map] : operands.maps) parameters.add_map(name, map);
  if (boxes_) {
    source.text += print_boxes() + std::string(device_text("wgmma_boxes.cuh"));
    if (!terms.empty()) source.text += device_text("wgmma_terms.cuh");
    parameters.add_map("out", map_of_boxes(output()));
    if (addend_ != kInvalidNode) parameters.add_map("addend", map_of_boxes(addend()));
  } else {
    source.text += device_text("wgmma_rows.cuh");
  }
  if (operands.early_input) parameters.add_ready(*operands.early_input);
  std::string body = print_body(operands, terms);
  if (operands.waits)
    body += "  wait_for_kernel_before();\n";  // it ends after that one in any case
  source.text += cuda_kernel("multiply", graph_, schedule_.threads(), schedule_.blocks, body,
                             parameters.text(),
                             operands.waits || operands.early_input ? KernelStart::kAsTheBodySays
                                                                    : KernelStart::kBehindOthers);
  phase.arguments = std::move(parameters).arguments();
  source.recipe.phases = {std::move(phase)};
  return source;
}

// None where something in the epilogue is read elsewhere than at its own place.
NodeId WgmmaProduct::boxed_addend(const Graph& graph, NodeId product) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const bool view = node.op == Op::kView && graph.node(node.operands[0]).op == Op::kInput;
    const bool is_in_place = id == product || view || node.op == Op::kConstant ||
                             node.op == Op::kInput || is_elementwise(node.op);
    if (!is_in_place) return kInvalidNode;
  }
  return find_addend(graph,
                     [](const MatmulOperand& operand) { return is_mappable(operand, true); });
}

MatmulOperand WgmmaProduct::addend() const {
  return *constant_operand(SizedMatmulOperand::of(epilogue_, addend_));
}

MatmulOperand WgmmaProduct::output() const {
  MatmulOperand all{static_cast<int>(graph_.inputs().size()), 0, {}, problem_.n, 1};
  all.dtype = graph_.node(graph_.outputs()[0]).dtype;
  if (in_runs_) return all;  // rows of all runs follow each other
  int64_t stride = problem_.m * problem_.n;
  for (size_t axis = problem_.batch.size(); axis-- > 0; stride *= problem_.batch[axis])
    all.batch_strides.insert(all.batch_strides.begin(), stride);
  return all;
}

TensorMap WgmmaProduct::map_of_boxes(const MatmulOperand& operand) const {
  TensorMap map;
  map.sizes = {problem_.n, all_rows()};
  map.strides = {operand.row_stride * 2};
  map.box = {schedule_.staged_columns(true), 16};
  return with_batches(std::move(map), operand);
}

TensorMap WgmmaProduct::with_batches(TensorMap map, const MatmulOperand& operand) const {
  map.buffer = operand.input;
  map.offset = operand.offset * size_of(operand.dtype);
  map.dtype = operand.dtype;
  for (size_t axis = operand.batch_strides.size(); axis-- > 0;)
    add_batch_axis(map, sizes_.batch[axis], operand.batch_strides[axis]);
  finish_map(map);
  return map;
}

std::string WgmmaProduct::print_tiling(const WgmmaOperands& operands) const {
  const bool promotes = is_f8(problem_.a.dtype);
  const auto known = [](const Dim& size, int64_t number) {
    return size.is_constant() ? number : 0;
  };
  return fmt::format(
      "struct Tiling {{\n"
      "  static constexpr int rows = {}, columns = {}, groups = {}, stages = {};\n"
      "  static constexpr int staged = {}, staged_bytes = {}, all_rows = {}, all_columns = {};\n"
      "  static constexpr int row_tiles = {}, column_tiles = {}, batches = {}, steps = {};\n"
      "  static constexpr int depth = {}, kept = {}, splits = {};\n"
      "  static constexpr bool promotes = {}, ping_pong = {};\n"
      "  static constexpr int blocks = {}, raster = {};\n"
      "  static constexpr int copying_registers = {}, multiplying_registers = {};\n}};\n"
      "using Accumulator = {};\n",
      schedule_.bm, schedule_.bn, schedule_.groups, schedule_.stages,
      schedule_.staged_columns(boxes_), schedule_.staged_bytes(boxes_),
      known(sizes_.rows, problem_.m * (in_runs_ ? problem_.batches : 1)), problem_.n,
      known(sizes_.rows, row_tiles_), column_tiles_, known(sizes_.batches(), batches_),
      operands.steps, step_depth(problem_), schedule_.kept, schedule_.splits, promotes,
      schedule_.ping_pong == 1, blocks(operands), schedule_.raster,
      schedule_.copying_registers(operands.copying_registers, promotes),
      schedule_.multiplying_registers(operands.copying_registers, promotes),
      is_integer(problem_.a.dtype) ? "int" : "float");
}

std::string WgmmaProduct::print_place(std::string inner, const MatmulOperand& operand) const {
  std::string at = std::move(inner);
  int rank = 2;
  for (size_t axis = operand.batch_strides.size(); axis-- > 0;) {
    if (operand.batch_strides[axis] == 0) continue;
    at += ", " + coordinate_text("batch", sizes_.batch, axis);
    ++rank;
  }
  return fmt::format("    const int at[{}] = {{{}}};\n", rank, at);
}

std::string WgmmaProduct::print_boxes() const {
  const bool has_addend = addend_ != kInvalidNode;
  return fmt::format(
      "struct Boxes {{\n"
      "  static constexpr int columns = {}, count = {};\n"
      "  static constexpr bool has_addend = {};\n"
      "  static KILN_MEMBER void store(const CUtensorMap* map, const char* from, int row,\n"
      "                                int column, [[maybe_unused]] int batch) {{\n"
      "{}    store_box(map, from, at);\n  }}\n"
      "  static KILN_MEMBER void copy(char* to, const CUtensorMap* map, char* barrier, int row,\n"
      "                               int column, [[maybe_unused]] int batch) {{\n"
      "{}    copy_box(to, map, barrier, at);\n  }}\n}};\n",
      schedule_.staged_columns(true), schedule_.boxes(), has_addend,
      print_place("column, row", output()),
      print_place("column, row", has_addend ? addend() : output()));
}

std::string WgmmaProduct::print_body(const WgmmaOperands& operands,
                                     const std::vector<NodeId>& terms) const {
  SizedMatmul sized;
  static_cast<Product&>(sized) = problem_;
  sized.batch = sizes_.batch;
  sized.m = sizes_.rows;
  sized.n = problem_.n;
  const EpilogueText epilogue = matmul_epilogue(epilogue_, sized, lanes_, {boxes_, addend_, terms});
  return print_sizes(sizes_) +
         (boxes_ ? print_box_ending(epilogue, terms) : print_row_ending(epilogue)) +
         print_call(operands);
}

std::string WgmmaProduct::print_call(const WgmmaOperands& operands) const {
  if (operands.sharing_blocks > 0)
    return fmt::format("  multiply_shared({}, ring, ending, {});\n", operands.source,
                       operands.meeting);
  if (schedule_.splits > 1)
    return fmt::format("  multiply_divided({}, ring, ending);\n", operands.source);
  if (in_runs_) return fmt::format("  multiply_picked({}, ring, ending);\n", operands.source);
  return fmt::format("{}  multiply_all({}, ring, ending, {}, sizes);\n", operands.scales,
                     operands.source, operands.scales.empty() ? "NoScales{}" : "scales");
}

std::string WgmmaProduct::print_row_ending(const EpilogueText& epilogue) const {
  if (in_runs_)
    return fmt::format(
        "  const auto finish = [&](index_t end, index_t line, index_t column,\n"
        "                          const Vec<Accumulator>& sums) {{\n"
        "    if (line >= end) return;\n"
        "    [[maybe_unused]] const index_t batch = line / {0}, row = line % {0};\n{1}{2}  }};\n"
        "  const Ring ring(shared_memory());\n"
        "  RowEnding<decltype(finish)> ending{{ring, finish, sizes}};\n",
        problem_.m, epilogue.once, epilogue.vector);
  return fmt::format(
      "  const auto finish = [&]([[maybe_unused]] index_t batch, index_t row, index_t column,\n"
      "                          const Vec<Accumulator>& sums) {{\n{}{}  }};\n"
      "  const Ring ring(shared_memory());\n"
      "  RowEnding<decltype(finish)> ending{{ring, finish, sizes}};\n",
      epilogue.once, epilogue.vector);
}

std::string WgmmaProduct::print_box_ending(const EpilogueText& epilogue,
                                           const std::vector<NodeId>& terms) const {
  // Places beyond the result are computed too, and not stored.
  std::string inside;
  if (!sizes_.rows.is_constant())
    inside += "    row = smaller(row, static_cast<index_t>(sizes.all_rows() - 1));\n";
  else if (in_runs_ || problem_.m % schedule_.bm != 0)
    inside += fmt::format("    row = smaller(row, {});\n", all_rows() - 1);
  if (in_runs_) inside += fmt::format("    batch = row / {0};\n    row %= {0};\n", problem_.m);
  if (problem_.n % schedule_.bn != 0)
    inside += fmt::format("    column = smaller(column, {});\n", problem_.n - 2);
  if (addend_ != kInvalidNode)
    inside += fmt::format("    const Packed<{}> addend = {{{{word}}}};\n",
                          memory_type(epilogue_.node(addend_).dtype));
  const std::string ring = "  const Ring ring(shared_memory());\n";
  const std::string finish = fmt::format(
      "  const auto finish = [&]([[maybe_unused]] index_t batch, [[maybe_unused]] index_t row,\n"
      "                          [[maybe_unused]] index_t column, const Vec<Accumulator>& sums,\n"
      "                          [[maybe_unused]] unsigned word) {{\n{}{}{}{}  }};\n",
      inside, terms.empty() ? "" : "    const auto terms = all_terms[column / 2];\n", epilogue.once,
      epilogue.vector);
  const std::string ending = fmt::format(
      "BoxEnding<decltype(finish)>{}{{ring, &out_map, {}, finish{}}}",
      terms.empty() ? " ending" : "", addend_ == kInvalidNode ? "nullptr" : "&addend_map",
      in_runs_ ? ", reinterpret_cast<char*>(out0)" : "");
  if (terms.empty()) return finish + ring + "  " + ending + ";\n";
  const std::string type = fmt::format("ColumnTerms<{}>", terms.size());
  return ring +
         fmt::format("  auto* const all_terms = reinterpret_cast<{}*>(ring.ending + {});\n", type,
                     schedule_.groups * 4 * schedule_.boxes() * 8) +
         finish + print_column_terms(epilogue_, terms) +
         fmt::format(
             "  TermsEnding<BoxEnding<decltype(finish)>, decltype(column_terms), {}> "
             "ending{{{}, column_terms, all_terms}};\n",
             type, ending);
}

}  // namespace kiln
