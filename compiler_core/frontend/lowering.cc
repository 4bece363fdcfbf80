// From the exported model to the core graph: its inputs, its nodes one after the other, its
// outputs.
#include "compiler_core/frontend/lowering.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "compiler_core/frontend/complex_values.h"
#include "compiler_core/frontend/declarations.h"
#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/known_numbers.h"
#include "compiler_core/frontend/numbers.h"
#include "compiler_core/frontend/refusals.h"
#include "compiler_core/frontend/regions.h"

namespace kiln {
namespace {

constexpr const char* kOfComplex =
    "of complex numbers is not covered: take it of their real and imaginary parts";
constexpr size_t kMostBodyNodes = 200'000;  // of all bodies, as often as they are run

// Names of one graph: the program's, or a body's of a higher-order op.
struct Scope {
  Declarations declarations;
  NamedValues values;
  bool autocast = false;          // the operands' dtypes are not those that the ops compute in
  KnownNumbers* known = nullptr;  // of the program; none of a body's
};

class ModelLowering {
 public:
  explicit ModelLowering(const ExportedModel& model, const ConstantElements& elements = {})
      : model_(model), elements_(elements), known_([this](NodeId id) { return constant(id); }) {}

  Result<ExportedProgram> run() {
    TRY_STATUS(refuse_uncovered_ops(model_));
    Scope scope = begin();
    for (const InputSpec& spec : model_.inputs) TRY_STATUS(input(scope, spec));
    TRY_STATUS(nodes(scope, model_.nodes));
    std::vector<NodeId> outputs;
    TRY_STATUS(user_outputs(scope, outputs));
    TRY_STATUS(mutations(scope, outputs));
    if (outputs.empty()) return fail(Code::kUnsupported, "the program has no tensor output");
    if (random_.seed != kInvalidNode)
      program_.inputs.push_back(
          {ExportedInput::Kind::kSeed, "seed", DType::kI64, {}, {}, {}, false, 0, {}});
    TRY(program_.graph, b_.finish(std::move(outputs)));
    return std::move(program_);
  }

  // Lowers every node by itself: a node that fails costs its own values only, which are stood in
  // for by inputs of the types that the archive declares.
  Result<std::vector<RefusedNode>> refused() {
    Scope scope = begin();
    // A partition of the graph may have any of its tensors for inputs.
    is_bound_.assign(model_.symbols.size(), true);
    for (const InputSpec& spec : model_.inputs)
      if (!input(scope, spec)) stand_in(scope, spec.tensor);
    std::vector<RefusedNode> refused;
    for (size_t i = 0; i < model_.nodes.size(); ++i) {
      const ExportedNode& each = model_.nodes[i];
      const Status done = node(scope, each, i);
      if (done) continue;
      refused.push_back(
          {static_cast<int>(i), std::string(short_name(each.target)), done.error().message});
      b_.forget_error();
      for (const std::string_view name : tensors_of(each.outputs)) stand_in(scope, name);
    }
    return refused;
  }

 private:
  Scope begin() {
    for (const Symbol& symbol : model_.symbols) b_.symbol(symbol.range, symbol.hint);
    is_bound_.assign(model_.symbols.size(), false);
    Scope scope = scope_of(model_.tensors);
    scope.known = &known_;
    return scope;
  }

  // A tensor of a type that Kiln lacks stays undefined: its readers are refused too.
  void stand_in(Scope& scope, std::string_view name) {
    b_.forget_error();
    const Result<const DeclaredTensor*> type = scope.declarations.find(name);
    if (name.empty() || scope.values.contains(name) || !type) return;
    if (const Result<CoreType> core = core_type(**type); core)
      if (const NodeId id = b_.input(core->dtype, core->shape); b_.ok())
        scope.values.define(name, id);
    b_.forget_error();
  }

  // The names of tensors among these, in order; empty where there is none.
  static std::vector<std::string_view> tensors_of(std::span<const Argument> arguments) {
    std::vector<std::string_view> names;
    for (const Argument& argument : arguments)
      if (!add_tensor_names(argument, names)) names.emplace_back();
    return names;
  }

  Scope scope_of(const DeclaredTensors& tensors) {
    const auto again = [this, &tensors](const ExportedNode& node, NodeId self) {
      return replay(tensors, node, self);
    };
    return {Declarations(tensors), NamedValues(b_, again), false, nullptr};
  }

  // A view op again, of another value; names do not matter but for the tensor it looks at.
  Values replay(const DeclaredTensors& tensors, const ExportedNode& node, NodeId self) {
    NamedValues numbers(b_, {});
    if (const auto taken = view_numbers_.find(&node); taken != view_numbers_.end())
      for (const auto& [name, value] : taken->second) numbers.define_number(name, value);
    Call call(b_, model_, tensors, node, numbers, random_);
    call.substitute(call.first_tensor(), self);
    return lowered(call, short_name(node.target)).value_or(Values());
  }

  // Nothing where the op is not covered.
  static std::optional<Values> lowered(Call& call, std::string_view name) {
    const Lowering* lowering = find_lowering(name);
    if (call.has_complex()) return lower_complex(call, name, lowering);
    return lowering != nullptr ? std::optional(lowering->lower(call)) : std::nullopt;
  }

  static Result<ExportedInput::Kind> kind_of(const InputSpec& spec) {
    if (spec.kind == "user_input") return ExportedInput::Kind::kUser;
    if (spec.kind == "parameter") return ExportedInput::Kind::kParameter;
    if (spec.kind == "buffer") return ExportedInput::Kind::kBuffer;
    if (spec.kind == "tensor_constant") return ExportedInput::Kind::kConstantTensor;
    return fail(Code::kUnsupported, "an input of kind '" + std::string(spec.kind) +
                                        "' is not covered; pass tensors only");
  }

  Status input(Scope& scope, const InputSpec& spec) {
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
    const Result<const DeclaredTensor*> type = scope.declarations.find(spec.tensor);
    if (!type) return in_context(type.error());
    if (!(*type)->layout_refusal.empty())
      return in_context({Code::kUnsupported, (*type)->layout_refusal, 0});
    const Result<CoreType> core = core_type(**type);
    if (!core) return in_context(core.error());
    input.dtype = core->dtype;
    input.shape = core->shape;
    input.strides = (*type)->strides;
    if (is_complex((*type)->dtype)) {
      for (Dim& stride : input.strides) stride = stride * Dim(2);
      input.strides.emplace_back(1);
    }
    const Result<NodeId> id = input_node(input);
    if (!id) return in_context(id.error());
    if (!scope.values.define(spec.tensor, *id))
      return fail(Code::kInvalidArgument,
                  "tensor '" + std::string(spec.tensor) + "' is an input twice");
    for (const Dim& dim : input.shape)
      for (const SymbolId symbol : dim.symbols()) is_bound_[static_cast<size_t>(symbol)] = true;
    if (kind == ExportedInput::Kind::kConstantTensor)
      constants_.emplace(is_dense(input) ? *id : b_.node(*id).operands[0],
                         Constant{program_.inputs.size(), spec.tensor});
    program_.inputs.push_back(std::move(input));
    return {};
  }

  std::optional<Tensor> constant(NodeId input) {
    const auto found = constants_.find(input);
    if (found == constants_.end() || !elements_) return std::nullopt;
    found->second.is_read = true;
    return elements_(program_.inputs[found->second.place]);
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

  Status nodes(Scope& scope, const std::vector<ExportedNode>& nodes) {
    for (size_t i = 0; i < nodes.size(); ++i) TRY_STATUS(node(scope, nodes[i], i));
    return {};
  }

  Status node(Scope& scope, const ExportedNode& exported, size_t index) {
    const std::string_view name = short_name(exported.target);
    if (is_ignored_op(name)) return {};
    const ExportedNode& node = scope.known != nullptr ? scope.known->resolved(exported) : exported;
    if (computes_sizes_only(node) && !(is_number_op(name) && gives_number(node)))
      return number(scope, node);
    b_.begin_origin(origin_of(node, name));
    const Status done = is_region(name) ? region(scope, node) : tensor_op(scope, node, name);
    if (done) return {};
    if (done.error().code == Code::kUnsupported)
      return fail(refusal_at(node, name, done.error().message));
    return fail(done.error().within(place(node, name, index)));
  }

  // A number that is not covered is missed where it is used.
  Status number(Scope& scope, const ExportedNode& node) {
    const auto* to = node.outputs.size() == 1 ? std::get_if<NumberName>(&node.outputs[0]) : nullptr;
    const bool bound = std::ranges::all_of(node.inputs, [this](const NamedArgument& input) {
      const auto* size = std::get_if<Dim>(&input.value);
      return size == nullptr || is_bound(*size);
    });
    if (to == nullptr || !bound) return {};
    const NodeId value = number_of(b_, scope.values, node);
    if (value != kInvalidNode) define_number(scope, to->name, value);
    return b_.ok() ? Status{} : Status(fail(*b_.error()));
  }

  void define_number(Scope& scope, std::string_view name, NodeId value) {
    scope.values.define_number(name, value);
    if (scope.known != nullptr) scope.known->define(name, b_, value);
  }

  bool is_bound(const Dim& size) const {
    return std::ranges::all_of(
        size.symbols(), [this](SymbolId symbol) { return is_bound_[static_cast<size_t>(symbol)]; });
  }

  Status tensor_op(Scope& scope, const ExportedNode& node, std::string_view name) {
    const std::optional<std::string> functional = functional_op(name);
    const bool in_place_only = find_lowering(name) == nullptr && functional.has_value();
    Call call(b_, model_, scope.declarations.tensors(), node, scope.values, random_);
    if (scope.autocast && is_autocast_op(name)) call.compute_in_declared_type();
    std::optional<DType> out_dtype;
    if (node.computes_in) {
      TRY(out_dtype, to_dtype(*node.computes_in));
      call.promote_to(*out_dtype);
    }
    std::optional<Values> lowering = lowered(call, in_place_only ? *functional : name);
    if (!lowering) return fail(Code::kUnsupported, call.has_complex() ? kOfComplex : "");
    Values results = *std::move(lowering);
    if (out_dtype && b_.ok())
      for (NodeId& each : results) each = b_.cast(each, *out_dtype);
    if (functional && b_.ok()) TRY_STATUS(change_in_place(scope, call.first_tensor(), results));
    if (!b_.ok()) return fail(*b_.error());
    for (const Call::Overwritten& each : call.overwritten())
      overwrite(scope, each.tensor, each.value);
    const bool shares = functional || is_view_op(name);
    if (shares && !functional) keep_numbers(scope, node);
    return define_all(scope, node, results, shares ? call.first_tensor() : std::string_view(),
                      functional ? nullptr : &node);
  }

  // Those that the view op takes, for when it is replayed.
  void keep_numbers(const Scope& scope, const ExportedNode& node) {
    std::vector<std::pair<std::string_view, NodeId>> taken;
    for (const NamedArgument& input : node.inputs)
      if (const auto* number = std::get_if<NumberName>(&input.value))
        taken.emplace_back(number->name, scope.values.find_number(number->name));
    if (!taken.empty()) view_numbers_.insert_or_assign(&node, std::move(taken));
  }

  // Assigns the functional op's result to the tensor that an in-place op changes, in that tensor's
  // dtype. kInvalidArgument: the result has another shape.
  Status change_in_place(Scope& scope, std::string_view tensor, Values& results) {
    if (results.empty() || !scope.values.contains(tensor))
      return fail(Code::kInvalidArgument, "changes no tensor");
    const NodeId before = scope.values.find(tensor);
    if (b_.shape(results[0]) != b_.shape(before))
      return fail(Code::kInvalidArgument, "changes " + to_string(b_.shape(before)) +
                                              " in place to " + to_string(b_.shape(results[0])));
    results[0] = b_.cast(results[0], b_.dtype(before));
    if (results[0] == before) return {};
    overwrite(scope, tensor, results[0]);
    return b_.ok() ? Status{} : Status(fail(*b_.error()));
  }

  void overwrite(Scope& scope, std::string_view tensor, NodeId value) {
    scope.values.overwrite(tensor, value);
    const std::string_view root = scope.values.root_of(tensor);
    if (std::find(changed_.begin(), changed_.end(), root) == changed_.end())
      changed_.push_back(root);
  }

  // A higher-order op whose bodies stand in the archive.
  Status region(Scope& scope, const ExportedNode& node) {
    const size_t changed_before = changed_.size();
    const RegionContext context{
        b_, [&](std::string_view name) { return scope.values.find(name); },
        [&](const ExportedGraph& graph, const Values& operands, bool autocast) {
          return body(graph, operands, autocast || scope.autocast);
        }};
    TRY(const Values results, lower_region(context, node));
    if (changed_.size() != changed_before)
      return fail(Code::kUnsupported, "changes a tensor in place inside its body");
    return define_all(scope, node, results, {}, nullptr);
  }

  Result<Values> body(const ExportedGraph& graph, const Values& operands, bool autocast) {
    if (graph.inputs.size() != operands.size())
      return fail(Code::kUnsupported, "with operands that are no tensors is not covered");
    body_nodes_ += graph.nodes.size();
    if (body_nodes_ > kMostBodyNodes)
      return fail(Code::kUnsupported,
                  "makes the program too long: run its loops in pieces, each a "
                  "program of its own");
    Scope scope = scope_of(graph.tensors);
    scope.autocast = autocast;
    for (size_t i = 0; i < operands.size(); ++i) {
      const auto* name = std::get_if<TensorName>(&graph.inputs[i]);
      if (name == nullptr) return fail(Code::kInvalidArgument, "has an operand that is no tensor");
      if (!scope.values.define(name->name, operands[i]))
        return fail(Code::kInvalidArgument, "binds a name of its body twice");
    }
    TRY_STATUS(nodes(scope, graph.nodes));
    Values results;
    for (const Argument& output : graph.outputs) {
      const auto* name = std::get_if<TensorName>(&output);
      const bool none = std::holds_alternative<std::monostate>(output);
      if (name == nullptr && !none)
        return fail(Code::kUnsupported, "with an output that is no tensor is not covered");
      if (name != nullptr && !scope.values.contains(name->name))
        return fail(Code::kInvalidArgument, "has an output that its body does not define");
      results.push_back(none ? kInvalidNode : scope.values.find(name->name));
    }
    return results;
  }

  // Nodes on symbolic integers, whose values stand in sym_int_values already, and on other numbers.
  static bool computes_sizes_only(const ExportedNode& node) {
    return !node.outputs.empty() &&
           std::all_of(node.outputs.begin(), node.outputs.end(), [](const Argument& output) {
             return std::holds_alternative<Dim>(output) ||
                    std::holds_alternative<NumberName>(output) ||
                    std::holds_alternative<UncoveredSize>(output) ||
                    std::holds_alternative<OtherArgument>(output);
           });
  }

  // Not so where the bounds that the model gives leave one value, which stands in the nodes.
  static bool gives_number(const ExportedNode& node) {
    return std::ranges::any_of(node.outputs, [](const Argument& output) {
      return std::holds_alternative<NumberName>(output);
    });
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

  Status define_all(Scope& scope, const ExportedNode& node, const Values& results,
                    std::string_view parent, const ExportedNode* view) {
    std::vector<std::string_view> names;
    for (const Argument& output : node.outputs) {
      if (add_tensor_names(output, names)) continue;
      if (const auto* number = std::get_if<NumberName>(&output); number && !results.empty()) {
        define_number(scope, number->name, results[0]);
        return {};
      }
      if (!std::holds_alternative<std::monostate>(output))
        return fail(Code::kInvalidArgument, "an output is no tensor");
      names.emplace_back();
    }
    if (names.size() > results.size())
      return fail(Code::kInvalidArgument, "has " + std::to_string(names.size()) +
                                              " outputs where the op gives " +
                                              std::to_string(results.size()));
    for (size_t i = 0; i < names.size(); ++i) {
      // An output that nobody may use has no value.
      if (names[i].empty() || results[i] == kInvalidNode) continue;
      TRY(const NodeId id, scope.declarations.as_declared(b_, node, i, names[i], results[i]));
      TRY_STATUS(symbols_are_bound(names[i], id));
      const bool is_new = parent.empty() ? scope.values.define(names[i], id)
                                         : scope.values.define_alias(names[i], id, parent, view, i);
      if (!is_new)
        return fail(Code::kInvalidArgument,
                    "defines '" + std::string(names[i]) + "', which is defined already");
    }
    return {};
  }

  Status symbols_are_bound(std::string_view name, NodeId id) const {
    for (const Dim& dim : b_.shape(id))
      for (const SymbolId symbol : dim.symbols())
        if (!is_bound_[static_cast<size_t>(symbol)])
          return fail(Code::kInvalidArgument,
                      "'" + std::string(name) + "' has the size '" +
                          model_.symbol_names[static_cast<size_t>(symbol)] +
                          "', which is a size of no input tensor, so that no call says what it "
                          "is; make it a constant, or a size of an input");
    return {};
  }

  static bool is_mutation(const OutputSpec& spec) { return spec.kind.ends_with("_mutation"); }

  // The values that the model returns; a loss and gradients are returned like anything else.
  Status user_outputs(Scope& scope, std::vector<NodeId>& outputs) {
    for (const OutputSpec& spec : model_.outputs) {
      if (is_mutation(spec) || spec.is_fixed) continue;
      const bool returned = spec.kind == "user_output" || spec.kind == "loss_output" ||
                            spec.kind.starts_with("gradient_to_");
      if (!returned)
        return fail(Code::kUnsupported, "an output of kind '" + std::string(spec.kind) +
                                            "' is not covered: a program returns tensors");
      TRY_STATUS(output(scope, spec, outputs));
      program_.outputs.push_back({ExportedOutput::Kind::kUser, std::string(spec.target)});
    }
    return {};
  }

  // A compiled program changes no input: what the model would have made of one is a further output.
  Status mutations(Scope& scope, std::vector<NodeId>& outputs) {
    for (const auto& [id, each] : constants_)
      if (each.is_read && std::ranges::find(changed_, each.tensor) != changed_.end())
        return fail(Code::kUnsupported,
                    "the constant '" + program_.inputs[each.place].name +
                        "' is changed in place, and its elements are sizes or bounds; copy it "
                        "before it is changed");
    for (const OutputSpec& spec : model_.outputs) {
      if (!is_mutation(spec)) continue;
      TRY_STATUS(output(scope, spec, outputs));
      program_.outputs.push_back({ExportedOutput::Kind::kMutation, std::string(spec.target)});
    }
    for (const InputSpec& spec : model_.inputs) {
      if (std::find(changed_.begin(), changed_.end(), spec.tensor) == changed_.end()) continue;
      outputs.push_back(scope.values.find(spec.tensor));
      program_.outputs.push_back({ExportedOutput::Kind::kMutation, std::string(spec.user_name)});
    }
    return {};
  }

  // A number or size that the model returns, as a scalar: i64, f64 or bool, as Python has it.
  Result<NodeId> number_output(const Scope& scope, const Argument& number) {
    if (const auto* flag = std::get_if<bool>(&number))
      return b_.constant_int(DType::kBool, *flag ? 1 : 0);
    if (const auto* real = std::get_if<double>(&number)) return b_.constant(DType::kF64, *real);
    if (const auto* uncovered = std::get_if<UncoveredSize>(&number))
      return fail(Code::kUnsupported, uncovered->why);
    if (const auto* name = std::get_if<NumberName>(&number)) {
      const NodeId computed = scope.values.find_number(name->name);
      if (computed == kInvalidNode)
        return fail(Code::kUnsupported, "it is arithmetic on sizes that is not covered");
      const DType type = b_.dtype(computed);
      if (type == DType::kBool) return computed;
      return b_.cast(computed, is_float(type) ? DType::kF64 : DType::kI64);
    }
    const auto* size = std::get_if<Dim>(&number);
    if (size == nullptr)
      return fail(Code::kUnsupported, "it is neither a tensor nor a number; return these only");
    if (!is_bound(*size)) return fail(Code::kUnsupported, "it is a size of no input tensor");
    return size_value(b_, *size, DType::kI64);
  }

  Status output(Scope& scope, const OutputSpec& spec, std::vector<NodeId>& outputs) {
    if (spec.tensor.empty()) {
      const Result<NodeId> number = number_output(scope, spec.number);
      if (!number) return fail(number.error().within("output " + std::to_string(outputs.size())));
      outputs.push_back(*number);
      return b_.ok() ? Status{} : Status(fail(*b_.error()));
    }
    if (!scope.values.contains(spec.tensor))
      return fail(Code::kInvalidArgument, "output " + std::to_string(outputs.size()) +
                                              " is tensor '" + std::string(spec.tensor) +
                                              "', which no input and no node defines");
    outputs.push_back(scope.values.find(spec.tensor));
    return b_.ok() ? Status{} : Status(fail(*b_.error()));
  }

  struct Constant {
    size_t place = 0;  // among the program's inputs
    std::string_view tensor;
    bool is_read = false;  // for a number, which the graph has from then on
  };

  const ExportedModel& model_;
  const ConstantElements elements_;
  GraphBuilder b_;
  RandomSource random_;
  std::unordered_map<NodeId, Constant> constants_;  // by the graph's input
  KnownNumbers known_;
  // By view op: the numbers that it takes.
  std::unordered_map<const ExportedNode*, std::vector<std::pair<std::string_view, NodeId>>>
      view_numbers_;
  std::vector<bool> is_bound_;  // by symbol: whether an input has it as a size
  size_t body_nodes_ = 0;
  std::vector<std::string_view> changed_;  // roots that were changed in place
  ExportedProgram program_;
};

}  // namespace

Result<ExportedProgram> lower_exported_model(const ExportedModel& model,
                                             const ConstantElements& elements) {
  return ModelLowering(model, elements).run();
}

Result<std::vector<RefusedNode>> refused_nodes_of(const ExportedModel& model) {
  return ModelLowering(model).refused();
}

}  // namespace kiln
