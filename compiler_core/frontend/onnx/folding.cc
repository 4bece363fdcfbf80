// Folds nodes whose operands are known: the oracle computes constants, and symbolic sizes are calculated
// here as polynomials.
#include <algorithm>
#include <deque>
#include <unordered_map>

#include "compiler_core/frontend/onnx/lowering.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

// Nodes on the way to a few elements; larger ones are left to run time.
constexpr int64_t kMostFoldedElements = 1 << 16;

using Results = std::optional<std::vector<KnownTensor>>;
using Operands = std::vector<const KnownTensor*>;  // null: absent

// Operands of a graph of its own, in which they are inputs.
class FoldOperands : public OnnxOperands {
 public:
  FoldOperands(GraphBuilder& b, const OnnxNode& node, const Operands& operands) : b_(b) {
    for (size_t i = 0; i < operands.size(); ++i)
      if (operands[i] != nullptr) known_.emplace(node.inputs[i], operands[i]);
  }
  NodeId tensor(std::string_view name) override {
    const auto made = nodes_.find(name);
    if (made != nodes_.end()) return made->second;
    const KnownTensor& known = *known_.at(name);
    values_.push_back(to_tensor(known));
    const NodeId id = b_.input(known.dtype, known.shape());
    nodes_.emplace(name, id);
    return id;
  }
  const KnownTensor* known(std::string_view name) override { return known_.at(name); }
  std::vector<const Tensor*> values() const {
    std::vector<const Tensor*> all;
    for (const Tensor& each : values_) all.push_back(&each);
    return all;
  }

 private:
  GraphBuilder& b_;
  std::unordered_map<std::string_view, const KnownTensor*> known_;
  std::unordered_map<std::string_view, NodeId> nodes_;
  std::deque<Tensor> values_;
};

bool is_small(const Graph& graph) {
  return std::all_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    const Dim count = numel(node.shape);
    return count.is_valid() && count.is_constant() && count.constant() <= kMostFoldedElements;
  });
}

// REQUIRES: no operand is symbolic.
Results evaluated(const OnnxNode& node, const OnnxLowering& lowering, int64_t version,
                  const Operands& operands) {
  GraphBuilder b;
  FoldOperands own(b, node, operands);
  OnnxCall call(b, node, own, version, {});
  const Values values = lowering.lower(call);
  // Its mistakes are reported where it is lowered for good.
  if (!b.ok() || values.empty() || values.size() < node.outputs.size()) return std::nullopt;
  if (std::find(values.begin(), values.end(), kInvalidNode) != values.end()) return std::nullopt;
  const auto graph = b.finish(values);
  if (!graph || !is_small(*graph)) return std::nullopt;
  const auto tensors = interpret(*graph, own.values());
  if (!tensors) return std::nullopt;
  std::vector<KnownTensor> results;
  for (const Tensor& tensor : *tensors) {
    if (tensor.numel() > kMostKnownElements) return std::nullopt;
    results.push_back(known_of(tensor));
  }
  return results;
}

// Ops that move elements about: how many of their operands are those elements.
size_t moved_operands(std::string_view op, size_t count) {
  constexpr std::string_view kFirst[] = {
      "Gather", "Slice", "Squeeze", "Unsqueeze", "Reshape",  "Identity",      "Expand",
      "Split",  "Tile",  "Flatten", "Transpose", "GatherND", "GatherElements"};
  if (op == "Concat") return count;
  return std::find(std::begin(kFirst), std::end(kFirst), op) != std::end(kFirst) ? 1 : 0;
}

// The op moves the elements' numbers instead, which are constants.
Results moved(const OnnxNode& node, const OnnxLowering& lowering, int64_t version,
              const Operands& operands) {
  const size_t data = moved_operands(node.op, operands.size());
  if (data == 0) return std::nullopt;
  std::deque<KnownTensor> numbered;
  std::vector<Dim> elements;
  Operands replaced = operands;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (operands[i] == nullptr) continue;
    if (i >= data) {
      if (operands[i]->is_symbolic()) return std::nullopt;
      continue;
    }
    KnownTensor numbers{DType::kI64, operands[i]->sizes, {}, {}};
    for (const Dim& element : operands[i]->integers) {
      numbers.integers.emplace_back(static_cast<int64_t>(elements.size()));
      elements.push_back(element);
    }
    numbered.push_back(std::move(numbers));
    replaced[i] = &numbered.back();
  }
  Results results = evaluated(node, lowering, version, replaced);
  if (!results) return std::nullopt;
  for (KnownTensor& result : *results) {
    result.dtype = operands[0]->dtype;
    for (Dim& number : result.integers) number = elements[static_cast<size_t>(number.constant())];
  }
  return results;
}

class SizeArithmetic {
 public:
  SizeArithmetic(std::string_view op, std::span<const Symbol> symbols)
      : op_(op), symbols_(symbols) {}

  std::optional<Dim> of_two(const Dim& x, const Dim& y) const {
    if (op_ == "Add") return x + y;
    if (op_ == "Sub") return x - y;
    if (op_ == "Mul") return x * y;
    if (op_ == "Div") return quotient(x, y);
    if (op_ == "Mod") return quotient(x, y) ? std::optional(Dim(0)) : std::nullopt;
    if (op_ == "Max" || op_ == "Min") {
      const auto larger = is_less(x, y);
      if (!larger) return x == y ? std::optional(x) : std::nullopt;
      return *larger == (op_ == "Max") ? y : x;
    }
    if (op_ == "Equal") {
      if (x == y) return 1;
      return is_less(x, y) ? std::optional(Dim(0)) : std::nullopt;
    }
    const bool swapped = op_.starts_with("Greater");
    const Dim &low = swapped ? y : x, &high = swapped ? x : y;
    if (op_ != "Less" && op_ != "Greater" && op_ != "LessOrEqual" && op_ != "GreaterOrEqual")
      return std::nullopt;
    if (x == y) return op_.ends_with("OrEqual") ? 1 : 0;
    const auto less = is_less(low, high);
    return less ? std::optional(Dim(*less ? 1 : 0)) : std::nullopt;
  }

 private:
  int64_t least(const Dim& dim) const {
    return dim.lower_bound([this](SymbolId id) { return symbols_[static_cast<size_t>(id)].range; });
  }
  // Whether x < y or x > y whatever the symbols; nothing when neither is certain.
  std::optional<bool> is_less(const Dim& x, const Dim& y) const {
    if (least(y - x) > 0) return true;
    if (least(x - y) > 0) return false;
    return std::nullopt;
  }
  static std::optional<Dim> quotient(const Dim& x, const Dim& y) {
    if (y.is(0)) return std::nullopt;
    const auto exact = Dim::divide_exact(x, y);
    return exact ? std::optional(*exact) : std::nullopt;
  }

  std::string_view op_;
  std::span<const Symbol> symbols_;
};

// Element by element; one element goes with all of the other.
Results calculated(const OnnxNode& node, std::span<const Symbol> symbols,
                   const Operands& operands) {
  if (operands.size() != 2 || operands[0] == nullptr || operands[1] == nullptr) return std::nullopt;
  const KnownTensor &x = *operands[0], &y = *operands[1];
  if (is_float(x.dtype) || is_float(y.dtype)) return std::nullopt;
  const bool x_one = x.numel() == 1 && x.sizes.size() <= y.sizes.size();
  const bool y_one = y.numel() == 1 && y.sizes.size() <= x.sizes.size();
  if (x.sizes != y.sizes && !x_one && !y_one) return std::nullopt;
  const KnownTensor& larger = x_one && !y_one ? y : x;
  const SizeArithmetic arithmetic(node.op, symbols);
  KnownTensor result{x.dtype, larger.sizes, {}, {}};
  for (size_t i = 0; i < larger.numel(); ++i) {
    const auto value =
        arithmetic.of_two(x.integers[x.numel() == 1 ? 0 : i], y.integers[y.numel() == 1 ? 0 : i]);
    if (!value || !value->is_valid()) return std::nullopt;
    result.integers.push_back(*value);
  }
  constexpr std::string_view kComparisons[] = {"Equal", "Less", "Greater", "LessOrEqual",
                                               "GreaterOrEqual"};
  if (std::find(std::begin(kComparisons), std::end(kComparisons), node.op) !=
      std::end(kComparisons))
    result.dtype = DType::kBool;
  return {{result}};
}

// Casts between integers, products of all sizes, choices by what is known.
Results of_sizes(const OnnxNode& node, const Operands& operands) {
  if (operands.empty() || operands[0] == nullptr) return std::nullopt;
  const KnownTensor& x = *operands[0];
  if (node.op == "Cast") {
    for (const OnnxAttribute& each : node.attributes) {
      const auto type = each.name == "to" ? onnx_dtype(static_cast<int32_t>(each.integer))
                                          : Result<DType>(fail(Code::kNotFound, ""));
      if (!type || (*type != DType::kI64 && *type != DType::kI32)) continue;
      return {{KnownTensor{*type, x.sizes, x.integers, {}}}};
    }
    return std::nullopt;
  }
  if (node.op == "ReduceProd") {
    bool keep = true;
    for (const OnnxAttribute& each : node.attributes)
      if (each.name == "keepdims") keep = each.integer != 0;
    if (x.sizes.size() != 1) return std::nullopt;
    Dim product = 1;
    for (const Dim& each : x.integers) product = product * each;
    if (!product.is_valid()) return std::nullopt;
    return {{KnownTensor{
        x.dtype, keep ? std::vector<int64_t>{1} : std::vector<int64_t>{}, {product}, {}}}};
  }
  if (node.op != "Where" || operands.size() != 3 || operands[1] == nullptr ||
      operands[2] == nullptr || x.is_symbolic() || x.sizes != operands[1]->sizes ||
      x.sizes != operands[2]->sizes || is_float(operands[1]->dtype))
    return std::nullopt;
  KnownTensor result{operands[1]->dtype, x.sizes, {}, {}};
  for (size_t i = 0; i < x.integers.size(); ++i)
    result.integers.push_back(operands[x.integers[i].is(0) ? 2 : 1]->integers[i]);
  return {{result}};
}

}  // namespace

Results fold_onnx_node(const OnnxNode& node, const OnnxLowering& lowering, int64_t version,
                       std::span<const Symbol> symbols, const Operands& operands) {
  if (operands.empty()) return std::nullopt;
  const bool symbolic = std::any_of(operands.begin(), operands.end(), [](const KnownTensor* each) {
    return each != nullptr && each->is_symbolic();
  });
  Results results;
  if (!symbolic) {
    results = evaluated(node, lowering, version, operands);
  } else {
    results = moved(node, lowering, version, operands);
    if (!results) results = calculated(node, symbols, operands);
    if (!results) results = of_sizes(node, operands);
  }
  if (!results || !std::all_of(results->begin(), results->end(), is_compact)) return std::nullopt;
  return results;
}

}  // namespace kiln
