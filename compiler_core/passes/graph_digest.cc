// Computes a graph's digest, field by field. Ops and dtypes go in by name, so that a new enum value
// changes no digest; symbols by range, since a hint changes nothing that is computed.
#include "compiler_core/ir/custom_call.h"
#include "compiler_core/passes/normalise.h"

namespace kiln {
namespace {

class GraphHasher {
 public:
  explicit GraphHasher(std::string_view domain) : hasher_(domain) {}

  Digest digest(const Graph& graph) {
    hasher_.add(kNormaliserVersion);
    hasher_.begin_list(graph.symbols().size());
    for (const Symbol& symbol : graph.symbols())
      hasher_.add(symbol.range.min).add(symbol.range.max);
    hasher_.begin_list(graph.nodes().size());
    for (const Node& node : graph.nodes()) add(node);
    hasher_.begin_list(graph.outputs().size());
    for (NodeId id : graph.outputs()) hasher_.add(int64_t{id});
    return hasher_.finish();
  }

 private:
  void add(const Dim& dim) {
    if (dim.is_constant())
      hasher_.add(dim.constant());
    else
      hasher_.add(dim.to_string());
  }
  void add(const std::vector<Dim>& dims) {
    hasher_.begin_list(dims.size());
    for (const Dim& dim : dims) add(dim);
  }

  void add(const Node& node) {
    hasher_.add(to_string(node.op)).add(to_string(node.dtype));
    add(node.shape);
    hasher_.begin_list(node.operands.size());
    for (NodeId operand : node.operands) hasher_.add(int64_t{operand});
    std::visit([this](const auto& attr) { add_attr(attr); }, node.attr);
  }

  // One list for each kind of attribute; the op says which kind it is.
  void add_attr(std::monostate) { hasher_.begin_list(0); }
  void add_attr(const InputAttr& attr) { hasher_.begin_list(1).add(int64_t{attr.index}); }
  void add_attr(const ConstantAttr& attr) { hasher_.begin_list(1).add(attr.as_int()); }
  void add_attr(const ViewAttr& attr) {
    hasher_.begin_list(2);
    add(attr.strides);
    add(attr.offset);
  }
  void add_attr(const PadAttr& attr) {
    hasher_.begin_list(3);
    add(attr.low);
    add(attr.high);
    hasher_.add(attr.value.as_int());
  }
  void add_attr(const AxisAttr& attr) { hasher_.begin_list(1).add(int64_t{attr.axis}); }
  void add_attr(const ReduceAttr& attr) {
    hasher_.begin_list(attr.axes.size());
    for (int axis : attr.axes) hasher_.add(int64_t{axis});
  }
  void add(const std::vector<int64_t>& numbers) {
    hasher_.begin_list(numbers.size());
    for (int64_t number : numbers) hasher_.add(number);
  }
  void add_attr(const ConvolutionAttr& attr) {
    hasher_.begin_list(5);
    add(attr.stride);
    add(attr.dilation);
    add(attr.low);
    add(attr.high);
    hasher_.add(attr.groups);
  }
  void add_attr(const ScatterAttr& attr) { hasher_.begin_list(1).add(to_string(attr.combine)); }
  void add_attr(const SortAttr& attr) { hasher_.begin_list(1).add(int64_t{attr.descending}); }
  void add_attr(const PhiloxAttr& attr) { hasher_.begin_list(1).add(attr.stream); }
  void add_attr(const CustomAttr& attr) {
    hasher_.begin_list(1).add(print_custom_call(*attr.call));
  }

  Hasher hasher_;
};

}  // namespace

Digest digest_of(const Graph& canonical, std::string_view domain) {
  return GraphHasher(domain).digest(canonical);
}

}  // namespace kiln
