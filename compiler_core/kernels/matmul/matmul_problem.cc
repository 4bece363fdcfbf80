#include "compiler_core/kernels/matmul/matmul_problem.h"

#include <algorithm>

#include "compiler_core/base/check.h"
#include "compiler_core/kernels/analysis/axis_extents.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {

template <class Size>
MatmulOperandOf<Size> MatmulOperandOf<Size>::of(const Graph& graph, NodeId id) {
  MatmulOperandOf<Size> operand;
  const Node* source = &graph.node(id);
  if (source->op == Op::kGather) {
    const Node& index = graph.node(source->operands[1]);
    CHECK(index.op == Op::kInput, "a matmul's matrices are picked by an input");
    operand.picked_by = std::get<InputAttr>(index.attr).index;
    source = &graph.node(source->operands[0]);
    operand.matrices = size_of_dim<Size>(source->shape[0]);
  }
  operand.dtype = source->dtype;
  std::vector<Dim> strides = contiguous_strides(source->shape);
  if (source->op == Op::kView) {
    const Node& node = *source;
    const auto& view = std::get<ViewAttr>(node.attr);
    strides = view.strides;
    operand.offset = size_of_dim<Size>(view.offset);
    source = &graph.node(node.operands[0]);
  }
  CHECK(source->op == Op::kInput, "a matmul's operands are views of inputs");
  operand.input = std::get<InputAttr>(source->attr).index;
  for (size_t axis = 0; axis + 2 < strides.size(); ++axis)
    operand.batch_strides.push_back(size_of_dim<Size>(strides[axis]));
  operand.row_stride = size_of_dim<Size>(strides[strides.size() - 2]);
  operand.column_stride = size_of_dim<Size>(strides.back());
  return operand;
}

template <class Size>
MatmulOperandOf<Size> MatmulOperandOf<Size>::of_packed(const Graph& graph,
                                                       const Dequantised& packed) {
  const Node& bytes = graph.node(packed.stored);
  CHECK(bytes.op == Op::kInput, "packed bytes are an input");
  if (packed.packing == Packing::kWords) {
    MatmulOperandOf words;
    words.input = std::get<InputAttr>(bytes.attr).index;
    words.dtype = DType::kU8;
    const Shape& shape = graph.node(packed.unpacked).shape;
    words.batch_strides.assign(shape.size() - 2, 0);
    words.row_stride = 1;
    words.column_stride = Size(4 * shape[shape.size() - 2].constant());
    return words;
  }
  const auto& view = std::get<ViewAttr>(graph.node(packed.unpacked).attr);
  const auto in_bytes = [](const Dim& elements) {
    return Size(elements.constant() / 2);  // find_dequantised() takes even ones alone
  };
  MatmulOperandOf<Size> operand;
  operand.input = std::get<InputAttr>(bytes.attr).index;
  operand.dtype = bytes.dtype;
  operand.offset = in_bytes(view.offset);
  const size_t axes = view.strides.size();
  for (size_t axis = 0; axis + 2 < axes; ++axis)
    operand.batch_strides.push_back(in_bytes(view.strides[axis]));
  operand.row_stride = 1;
  operand.column_stride = in_bytes(view.strides[axes - 1]);
  return operand;
}

template <class Size>
bool MatmulOperandOf<Size>::is_shared() const {
  return std::all_of(batch_strides.begin(), batch_strides.end(),
                     [](const Size& stride) { return stride == Size(0); });
}

namespace {

// Among products, those whose rows a norm scales.
bool is_reducing(const Graph& workload) {
  return std::ranges::any_of(
      workload.nodes(), [](const Node& node) { return traits(node.op).kind == OpKind::kReduce; });
}

}  // namespace

template <class Size>
MatmulProblemOf<Size> MatmulProblemOf<Size>::of(const Graph& workload) {
  const auto nodes = workload.nodes();
  const auto product = std::find_if(nodes.begin(), nodes.end(),
                                    [](const Node& node) { return node.op == Op::kMatmul; });
  CHECK(product != nodes.end(), "a matmul workload has a matmul");
  MatmulProblemOf problem;
  problem.product = static_cast<NodeId>(product - nodes.begin());
  problem.stored = workload.node(product->operands[0]).dtype;
  problem.result = product->dtype;
  const Shape& shape = product->shape;
  for (size_t axis = 0; axis + 2 < shape.size(); ++axis) {
    problem.batch.push_back(size_of_dim<Size>(shape[axis]));
    problem.batches = problem.batches * problem.batch.back();
  }
  problem.m = size_of_dim<Size>(shape[shape.size() - 2]);
  problem.n = size_of_dim<Size>(shape.back());
  problem.k = size_of_dim<Size>(workload.node(product->operands[0]).shape.back());
  const auto operand = [&](size_t i) {
    auto dequantised = find_dequantised(workload, *product, i);
    using Operand = MatmulOperandOf<Size>;
    const bool packed = dequantised && dequantised->in_byte() > 1;
    auto made =
        packed ? Operand::of_packed(workload, *dequantised)
               : Operand::of(workload, dequantised ? dequantised->stored : product->operands[i]);
    made.dequantised = std::move(dequantised);
    return made;
  };
  if (is_reducing(workload)) problem.rms_norm = find_rms_norm(workload, product->operands[0]);
  problem.a =
      problem.rms_norm ? MatmulOperandOf<Size>::of(workload, problem.rms_norm->rows) : operand(0);
  problem.b = operand(1);
  if (problem.b.dequantised && !problem.a.dequantised) {
    problem.narrow = problem.b.dtype;
    problem.narrow_groups = problem.b.dequantised->group > 0;
    problem.narrow_shift = problem.b.dequantised->shift != kInvalidNode;
    problem.in_byte = problem.b.dequantised->in_byte();
    problem.word_depth = static_cast<int>(problem.b.dequantised->word_depth);
  }
  return problem;
}

Status check_operands_are_stored(const Workload& workload) {
  if (is_reducing(workload.graph))
    return fail(Code::kUnsupported, "these kernels do not scale rows as a norm does");
  for (const Node& node : workload.graph.nodes())
    if (node.op == Op::kMatmul)
      for (size_t i = 0; i < 2; ++i)
        if (find_dequantised(workload.graph, node, i) ||
            workload.graph.node(node.operands[i]).op == Op::kGather)
          return fail(Code::kUnsupported,
                      "these kernels neither widen nor pick operands on their way");
  return {};
}

std::optional<MatmulOperand> constant_operand(const SizedMatmulOperand& operand) {
  MatmulOperand numbers;
  numbers.input = operand.input;
  numbers.dtype = operand.dtype;
  numbers.picked_by = operand.picked_by;
  numbers.dequantised = operand.dequantised;
  bool known = true;
  const auto number = [&](const Dim& size) {
    known &= size.is_constant();
    return known ? size.constant() : 0;
  };
  numbers.offset = number(operand.offset);
  for (const Dim& stride : operand.batch_strides) numbers.batch_strides.push_back(number(stride));
  numbers.row_stride = number(operand.row_stride);
  numbers.column_stride = number(operand.column_stride);
  numbers.matrices = number(operand.matrices);
  return known ? std::optional(std::move(numbers)) : std::nullopt;
}

Result<MatmulProblem> measured_problem(const Graph& workload) {
  if (workload.symbols().empty()) return MatmulProblem::of(workload);
  const SizedMatmul sized = SizedMatmul::of(workload);
  auto a = constant_operand(sized.a), b = constant_operand(sized.b);
  const bool open_rows = !sized.m.is_constant();
  const bool known_behind =
      std::all_of(sized.batch.begin() + (sized.batch.empty() ? 0 : 1), sized.batch.end(),
                  [](const Dim& size) { return size.is_constant(); });
  if (!a || !b || (open_rows && !sized.batch.empty()) || !known_behind || !sized.n.is_constant() ||
      !sized.k.is_constant())
    return fail(Code::kUnsupported,
                "these kernels are written for symbols in the rows or the batches alone");
  MatmulProblem problem;
  static_cast<Product&>(problem) = sized;
  for (const Dim& size : sized.batch) problem.batch.push_back(size_at_hints(workload, size));
  for (const int64_t size : problem.batch) problem.batches *= size;
  problem.m = size_at_hints(workload, sized.m);
  problem.n = sized.n.constant();
  problem.k = sized.k.constant();
  problem.a = *std::move(a);
  problem.b = *std::move(b);
  return problem;
}

template struct MatmulOperandOf<int64_t>;
template struct MatmulOperandOf<Dim>;
template struct MatmulProblemOf<int64_t>;
template struct MatmulProblemOf<Dim>;

}  // namespace kiln
