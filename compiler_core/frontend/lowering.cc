#include "compiler_core/frontend/lowering.h"

#include <algorithm>
#include <array>

#include "compiler_core/frontend/source_line.h"

namespace kiln {
namespace {

// Checks that only constrain the exporter's own tracing.
constexpr std::array<std::string_view, 5> kIgnored = {
    "aten._assert_tensor_metadata.default",      "aten._assert_scalar.default",
    "aten.sym_constrain_range.default",          "aten._assert_async.msg",
    "aten.sym_constrain_range_for_size.default",
};

std::string type_text(DType dtype, const Shape& shape) {
  return std::string(to_string(dtype)) + to_string(shape);
}

// "torch.ops.aten.add.Tensor" is "aten.add.Tensor".
std::string_view short_name(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  return target.starts_with(kPrefix) ? target.substr(kPrefix.size()) : target;
}

class ModelLowering {
 public:
  explicit ModelLowering(const ExportedModel& model) : model_(model) {
    values_.reserve(model.tensors.size());
  }

  Result<ExportedProgram> run() {
    for (const Symbol& symbol : model_.symbols) b_.symbol(symbol.range, symbol.hint);
    for (const InputSpec& spec : model_.inputs) TRY_STATUS(input(spec));
    for (size_t i = 0; i < model_.nodes.size(); ++i) TRY_STATUS(node(model_.nodes[i], i));
    std::vector<NodeId> outputs;
    for (const OutputSpec& spec : model_.outputs) TRY_STATUS(output(spec, outputs));
    if (outputs.empty()) return fail(Code::kUnsupported, "the program has no tensor output");
    TRY(program_.graph, b_.finish(std::move(outputs)));
    return std::move(program_);
  }

 private:
  Result<const DeclaredTensor*> declared(std::string_view name) const {
    const auto found = model_.tensors.find(name);
    if (found == model_.tensors.end())
      return fail(Code::kInvalidArgument,
                  "tensor '" + std::string(name) + "' has no entry in tensor_values");
    if (!found->second.strided)
      return fail(Code::kUnsupported,
                  "tensor '" + std::string(name) + "' is sparse; only dense tensors are covered");
    return &found->second;
  }

  static Result<ExportedInput::Kind> kind_of(const InputSpec& spec) {
    if (spec.kind == "user_input") return ExportedInput::Kind::kUser;
    if (spec.kind == "parameter") return ExportedInput::Kind::kParameter;
    if (spec.kind == "buffer") return ExportedInput::Kind::kBuffer;
    if (spec.kind == "tensor_constant") return ExportedInput::Kind::kConstantTensor;
    return fail(Code::kUnsupported, "an input of kind '" + std::string(spec.kind) +
                                        "' is not covered; pass tensors only");
  }

  Status input(const InputSpec& spec) {
    // A number or None given at export is baked into the nodes; nothing reads it.
    const bool is_number = spec.tensor.empty();
    if (spec.kind == "constant_input" || (spec.kind == "user_input" && is_number)) return {};
    TRY(const ExportedInput::Kind kind, kind_of(spec));
    ExportedInput input;
    input.kind = kind;
    input.name = spec.user_name;
    const auto in_context = [&](const Error& error) {
      return fail(error.within("input '" + input.name + "'"));
    };
    const Result<const DeclaredTensor*> type = declared(spec.tensor);
    if (!type) return in_context(type.error());
    const Result<DType> dtype = to_dtype((*type)->dtype);
    if (!dtype) return in_context(dtype.error());
    input.dtype = *dtype;
    input.shape = (*type)->shape;
    input.strides = (*type)->strides;
    const Result<NodeId> id = input_node(input);
    if (!id) return in_context(id.error());
    if (!values_.try_emplace(spec.tensor, *id).second)
      return fail(Code::kInvalidArgument,
                  "tensor '" + std::string(spec.tensor) + "' is an input twice");
    program_.inputs.push_back(std::move(input));
    return {};
  }

  // The value of the input as the model sees it.
  Result<NodeId> input_node(const ExportedInput& input) {
    for (const std::vector<Dim>* dims : {&input.shape, &input.strides})
      for (const Dim& dim : *dims)
        if (dim.is_constant() && dim.constant() < 0)
          return fail(Code::kInvalidArgument, "a size or stride is negative");
    NodeId id = kInvalidNode;
    if (is_dense(input)) {
      id = b_.input(input.dtype, input.shape);
    } else {
      Dim storage = 1;
      for (size_t i = 0; i < input.shape.size(); ++i)
        storage = storage + (input.shape[i] - Dim(1)) * input.strides[i];
      if (!storage.is_constant())
        return fail(Code::kUnsupported,
                    "a symbolic shape with strides that are not contiguous is not covered; export "
                    "with a contiguous example input");
      id = b_.view(b_.input(input.dtype, {storage}), input.shape, input.strides, 0);
    }
    if (!b_.ok()) return fail(*b_.error());
    return id;
  }

  Status node(const ExportedNode& node, size_t index) {
    const std::string_view name = short_name(node.target);
    if (std::find(kIgnored.begin(), kIgnored.end(), name) != kIgnored.end()) return {};
    if (computes_sizes_only(node)) return {};
    const Lowering* lowering = find_lowering(name);
    if (lowering == nullptr) return refuse(node, name, "is not covered");
    b_.begin_origin(origin_of(node, name));
    Call call(b_, model_, node, values_);
    const Values results = lowering->lower(call);
    if (const Error* error = b_.error()) {
      if (error->code == Code::kUnsupported) return refuse(node, name, "- " + error->message);
      return fail(error->within(place(node, name, index)));
    }
    if (auto status = define(node, results); !status)
      return fail(status.error().within(place(node, name, index)));
    return {};
  }

  // Nodes on symbolic integers: their values stand in sym_int_values already.
  static bool computes_sizes_only(const ExportedNode& node) {
    return !node.outputs.empty() &&
           std::all_of(node.outputs.begin(), node.outputs.end(),
                       [](const Argument& output) { return std::holds_alternative<Dim>(output); });
  }

  static Origin origin_of(const ExportedNode& node, std::string_view name) {
    return {std::string(name.substr(0, 80)), source_place(node.stack_trace),
            module_path(node.module_stack)};
  }

  static std::string place(const ExportedNode& node, std::string_view name, size_t index) {
    const std::string source = source_line(node.stack_trace);
    return "node " + std::to_string(index) + " (" + std::string(name.substr(0, 80)) +
           (source.empty() ? "" : " at " + source) + ")";
  }

  static tl::unexpected<Error> refuse(const ExportedNode& node, std::string_view name,
                                      const std::string& why) {
    const std::string source = source_line(node.stack_trace);
    return fail(Code::kUnsupported,
                std::string(name.substr(0, 80)) + " " + why +
                    (source.empty() ? "" : ", used at " + source) +
                    "; rewrite it with covered ops, or decompose the program before saving it "
                    "(exported_program.run_decompositions())");
  }

  Status define(const ExportedNode& node, const Values& results) {
    std::vector<std::string_view> names;
    for (const Argument& output : node.outputs) {
      if (const auto* tensor = std::get_if<TensorName>(&output)) {
        names.push_back(tensor->name);
      } else if (const auto* list = std::get_if<std::vector<TensorName>>(&output)) {
        for (const TensorName& each : *list) names.push_back(each.name);
      } else {
        return fail(Code::kInvalidArgument, "an output is no tensor");
      }
    }
    if (names.size() > results.size())
      return fail(Code::kInvalidArgument, "has " + std::to_string(names.size()) +
                                              " outputs where the op gives " +
                                              std::to_string(results.size()));
    for (size_t i = 0; i < names.size(); ++i)
      if (!names[i].empty()) TRY_STATUS(define(names[i], results[i]));
    return {};
  }

  Status define(std::string_view name, NodeId id) {
    if (id == kInvalidNode) return {};  // an output nobody may use
    TRY(const DeclaredTensor* type, declared(name));
    TRY(const DType dtype, to_dtype(type->dtype));
    if (b_.dtype(id) != dtype || b_.shape(id) != type->shape)
      return fail(Code::kInvalidArgument, "the archive declares '" + std::string(name) + "' as " +
                                              type_text(dtype, type->shape) +
                                              ", but its operands imply " +
                                              type_text(b_.dtype(id), b_.shape(id)));
    if (!values_.try_emplace(name, id).second)
      return fail(Code::kInvalidArgument,
                  "defines '" + std::string(name) + "', which is defined already");
    return {};
  }

  Status output(const OutputSpec& spec, std::vector<NodeId>& outputs) {
    if (spec.kind != "user_output")
      return fail(Code::kUnsupported, "an output of kind '" + std::string(spec.kind) +
                                          "' is not covered: the program may only return tensors, "
                                          "not change its inputs or buffers");
    if (spec.tensor.empty())
      return fail(Code::kUnsupported, "output " + std::to_string(outputs.size()) +
                                          " is not a tensor; return tensors only");
    const auto found = values_.find(spec.tensor);
    if (found == values_.end())
      return fail(Code::kInvalidArgument, "output " + std::to_string(outputs.size()) +
                                              " is tensor '" + std::string(spec.tensor) +
                                              "', which no input and no node defines");
    outputs.push_back(found->second);
    return {};
  }

  const ExportedModel& model_;
  GraphBuilder b_;
  TensorValues values_;
  ExportedProgram program_;
};

std::unordered_map<std::string_view, const Lowering*> make_table() {
  std::unordered_map<std::string_view, const Lowering*> table;
  for (const std::span<const Lowering> list :
       {arithmetic_lowerings(), activation_lowerings(), view_lowerings(), creation_lowerings(),
        indexing_lowerings(), reduction_lowerings(), normalisation_lowerings(), matmul_lowerings(),
        attention_lowerings()})
    for (const Lowering& lowering : list) table.emplace(lowering.name, &lowering);
  return table;
}

}  // namespace

const Lowering* find_lowering(std::string_view name) {
  static const std::unordered_map<std::string_view, const Lowering*> kTable = make_table();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

Result<ExportedProgram> lower_exported_model(const ExportedModel& model) {
  return ModelLowering(model).run();
}

}  // namespace kiln
