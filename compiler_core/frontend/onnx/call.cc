#include "compiler_core/frontend/onnx/call.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <deque>
#include <limits>
#include <unordered_map>

namespace kiln {

int64_t truncated(double x) {
  constexpr double kBeyond = 0x1p63;
  if (std::isnan(x)) return 0;
  if (x >= kBeyond) return std::numeric_limits<int64_t>::max();
  return x < -kBeyond ? std::numeric_limits<int64_t>::min() : static_cast<int64_t>(x);
}

AtenArgument::AtenArgument(std::string_view n, Expr x) : name(n) {
  if (x.id == kInvalidNode) return;
  tensors = {x.id};
  is_tensor = true;
}

AtenArgument::AtenArgument(std::string_view n, const std::vector<Expr>& xs) : name(n) {
  for (const Expr& x : xs) tensors.push_back(x.id);
  is_tensor_list = true;
}

NodeId OnnxCall::invalid(std::string why) {
  return b.fail_with({Code::kInvalidArgument, std::move(why), 0});
}

NodeId OnnxCall::unsupported(std::string why) {
  return b.fail_with({Code::kUnsupported, std::move(why), 0});
}

Expr OnnxCall::tensor(size_t i) {
  if (has(i)) return {&b, operands_.tensor(node_.inputs[i])};
  return {&b, invalid("operand " + std::to_string(i) + " is missing")};
}

Expr OnnxCall::optional_tensor(size_t i) {
  return has(i) ? tensor(i) : Expr{&b, kInvalidNode};
}

const KnownTensor* OnnxCall::known(size_t i) const {
  return has(i) ? operands_.known(node_.inputs[i]) : nullptr;
}

std::vector<Dim> OnnxCall::sizes(size_t i, std::string_view what) {
  const KnownTensor* value = known(i);
  if (value != nullptr && !is_float(value->dtype)) return value->integers;
  unsupported("the " + std::string(what) +
              " is computed from data, and Kiln needs it while it reads the model; export with "
              "constants there, or simplify the model (onnxsim, onnxruntime's offline "
              "optimiser)");
  return {};
}

std::vector<int64_t> OnnxCall::integers(size_t i, std::string_view what) {
  std::vector<int64_t> result;
  for (const Dim& value : sizes(i, what)) {
    if (!value.is_constant()) {
      unsupported("the " + std::string(what) + " is the dynamic size " + value.to_string() +
                  "; export with constant sizes there");
      return {};
    }
    result.push_back(value.constant());
  }
  return result;
}

std::vector<double> OnnxCall::reals(size_t i, std::string_view what) {
  const KnownTensor* value = known(i);
  if (value != nullptr && is_float(value->dtype)) return value->reals;
  const std::vector<int64_t> whole = integers(i, what);
  return {whole.begin(), whole.end()};
}

std::optional<double> OnnxCall::number(size_t i) const {
  const KnownTensor* value = known(i);
  if (value == nullptr || value->numel() != 1 || value->is_symbolic()) return std::nullopt;
  return is_float(value->dtype) ? value->reals[0]
                                : static_cast<double>(value->integers[0].constant());
}

const OnnxAttribute* OnnxCall::attribute(std::string_view name) const {
  for (const OnnxAttribute& each : node_.attributes)
    if (each.name == name) return &each;
  return nullptr;
}

int64_t OnnxCall::integer(std::string_view name, int64_t fallback) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr ? found->integer : fallback;
}

int64_t OnnxCall::required_integer(std::string_view name) {
  if (attribute(name) == nullptr) invalid("attribute '" + std::string(name) + "' is missing");
  return integer(name, 0);
}

double OnnxCall::real(std::string_view name, double fallback) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr ? static_cast<double>(found->real) : fallback;
}

std::string_view OnnxCall::text(std::string_view name, std::string_view fallback) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr ? found->text : fallback;
}

std::optional<std::vector<int64_t>> OnnxCall::list(std::string_view name) const {
  const OnnxAttribute* found = attribute(name);
  return found != nullptr ? std::optional(found->integers) : std::nullopt;
}

DType OnnxCall::dtype(std::string_view name, DType fallback) {
  const int64_t code = integer(name, 0);
  if (code == 0) return fallback;
  const Result<DType> type = onnx_dtype(static_cast<int32_t>(std::clamp<int64_t>(code, -1, 1000)));
  if (!type) b.fail_with(type.error());
  return type ? *type : fallback;
}

int OnnxCall::axis(int64_t given, size_t rank) {
  const int64_t count = static_cast<int64_t>(rank);
  if (given < -count || given >= count) {
    invalid("axis " + std::to_string(given) + " is none of a tensor of rank " +
            std::to_string(rank));
    return 0;
  }
  return static_cast<int>(given < 0 ? given + count : given);
}

std::vector<int> OnnxCall::axes(const std::vector<int64_t>& given, size_t rank) {
  std::vector<int> result;
  for (const int64_t each : given) result.push_back(axis(each, rank));
  std::sort(result.begin(), result.end());
  if (std::adjacent_find(result.begin(), result.end()) != result.end())
    invalid("names an axis twice");
  return result;
}

void OnnxCall::keep_within(const Dim& part, const Dim& size) {
  const std::vector<SymbolId> ids = part.symbols();
  if (ids.size() != 1 || !size.is_constant() || is_never_negative(size - part) ||
      is_never_negative(part - size))
    return;
  std::vector<int64_t> values(symbols_.size());
  const auto at_zero = part.evaluate(values);
  values[static_cast<size_t>(ids[0])] = 1;
  const auto at_one = part.evaluate(values);
  if (!at_zero || !at_one) return;
  const int64_t slope = *at_one - *at_zero;
  if (slope <= 0 || part != Dim(slope) * Dim::symbol(ids[0]) + Dim(*at_zero)) return;
  const int64_t most = (size.constant() - *at_zero) / slope;
  if (most >= symbols_[static_cast<size_t>(ids[0])].range.min) operands_.bound(ids[0], most);
}

bool OnnxCall::is_never_negative(const Dim& dim) const {
  return dim.lower_bound([this](SymbolId id) { return symbols_[static_cast<size_t>(id)].range; }) >=
         0;
}

Values OnnxCall::aten_values(std::string_view target, const std::vector<AtenArgument>& arguments) {
  if (!ok()) return {};
  NamedValues values(b, {});
  std::deque<std::string> names;  // addresses stay
  const auto named = [&](NodeId id) {
    names.push_back("v" + std::to_string(names.size()));
    values.define(names.back(), id);
    return TensorName{names.back()};
  };
  ExportedNode node;
  node.target = target;
  for (const AtenArgument& each : arguments) {
    Argument value = each.value;
    if (each.is_tensor) value = named(each.tensors[0]);
    if (each.is_tensor_list) {
      std::vector<TensorName> list;
      for (const NodeId id : each.tensors) list.push_back(named(id));
      value = std::move(list);
    }
    node.inputs.push_back({each.name, std::move(value)});
  }
  ExportedModel model;
  model.symbols.assign(symbols_.begin(), symbols_.end());
  RandomSource random;
  Call call(b, model, model.tensors, node, values, random);
  const Lowering* lowering = find_lowering(target);
  if (lowering == nullptr) return {unsupported("its form " + std::string(target))};
  Values results = lowering->lower(call);
  if (!ok() || results.empty()) results.assign(1, kInvalidNode);
  return results;
}

Expr OnnxCall::aten(std::string_view target, const std::vector<AtenArgument>& arguments) {
  const Values values = aten_values(target, arguments);
  return {&b, values.empty() ? kInvalidNode : values[0]};
}

const OnnxLowering* find_onnx_lowering(std::string_view op) {
  static const auto kTable = [] {
    std::unordered_map<std::string_view, const OnnxLowering*> table;
    for (const std::span<const OnnxLowering> list :
         {onnx_arithmetic_lowerings(), onnx_activation_lowerings(), onnx_product_lowerings(),
          onnx_normalisation_lowerings(), onnx_reduction_lowerings(), onnx_pooling_lowerings(),
          onnx_view_lowerings(), onnx_indexing_lowerings(), onnx_creation_lowerings(),
          onnx_resize_lowerings(), onnx_quantised_lowerings()})
      for (const OnnxLowering& each : list) table.emplace(each.op, &each);
    return table;
  }();
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kiln
