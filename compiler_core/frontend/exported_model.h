// ExportedModel: models/model.json as plain values, checked for form but not yet understood: ATen
// nodes with named arguments, the declared type of every tensor, the signature. Immutable after
// parsing; its string_views live as long as it does.
//
// The schema is torch/_export/serde/schema.py of PyTorch 2.8 and later, major version 8.
#pragma once

#include <compare>
#include <complex>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "compiler_core/base/result.h"
#include "compiler_core/ir/graph.h"

namespace kiln {

inline constexpr int kExportSchemaMajor = 8;

// A ScalarType as the schema numbers it; 0 is UNKNOWN.
struct ScalarTypeCode {
  int64_t code = 0;
};
// kUnsupported, naming the type, when Kiln has none of that kind.
Result<DType> to_dtype(ScalarTypeCode code);
// complex64 and complex128.
bool is_complex(ScalarTypeCode code);
// The type of real numbers, or that of the two parts of complex ones. Errors as to_dtype().
Result<DType> component_type(ScalarTypeCode code);

struct DeclaredTensor {
  ScalarTypeCode dtype;
  Shape shape;
  std::vector<Dim> strides;
  Dim storage_offset;
  bool strided = true;             // not sparse, not opaque
  bool has_computed_size = false;  // a node computes one of its sizes
  std::string refusal;             // why a size is not covered; empty when they all are
  // The same of strides and offset, which matter of inputs only.
  std::string layout_refusal;
};

using DeclaredTensors = std::unordered_map<std::string_view, DeclaredTensor>;

struct TensorName {
  std::string_view name;  // empty for a None among optional tensors
};
// A number that a node computes while the program runs. PyTorch has symbols for the integers among
// them ("u0"); what has such a size is refused, since no input has it.
struct NumberName {
  std::string_view name;
};
struct OtherArgument {
  std::string_view kind;  // "as_device", "as_layout", ...: a form that no lowering reads
};
// An integer, or a list of them, in an expression that Kiln does not cover.
struct UncoveredSize {
  std::string why;
  // The items of a list in which only numbers that nodes compute are not covered; else empty.
  std::vector<std::variant<Dim, NumberName>> items;
};
struct ExportedGraph;
// monostate is None. Sizes and integers are Dims, symbolic or not.
using Argument =
    std::variant<std::monostate, TensorName, std::vector<TensorName>, Dim, std::vector<Dim>, double,
                 std::vector<double>, bool, std::vector<bool>, std::string_view, ScalarTypeCode,
                 const ExportedGraph*, std::complex<double>, NumberName, UncoveredSize,
                 OtherArgument>;

struct NamedArgument {
  std::string_view name;
  Argument value;
};

// Appends the names of the tensors that `argument` is or lists. False: it is neither.
inline bool add_tensor_names(const Argument& argument, std::vector<std::string_view>& names) {
  if (const auto* tensor = std::get_if<TensorName>(&argument)) {
    names.push_back(tensor->name);
    return true;
  }
  const auto* list = std::get_if<std::vector<TensorName>>(&argument);
  if (list == nullptr) return false;
  for (const TensorName& each : *list) names.push_back(each.name);
  return true;
}

struct ExportedNode {
  std::string_view target;  // "torch.ops.aten.linear.default"
  std::vector<NamedArgument> inputs;
  std::vector<Argument> outputs;
  std::string_view stack_trace;
  std::string_view module_stack;  // metadata's nn_module_stack
  // For an op under higher_order.out_dtype: the operands promote to it first, the result is cast.
  std::optional<ScalarTypeCode> computes_in;
};

// out_dtype(op, dtype, operands...) becomes the op itself, with the names of its arguments, which the
// archive leaves out. An op that PyTorch does not allow there stays as it is. kInvalidArgument: it is
// malformed.
Status unwrap_out_dtype(ExportedNode& node);

// The tensors among a node's arguments from number `from` on; options may stand between them.
inline std::vector<std::string_view> tensor_operands(const ExportedNode& node, size_t from = 0) {
  std::vector<std::string_view> names;
  for (size_t i = from; i < node.inputs.size(); ++i) add_tensor_names(node.inputs[i].value, names);
  return names;
}

// The body of a higher-order op: tensors of its own, bound to the op's operands by position.
struct ExportedGraph {
  std::vector<ExportedNode> nodes;
  DeclaredTensors tensors;
  std::vector<Argument> inputs, outputs;
};

struct InputSpec {
  std::string_view kind;       // "user_input", "parameter", "buffer", "tensor_constant", ...
  std::string_view tensor;     // the graph's name for it; empty when it is not a tensor
  std::string_view user_name;  // "net.0.weight"
};
struct OutputSpec {
  std::string_view kind;    // "user_output", "buffer_mutation", ...
  std::string_view tensor;  // empty when it is not a tensor
  Argument number;          // what it is when it is a number or a size
  std::string_view target;  // "bn.running_mean": what a mutation or a gradient belongs to
  bool is_fixed = false;    // None or a text, which no program computes
};

// The version of the PyTorch that wrote a model; 0.0 where it does not say.
struct TorchVersion {
  int major = 0, minor = 0;
  auto operator<=>(const TorchVersion&) const = default;  // NOLINT(modernize-use-nullptr)
};
// "2.11.0+cu130" is 2.11; what is of another form is 0.0.
TorchVersion parse_torch_version(std::string_view text);

struct ExportedModel {
  TorchVersion torch_version;
  std::vector<Symbol> symbols;
  std::vector<std::string> symbol_names;  // as the archive has them: "s77"
  std::vector<ExportedNode> nodes;
  DeclaredTensors tensors;
  std::vector<std::unique_ptr<const ExportedGraph>> subgraphs;  // what the arguments point to
  std::vector<InputSpec> inputs;
  std::vector<OutputSpec> outputs;
  std::shared_ptr<const void> text;  // what the string_views look into
};

// `json` needs `json.capacity() >= json.size() + json_padding()`, or is copied. kInvalidArgument
// says what is wrong and where; kUnsupported for a form that Kiln does not read.
Result<ExportedModel> parse_exported_model(const std::string& json);
size_t json_padding();

// Parses a size as torch.export writes it, sympy's srepr: "Mul(Integer(2), Symbol('s77',
// integer=True))". Sums, products and small powers of integers and symbols; anything else
// (FloorDiv, Mod, Max) is kUnsupported, malformed text kInvalidArgument. `resolve` gives the symbol
// of a name.
Result<Dim> parse_symbolic_size(std::string_view expression,
                                const std::function<Result<Dim>(std::string_view)>& resolve);

}  // namespace kiln
