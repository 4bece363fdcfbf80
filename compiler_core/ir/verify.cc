#include "compiler_core/ir/verify.h"

#include <algorithm>

#include "compiler_core/ir/affine.h"
#include "compiler_core/ir/custom_call.h"

namespace kiln {
namespace {

// Operands of the node under test, and what the rules need to say about it.
struct Checker {
  const Node& node;
  std::span<const Node> earlier;
  std::span<const Symbol> symbols;

  const Node& operand(size_t i) const { return earlier[static_cast<size_t>(node.operands[i])]; }

  tl::unexpected<Error> refuse(std::string_view rule) const {
    std::string text = std::string(to_string(node.op)) + " " + std::string(to_string(node.dtype)) +
                       to_string(node.shape);
    for (size_t i = 0; i < std::min<size_t>(node.operands.size(), 4); ++i)
      text += std::string(i ? ", " : " of ") + std::string(to_string(operand(i).dtype)) +
              to_string(operand(i).shape);
    return fail(Code::kInvalidArgument, text + ": " + std::string(rule));
  }

  template <class T>
  const T* attr() const {
    return std::get_if<T>(&node.attr);
  }
  bool no_attr() const { return std::holds_alternative<std::monostate>(node.attr); }
  bool not_negative(const Dim& dim) const { return lower_bound(dim, symbols) >= 0; }

  Status shape_is_sane() const {
    std::vector<int64_t> sizes;
    for (const Dim& dim : node.shape) {
      if (!dim.is_valid()) return refuse("a size overflows");
      for (SymbolId id : dim.symbols())
        if (static_cast<size_t>(id) >= symbols.size())
          return refuse("symbol s" + std::to_string(id) + " is not declared before it is used");
      if (!not_negative(dim)) return refuse("a size may be negative");
      // A symbol's greatest value is bounded when it is bound to real tensors.
      if (dim.is_constant()) sizes.push_back(dim.constant());
    }
    if (node.shape.size() > 64) return refuse("more than 64 axes");
    if (std::find(sizes.begin(), sizes.end(), 0) == sizes.end())
      if (auto bytes = checked_product(sizes); !bytes) return bytes;
    return {};
  }

  Status checked_product(const std::vector<int64_t>& sizes) const {
    int64_t total = size_of(node.dtype);
    for (int64_t size : sizes)
      if (__builtin_mul_overflow(total, size, &total) || total > int64_t{1} << 62)
        return refuse("the product of the sizes overflows");
    return {};
  }

  Status source() const {
    if (node.op == Op::kInput && attr<InputAttr>() == nullptr) return refuse("needs an index");
    if (node.op == Op::kConstant && (attr<ConstantAttr>() == nullptr || !node.shape.empty()))
      return refuse("a constant is a scalar with a value");
    if (node.op == Op::kIota) {
      if (node.shape.size() != 1 || !no_attr()) return refuse("an iota has one axis");
      if (node.dtype == DType::kBool) return refuse("an iota is numeric");
    }
    return {};
  }

  Status unary_dtype() const {
    const DType type = operand(0).dtype;
    switch (node.op) {
      case Op::kCast:
        return {};
      case Op::kNot:
        if (is_float(type)) return refuse("not needs integers or bool");
        break;
      case Op::kNeg:
      case Op::kAbs:
      case Op::kSign:
        if (type == DType::kBool) return refuse("needs a numeric dtype");
        break;
      default:
        if (!is_float(type)) return refuse("needs a float dtype");
    }
    return type == node.dtype ? Status{} : Status(refuse("keeps its operand's dtype"));
  }

  Status binary_dtype() const {
    const DType type = operand(0).dtype;
    if (operand(1).dtype != type) return refuse("operands have different dtypes");
    if (traits(node.op).kind == OpKind::kCompare)
      return node.dtype == DType::kBool ? Status{} : Status(refuse("a comparison gives bool"));
    if (type != node.dtype) return refuse("keeps its operands' dtype");
    const bool logic = node.op == Op::kAnd || node.op == Op::kOr || node.op == Op::kXor;
    if (logic && is_float(type)) return refuse("needs integers or bool");
    if (!logic && type == DType::kBool) return refuse("needs a numeric dtype");
    if (node.op == Op::kAtan2 && !is_float(type)) return refuse("needs a float dtype");
    return {};
  }

  Status elementwise() const {
    if (!no_attr()) return refuse("takes no attribute");
    for (size_t i = 0; i < node.operands.size(); ++i)
      if (operand(i).shape != node.shape) return refuse("operands have different shapes");
    switch (traits(node.op).kind) {
      case OpKind::kUnary:
        return unary_dtype();
      case OpKind::kSelect:
        if (operand(0).dtype != DType::kBool) return refuse("the condition is bool");
        if (operand(1).dtype != node.dtype || operand(2).dtype != node.dtype)
          return refuse("both sides have the result's dtype");
        return {};
      default:
        return binary_dtype();
    }
  }

  Status view() const {
    const auto* view = attr<ViewAttr>();
    if (view == nullptr || view->strides.size() != node.shape.size())
      return refuse("needs one stride for each axis");
    if (operand(0).dtype != node.dtype) return refuse("keeps its operand's dtype");
    Dim least = view->offset, greatest = view->offset;
    for (size_t i = 0; i < node.shape.size(); ++i) {
      if (node.shape[i].is(0)) return {};
      const Dim& stride = view->strides[i];
      const Dim reach = stride * (node.shape[i] - Dim(1));
      if (stride.is_constant() ? stride.constant() < 0 : lower_bound(stride, symbols) < 0)
        least = least + reach;
      else
        greatest = greatest + reach;
    }
    if (!least.is_valid() || !greatest.is_valid()) return refuse("an index overflows");
    if (!not_negative(least) || !not_negative(numel(operand(0).shape) - Dim(1) - greatest))
      return refuse("reads outside its operand");
    return {};
  }

  Status pad() const {
    const auto* pad = attr<PadAttr>();
    const Shape& from = operand(0).shape;
    if (pad == nullptr || pad->low.size() != from.size() || pad->high.size() != from.size() ||
        node.shape.size() != from.size())
      return refuse("needs two sizes for each axis");
    if (operand(0).dtype != node.dtype) return refuse("keeps its operand's dtype");
    for (size_t i = 0; i < from.size(); ++i) {
      if (!not_negative(pad->low[i]) || !not_negative(pad->high[i])) return refuse("is negative");
      if (node.shape[i] != pad->low[i] + from[i] + pad->high[i])
        return refuse("sizes do not add up");
    }
    return {};
  }

  Status concat() const {
    const auto* attr = this->attr<AxisAttr>();
    if (attr == nullptr || attr->axis < 0 || static_cast<size_t>(attr->axis) >= node.shape.size())
      return refuse("has a bad axis");
    Dim total = 0;
    for (size_t i = 0; i < node.operands.size(); ++i) {
      Shape shape = operand(i).shape;
      if (operand(i).dtype != node.dtype) return refuse("operands have different dtypes");
      if (shape.size() != node.shape.size()) return refuse("operands have different ranks");
      Dim& size = shape[static_cast<size_t>(attr->axis)];
      total = total + size;
      size = node.shape[static_cast<size_t>(attr->axis)];
      if (shape != node.shape) return refuse("sizes differ outside the axis");
    }
    if (total != node.shape[static_cast<size_t>(attr->axis)]) return refuse("sizes do not add up");
    return {};
  }

  Status reduce() const {
    const auto* attr = this->attr<ReduceAttr>();
    if (attr == nullptr || attr->axes.empty()) return refuse("needs axes");
    if (operand(0).dtype != node.dtype) return refuse("keeps its operand's dtype");
    if (node.dtype == DType::kBool) return refuse("needs a numeric dtype");
    Shape rest;
    size_t next = 0;
    for (size_t i = 0; i < operand(0).shape.size(); ++i) {
      if (next < attr->axes.size() && attr->axes[next] == static_cast<int>(i))
        ++next;
      else
        rest.push_back(operand(0).shape[i]);
    }
    if (next != attr->axes.size()) return refuse("axes are not ascending axes of the operand");
    if (rest != node.shape) return refuse("the result lacks exactly the reduced axes");
    return {};
  }

  Status scan() const {
    const auto* attr = this->attr<AxisAttr>();
    if (attr == nullptr || attr->axis < 0 || static_cast<size_t>(attr->axis) >= node.shape.size())
      return refuse("has a bad axis");
    if (operand(0).dtype != node.dtype || node.dtype == DType::kBool)
      return refuse("keeps its operand's numeric dtype");
    return operand(0).shape == node.shape ? Status{} : Status(refuse("keeps its operand's shape"));
  }

  Status matmul() const {
    const Node &a = operand(0), &b = operand(1);
    if (!no_attr()) return refuse("takes no attribute");
    const size_t rank = node.shape.size();
    if (rank < 2 || a.shape.size() != rank || b.shape.size() != rank)
      return refuse("operands have equal ranks of at least 2");
    if (a.dtype != b.dtype || a.dtype == DType::kBool)
      return refuse("operands have one numeric dtype");
    if (node.dtype != compute_type(a.dtype)) return refuse("gives the compute type");
    for (size_t i = 0; i + 2 < rank; ++i)
      if (a.shape[i] != node.shape[i] || b.shape[i] != node.shape[i])
        return refuse("batch sizes differ");
    if (a.shape[rank - 2] != node.shape[rank - 2] || b.shape[rank - 1] != node.shape[rank - 1] ||
        a.shape[rank - 1] != b.shape[rank - 2])
      return refuse("sizes do not match");
    return {};
  }

  Status gather() const {
    const Node &x = operand(0), &index = operand(1);
    if (!no_attr()) return refuse("takes no attribute");
    if (x.dtype != node.dtype) return refuse("keeps its operand's dtype");
    if (index.dtype != DType::kI64 && index.dtype != DType::kI32)
      return refuse("the index is i64 or i32");
    if (x.shape.empty()) return refuse("needs an axis to gather from");
    Shape expected = index.shape;
    expected.insert(expected.end(), x.shape.begin() + 1, x.shape.end());
    return expected == node.shape ? Status{}
                                  : Status(refuse("the result has the index's axes first"));
  }

  Status convolution() const {
    const Node &x = operand(0), &w = operand(1);
    const auto* attr = this->attr<ConvolutionAttr>();
    if (attr == nullptr) return refuse("needs strides and paddings");
    if (x.dtype != w.dtype || x.dtype == DType::kBool)
      return refuse("operands have one numeric dtype");
    if (node.dtype != compute_type(x.dtype)) return refuse("gives the compute type");
    const auto shape = convolution_shape(x.shape, w.shape, *attr);
    if (!shape) return refuse(shape.error().message);
    for (const Dim& size : *shape)
      if (!not_negative(size)) return refuse("the window is larger than the padded operand");
    return *shape == node.shape ? Status{} : Status(refuse("sizes do not match"));
  }

  Status scatter() const {
    const Node &x = operand(0), &index = operand(1), &updates = operand(2);
    if (attr<ScatterAttr>() == nullptr) return refuse("needs a way to combine");
    if (x.dtype != node.dtype || updates.dtype != node.dtype)
      return refuse("operand, updates and result have one dtype");
    if (index.dtype != DType::kI64) return refuse("the index is i64");
    if (node.dtype == DType::kBool && attr<ScatterAttr>()->combine != Combine::kSet)
      return refuse("bool can only be set");
    if (x.shape.empty()) return refuse("needs an axis to scatter to");
    Shape expected = index.shape;
    expected.insert(expected.end(), x.shape.begin() + 1, x.shape.end());
    if (updates.shape != expected) return refuse("the updates have the index's axes first");
    return x.shape == node.shape ? Status{} : Status(refuse("keeps its operand's shape"));
  }

  Status argsort() const {
    if (attr<SortAttr>() == nullptr) return refuse("needs a direction");
    if (node.dtype != DType::kI64) return refuse("gives i64");
    if (node.shape.empty()) return refuse("needs an axis to sort along");
    return operand(0).shape == node.shape ? Status{} : Status(refuse("keeps its operand's shape"));
  }

  Status philox() const {
    const auto* attr = this->attr<PhiloxAttr>();
    if (attr == nullptr || attr->stream < 0) return refuse("needs a stream");
    if (operand(0).dtype != DType::kI64 || !operand(0).shape.empty())
      return refuse("the seed is an i64 scalar");
    return node.dtype == DType::kI64 ? Status{} : Status(refuse("gives i64"));
  }

  Status custom_call() const {
    const auto* attr = this->attr<CustomAttr>();
    if (attr == nullptr || attr->call == nullptr) return refuse("needs a definition");
    if (const Status good = verify_custom_call(*attr->call); !good)
      return refuse(good.error().message);
    const Graph& reference = attr->call->reference;
    if (reference.inputs().size() != node.operands.size())
      return refuse("its reference takes another number of operands");
    for (size_t i = 0; i < node.operands.size(); ++i) {
      const Node& input = reference.node(reference.inputs()[i]);
      if (input.dtype != operand(i).dtype || input.shape != operand(i).shape)
        return refuse("its reference takes other operands");
    }
    const Node& result = reference.node(reference.outputs()[0]);
    if (result.dtype != node.dtype || result.shape != node.shape)
      return refuse("its reference gives another result");
    return {};
  }

  Status run() const {
    const OpTraits& op = traits(node.op);
    const size_t count = node.operands.size();
    for (NodeId id : node.operands)
      if (id < 0 || static_cast<size_t>(id) >= earlier.size())
        return fail(Code::kInvalidArgument,
                    std::string(op.name) + " uses a node that is not before it");
    if (op.arity >= 0 ? count != static_cast<size_t>(op.arity) : count == 0)
      return refuse("wrong number of operands");
    TRY_STATUS(shape_is_sane());
    switch (op.kind) {
      case OpKind::kSource:
        return source();
      case OpKind::kUnary:
      case OpKind::kBinary:
      case OpKind::kCompare:
      case OpKind::kSelect:
        return elementwise();
      case OpKind::kIndexMap:
        return node.op == Op::kView ? view() : node.op == Op::kPad ? pad() : concat();
      case OpKind::kReduce:
        return reduce();
      case OpKind::kScan:
        return scan();
      case OpKind::kContract:
        return node.op == Op::kMatmul ? matmul() : convolution();
      case OpKind::kGather:
        return gather();
      case OpKind::kScatter:
        return scatter();
      case OpKind::kSort:
        return argsort();
      case OpKind::kRandom:
        return philox();
      case OpKind::kCustom:
        return custom_call();
    }
    return refuse("is of no known kind");
  }
};

}  // namespace

Status verify_node(const Node& node, std::span<const Node> earlier,
                   std::span<const Symbol> symbols) {
  return Checker{node, earlier, symbols}.run();
}

Status verify(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id)
    TRY_STATUS(
        verify_node(graph.node(id), graph.nodes().first(static_cast<size_t>(id)), graph.symbols()));
  for (size_t i = 0; i < graph.inputs().size(); ++i) {
    const auto* attr = std::get_if<InputAttr>(&graph.node(graph.inputs()[i]).attr);
    if (attr == nullptr || attr->index != static_cast<int>(i))
      return fail(Code::kInvalidArgument, "input " + std::to_string(i) + " is not in its place");
  }
  for (NodeId id : graph.outputs())
    if (id < 0 || id >= graph.size())
      return fail(Code::kInvalidArgument, "an output is not a node of the graph");
  return {};
}

}  // namespace kiln
