#include <algorithm>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/refusals.h"

namespace kiln {
namespace {

std::string quoted(std::string_view name) {
  return "'" + std::string(name) + "'";
}

}  // namespace

NodeId Call::invalid(std::string why) {
  return b.fail_with({Code::kInvalidArgument, std::move(why), 0});
}

NodeId Call::unsupported(std::string why) {
  return b.fail_with({Code::kUnsupported, std::move(why), 0});
}

void Call::wrong(std::string_view name, std::string_view expected) {
  const Argument* found = find(name);
  const auto* size = found != nullptr ? std::get_if<UncoveredSize>(found) : nullptr;
  if (size != nullptr)
    unsupported(size->why);
  else if (found != nullptr && std::holds_alternative<NumberName>(*found))
    unsupported("argument " + quoted(name) +
                " is a number that the program computes while it runs: keep it a tensor");
  else if (const auto* other = found != nullptr ? std::get_if<OtherArgument>(found) : nullptr)
    unsupported("argument " + quoted(name) + " of the form " + std::string(other->kind) +
                " is not covered");
  else
    invalid("argument " + quoted(name) + " is missing or not " + std::string(expected));
}

const Argument* Call::find(std::string_view name) const {
  for (const NamedArgument& argument : node_.inputs)
    if (argument.name == name) return &argument.value;
  // The in-place forms of dropout call what they change `self`, and have no other `input`.
  if (name == "input" && functional_op(short_name(node_.target))) return find("self");
  return nullptr;
}

template <class T>
const T* Call::require(std::string_view name, std::string_view expected) {
  const Argument* argument = find(name);
  const T* value = argument != nullptr ? std::get_if<T>(argument) : nullptr;
  if (value == nullptr) wrong(name, expected);
  return value;
}

bool Call::has(std::string_view name) const {
  const Argument* argument = find(name);
  if (argument == nullptr || std::holds_alternative<std::monostate>(*argument)) return false;
  const auto* tensor = std::get_if<TensorName>(argument);
  return tensor == nullptr || !tensor->name.empty();
}

bool Call::is_list(std::string_view name) const {
  const Argument* argument = find(name);
  return argument != nullptr && std::holds_alternative<std::vector<Dim>>(*argument);
}

bool Call::is_complex_tensor(std::string_view tensor) const {
  const auto found = declared_.find(tensor);
  return found != declared_.end() && kiln::is_complex(found->second.dtype);
}

bool Call::is_complex(std::string_view name) const {
  const auto* tensor = std::get_if<TensorName>(find(name));
  return (tensor != nullptr && is_complex_tensor(tensor->name)) || complex_number(name).has_value();
}

std::optional<std::complex<double>> Call::complex_number(std::string_view name) const {
  const Argument* argument = find(name);
  const auto* number = argument == nullptr ? nullptr : std::get_if<std::complex<double>>(argument);
  return number == nullptr ? std::nullopt : std::optional(*number);
}

bool Call::has_complex() const {
  std::vector<std::string_view> names = tensor_operands(node_);
  for (const Argument& output : node_.outputs) add_tensor_names(output, names);
  return std::any_of(names.begin(), names.end(),
                     [this](std::string_view name) { return is_complex_tensor(name); });
}

bool Call::lies_row_by_row(std::string_view name) const {
  const auto* tensor = std::get_if<TensorName>(find(name));
  const auto found = tensor == nullptr ? declared_.end() : declared_.find(tensor->name);
  if (found == declared_.end()) return false;
  const DeclaredTensor& declared = found->second;
  return declared.layout_refusal.empty() && declared.storage_offset.is(0) &&
         declared.strides == contiguous_strides(declared.shape);
}

std::optional<DType> Call::complex_dtype(std::string_view name) const {
  const auto* code = std::get_if<ScalarTypeCode>(find(name));
  if (code == nullptr || !kiln::is_complex(*code)) return std::nullopt;
  return *component_type(*code);
}

void Call::compute_in_declared_type() {
  std::vector<std::string_view> names;
  for (const Argument& output : node_.outputs) add_tensor_names(output, names);
  const auto found = names.empty() ? declared_.end() : declared_.find(names[0]);
  if (found == declared_.end()) return;
  if (const Result<DType> type = to_dtype(found->second.dtype); type && is_float(*type))
    cast_to_ = *type;
}

NodeId Call::as_read(std::string_view tensor, NodeId value) {
  if (promote_to_ && ok()) return b.cast(value, promote_types(b.dtype(value), *promote_to_));
  if (cast_to_ && ok() && is_float(b.dtype(value)) && b.dtype(value) != DType::kF64)
    return b.cast(value, *cast_to_);
  if (part_ == Part::kAll || !ok()) return value;
  if (is_complex_tensor(tensor)) {
    Shape shape = b.shape(value);
    const int last = static_cast<int>(shape.size()) - 1;
    shape.pop_back();
    return b.reshape(b.slice(value, last, part_ == Part::kReal ? 0 : 1, 1), shape);
  }
  if (part_ == Part::kReal || !is_float(b.dtype(value))) return value;
  return b.broadcast(b.constant(b.dtype(value), 0), b.shape(value));
}

NodeId Call::lookup(TensorName name) {
  if (!substituted_.tensor.empty() && name.name == substituted_.tensor)
    return as_read(name.name, substituted_.value);
  if (!values_.contains(name.name))
    return invalid("uses tensor " + quoted(name.name) +
                   ", which no input and no node before it defines");
  return as_read(name.name, values_.find(name.name));
}

NodeId Call::tensor(std::string_view name) {
  const auto* value = require<TensorName>(name, "a tensor");
  return value != nullptr ? lookup(*value) : kInvalidNode;
}

NodeId Call::optional_tensor(std::string_view name) {
  return has(name) ? tensor(name) : kInvalidNode;
}

std::vector<NodeId> Call::tensors(std::string_view name) {
  std::vector<NodeId> ids = optional_tensors(name);
  if (std::find(ids.begin(), ids.end(), kInvalidNode) != ids.end()) wrong(name, "all tensors");
  return ids;
}

std::vector<NodeId> Call::optional_tensors(std::string_view name) {
  std::vector<NodeId> ids;
  if (const auto* list = require<std::vector<TensorName>>(name, "a list of tensors"))
    for (const TensorName& each : *list)
      ids.push_back(each.name.empty() ? kInvalidNode : lookup(each));
  return ids;
}

// A Python float takes the precision of what it is used with.
NodeId Call::as_precise_as_the_result(NodeId number) {
  std::vector<std::string_view> names;
  for (const Argument& output : node_.outputs) add_tensor_names(output, names);
  const auto found = names.empty() ? declared_.end() : declared_.find(names[0]);
  if (found == declared_.end() || !is_float(b.dtype(number))) return number;
  const Result<DType> type = to_dtype(found->second.dtype);
  return type && is_float(*type) ? b.cast(number, compute_type(*type)) : number;
}

Operand Call::operand(std::string_view name) {
  const Argument* argument = find(name);
  if (argument != nullptr && std::holds_alternative<TensorName>(*argument))
    return {tensor(name), {}};
  const auto* number_name = argument == nullptr ? nullptr : std::get_if<NumberName>(argument);
  if (number_name != nullptr)
    if (const NodeId computed = values_.find_number(number_name->name); computed != kInvalidNode)
      return {as_precise_as_the_result(computed), {}};
  return {kInvalidNode, number(name)};
}

Number Call::number(std::string_view name) {
  const Argument* argument = find(name);
  if (argument != nullptr) {
    if (const auto* flag = std::get_if<bool>(argument))
      return {Number::Kind::kBool, *flag ? 1.0 : 0.0, *flag ? 1 : 0};
    if (const auto* integer = std::get_if<Dim>(argument))
      return {Number::Kind::kInt,
              integer->is_constant() ? static_cast<double>(integer->constant()) : 0, *integer};
    if (const auto* real = std::get_if<double>(argument)) return {Number::Kind::kFloat, *real, 0};
  }
  wrong(name, "a number");
  return {};
}

double Call::real(std::string_view name, std::optional<double> fallback) {
  if (fallback && !has(name)) return *fallback;
  const Number value = number(name);
  if (!value.integer.is_constant()) unsupported("argument " + quoted(name) + " is symbolic");
  return value.value;
}

Dim Call::size(std::string_view name, std::optional<Dim> fallback) {
  if (fallback && !has(name)) return *fallback;
  const auto* value = require<Dim>(name, "an integer");
  return value != nullptr ? *value : Dim(0);
}

std::vector<Dim> Call::sizes(std::string_view name) {
  const auto* value = require<std::vector<Dim>>(name, "a list of integers");
  return value != nullptr ? *value : std::vector<Dim>();
}

int64_t Call::integer(std::string_view name, std::optional<int64_t> fallback) {
  if (fallback && !has(name)) return *fallback;
  const Dim value = size(name);
  if (!value.is_constant()) {
    unsupported("argument " + quoted(name) + " is symbolic");
    return 0;
  }
  return value.constant();
}

bool Call::flag(std::string_view name, bool fallback) {
  if (!has(name)) return fallback;
  const auto* value = require<bool>(name, "a bool");
  return value != nullptr ? *value : fallback;
}

std::vector<bool> Call::flags(std::string_view name) {
  if (!has(name)) return {};
  const auto* value = require<std::vector<bool>>(name, "a list of bools");
  return value != nullptr ? *value : std::vector<bool>();
}

std::vector<double> Call::reals(std::string_view name) {
  if (!has(name)) return {};
  std::vector<double> result;
  if (const auto* integers = std::get_if<std::vector<Dim>>(find(name))) {
    for (const Dim& each : *integers)
      result.push_back(each.is_constant() ? static_cast<double>(each.constant()) : 0);
    return result;
  }
  const auto* value = require<std::vector<double>>(name, "a list of numbers");
  return value != nullptr ? *value : result;
}

NodeId Call::converted(NodeId x, DType type) {
  constexpr TorchVersion kSaturates{2, 13};
  constexpr double kGreatest = 448;
  if (!ok() || type != DType::kF8E4M3 || b.dtype(x) == type || model_.torch_version < kSaturates)
    return b.cast(x, type);
  const bool holds_it = is_16_bit_float(b.dtype(x)) || size_of(b.dtype(x)) >= 4;
  const NodeId wide = is_float(b.dtype(x)) && holds_it ? x : b.cast(x, DType::kF32);
  const NodeId least = b.binary(Op::kMax, wide, constant_like(b, wide, -kGreatest));
  return b.cast(b.binary(Op::kMin, least, constant_like(b, wide, kGreatest)), type);
}

NodeId Call::random_words(Shape shape) {
  if (!ok()) return kInvalidNode;
  if (random_.seed == kInvalidNode) random_.seed = b.input(DType::kI64, {});
  return b.philox(random_.seed, std::move(shape), random_.next_stream++);
}

void Call::overwrite(std::string_view name, NodeId value) {
  if (const auto* tensor = require<TensorName>(name, "a tensor"))
    overwritten_.push_back({tensor->name, value});
}

std::string_view Call::first_tensor() const {
  for (const NamedArgument& argument : node_.inputs)
    if (const auto* tensor = std::get_if<TensorName>(&argument.value)) return tensor->name;
  return {};
}

std::string_view Call::text(std::string_view name, std::string_view fallback) {
  if (!has(name)) return fallback;
  const auto* value = require<std::string_view>(name, "a string");
  return value != nullptr ? *value : fallback;
}

DType Call::dtype(std::string_view name, DType fallback) {
  if (!has(name)) return fallback;
  const auto* code = require<ScalarTypeCode>(name, "a dtype");
  if (code == nullptr) return fallback;
  const Result<DType> type = to_dtype(*code);
  if (!type) b.fail_with(type.error());
  return type ? *type : fallback;
}

int Call::axis(std::string_view name, size_t rank, std::optional<int64_t> fallback) {
  const int64_t given = integer(name, fallback);
  const int64_t count = std::max<int64_t>(static_cast<int64_t>(rank), 1);
  if (given < -count || given >= count) {
    invalid("argument " + quoted(name) + " is " + std::to_string(given) + ", no axis of a tensor " +
            "of rank " + std::to_string(rank));
    return 0;
  }
  return static_cast<int>(given < 0 ? given + count : given);
}

std::vector<int> Call::axes(std::string_view name, size_t rank) {
  std::vector<bool> chosen(std::max<size_t>(rank, 1), false);
  bool any = false;
  const auto choose = [&](const Dim& dim) {
    const int64_t count = static_cast<int64_t>(chosen.size());
    const int64_t given = dim.is_constant() ? dim.constant() : count;
    if (given < -count || given >= count) {
      invalid("argument " + quoted(name) + " has no axis of a tensor of rank " +
              std::to_string(rank));
      return;
    }
    chosen[static_cast<size_t>(given < 0 ? given + count : given)] = true;
    any = true;
  };
  if (has(name)) {
    // A single axis stands for a list of one.
    if (std::holds_alternative<Dim>(*find(name)))
      choose(size(name));
    else
      for (const Dim& dim : sizes(name)) choose(dim);
  }
  std::vector<int> result;
  for (size_t i = 0; i < rank; ++i)
    if (!any || chosen[i]) result.push_back(static_cast<int>(i));
  return result;
}

std::vector<int> Call::listed_axes(std::string_view name, size_t rank) {
  std::vector<int> result;
  const auto count = static_cast<int64_t>(rank);
  for (const Dim& dim : sizes(name)) {
    const int64_t given = dim.is_constant() ? dim.constant() : count;
    const int axis = static_cast<int>(given < 0 ? given + count : given);
    if (given < -count || given >= count || std::ranges::count(result, axis) > 0) {
      invalid("names an axis twice, or one that is not there");
      return {};
    }
    result.push_back(axis);
  }
  return result;
}

size_t Call::output_count() const {
  if (node_.outputs.size() == 1)
    if (const auto* list = std::get_if<std::vector<TensorName>>(&node_.outputs[0]))
      return list->size();
  return node_.outputs.size();
}

}  // namespace kiln
