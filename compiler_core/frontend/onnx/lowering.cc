#include "compiler_core/frontend/onnx/lowering.h"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <unordered_map>

#include "compiler_core/frontend/onnx/refusals.h"
#include "compiler_core/frontend/onnx/tensor.h"

namespace kiln {
namespace {

// Core nodes of a program; what a hostile model makes of few bytes ends here.
constexpr NodeId kMostCoreNodes = 400'000;
constexpr size_t kMostSymbols = 256;
// A bound of a symbol that is found on the way holds from the start: the model is read once more.
constexpr int kMostReadings = 8;
using SymbolBounds = std::map<SymbolId, int64_t>;  // the largest values

// The meaning of a name: a node of the graph once one was needed, and what is known without it.
struct OnnxValue {
  NodeId node = kInvalidNode;
  const OnnxTensor* stored = nullptr;  // a tensor of the model's own
  bool of_constant_node = false;
  std::unique_ptr<KnownTensor> known;
  bool is_computed = false;  // known, and no tensor of the model's
};

class OnnxModelLowering : public OnnxOperands {
 public:
  OnnxModelLowering(const OnnxModel& model, std::string_view bytes,
                    const std::optional<std::filesystem::path>& folder, SymbolBounds bounds)
      : model_(model), bytes_(bytes), folder_(folder), bounds_(std::move(bounds)) {}

  Result<ExportedProgram> run() {
    TRY_STATUS(refuse_uncovered_onnx_ops(model_));
    version_ = model_.opsets.at("");
    for (const OnnxTensor& tensor : model_.initializers) {
      OnnxValue value;
      value.stored = &tensor;
      TRY_STATUS(define(tensor.name, std::move(value)));
    }
    for (const OnnxValueInfo& info : model_.inputs) {
      // Old files list the initializers, too.
      if (values_.contains(info.name)) continue;
      const Status done = input(info);
      if (!done)
        return fail(done.error().within("input '" + std::string(info.name.substr(0, 120)) + "'"));
    }
    TRY_STATUS(for_each_node(model_, [this](const OnnxNode& each) { return node(each); }));
    return finished();
  }

  NodeId tensor(std::string_view name) override {
    const auto found = values_.find(name);
    if (found == values_.end())
      return b_.fail_with({Code::kInvalidArgument,
                           "uses '" + std::string(name.substr(0, 120)) +
                               "', which no input and no node before it defines",
                           0});
    OnnxValue& value = found->second;
    if (value.node != kInvalidNode) return value.node;
    const KnownTensor* known = foldable(value);
    value.node = known != nullptr && (value.is_computed || known->numel() == 1)
                     ? node_of(b_, *known)
                     : parameter(name, value);
    return value.node;
  }

  const KnownTensor* known(std::string_view name) override {
    const auto found = values_.find(name);
    return found == values_.end() ? nullptr : known_of_value(found->second);
  }

  void bound(SymbolId id, int64_t most) override {
    int64_t& bound = bounds_.try_emplace(id, most).first->second;
    bound = std::min(bound, most);
  }
  // Those that were given, and those found since.
  const SymbolBounds& bounds() const { return bounds_; }

 private:
  Status define(std::string_view name, OnnxValue value) {
    if (name.empty()) return fail(Code::kInvalidArgument, "a tensor has no name");
    if (!values_.emplace(name, std::move(value)).second)
      return fail(Code::kInvalidArgument,
                  "'" + std::string(name.substr(0, 120)) + "' is defined twice");
    return {};
  }

  // The elements of a small tensor of the model's, or what was computed; null when neither.
  const KnownTensor* known_of_value(OnnxValue& value) {
    if (value.known || value.stored == nullptr) return value.known.get();
    int64_t count = 1;
    for (const int64_t size : value.stored->dims) {
      if (size > kMostKnownElements) return nullptr;
      count *= size;
      if (count > kMostKnownElements) return nullptr;
    }
    const auto tensor = read_onnx_tensor(*value.stored, folder_);
    if (!tensor) return nullptr;  // an error where it is used as a tensor
    value.known = std::make_unique<KnownTensor>(known_of(*tensor));
    return value.known.get();
  }

  // The value, if reading may compute with it: sizes, indices and single numbers. Weights are left out, so
  // that a model's graph does not depend on them.
  const KnownTensor* foldable(OnnxValue& value) {
    const KnownTensor* known = known_of_value(value);
    if (known == nullptr || value.is_computed || !is_float(known->dtype)) return known;
    const bool is_number = known->sizes.empty() || (value.of_constant_node && known->numel() == 1);
    return is_number ? known : nullptr;
  }

  // A tensor of the model's becomes an input of the graph, whose bytes the file has.
  NodeId parameter(std::string_view name, const OnnxValue& value) {
    const auto failed = [&](const Error& error) {
      return b_.fail_with(error.within("tensor '" + std::string(name.substr(0, 120)) + "'"));
    };
    const auto type = onnx_dtype(value.stored->data_type);
    if (!type) return failed(type.error());
    const auto there = has_elements(*value.stored, folder_);
    if (!there) return failed(there.error());
    ExportedInput input;
    input.kind = value.of_constant_node ? ExportedInput::Kind::kConstantTensor
                                        : ExportedInput::Kind::kParameter;
    input.name = name;
    input.dtype = *type;
    input.shape.assign(value.stored->dims.begin(), value.stored->dims.end());
    input.strides = contiguous_strides(input.shape);
    input.payload = "onnx:" + std::to_string(value.stored->message.data() - bytes_.data()) + ":" +
                    std::to_string(value.stored->message.size());
    input.has_payload = *there;
    input.payload_strides = constant_sizes(input.strides);
    const NodeId id = b_.input(input.dtype, input.shape);
    program_.inputs.push_back(std::move(input));
    return id;
  }

  Result<Dim> symbol_of(std::string_view name) {
    const auto known = symbols_by_name_.find(name);
    if (!name.empty() && known != symbols_by_name_.end()) return Dim::symbol(known->second);
    if (symbols_.size() >= kMostSymbols)
      return fail(Code::kUnsupported,
                  "more than " + std::to_string(kMostSymbols) + " dynamic sizes are not covered");
    // At least 1: ONNX gives no range, and an empty batch is nobody's.
    const auto bound = bounds_.find(static_cast<SymbolId>(symbols_.size()));
    const Symbol symbol{{1, bound == bounds_.end() ? SymbolRange().max : bound->second}, 0};
    symbols_.push_back(symbol);
    const SymbolId id = b_.symbol(symbol.range, symbol.hint);
    if (!name.empty()) symbols_by_name_.emplace(name, id);
    return Dim::symbol(id);
  }

  Status input(const OnnxValueInfo& info) {
    if (info.data_type == 0)
      return fail(Code::kUnsupported,
                  "it is no tensor (a sequence, a map or an optional); pass tensors only");
    if (!info.shape)
      return fail(Code::kUnsupported,
                  "its rank is not said; give it a shape, with names for dynamic sizes "
                  "(dynamic_axes, dynamic_shapes, onnx.shape_inference)");
    ExportedInput input;
    input.name = info.name;
    TRY(input.dtype, onnx_dtype(info.data_type));
    for (const OnnxDim& dim : *info.shape) {
      if (dim.size && *dim.size < 0) return fail(Code::kInvalidArgument, "a size is negative");
      if (dim.size) {
        input.shape.emplace_back(*dim.size);
        continue;
      }
      TRY(Dim symbol, symbol_of(dim.symbol));
      input.shape.push_back(std::move(symbol));
    }
    input.strides = contiguous_strides(input.shape);
    OnnxValue value;
    value.node = b_.input(input.dtype, input.shape);
    if (!b_.ok()) return fail(*b_.error());
    program_.inputs.push_back(std::move(input));
    return define(info.name, std::move(value));
  }

  // "/layers.0/attn/MatMul" stands in the module layers.0.attn.
  static Origin origin_of(const OnnxNode& node) {
    Origin origin{"onnx." + std::string(node.op.substr(0, 60)), "", ""};
    const size_t end = node.name.rfind('/');
    if (node.name.starts_with('/') && end != 0 && end < 200) {
      origin.module = node.name.substr(1, end - 1);
      std::replace(origin.module.begin(), origin.module.end(), '/', '.');
    }
    return origin;
  }

  Status node(const OnnxNode& node) {
    b_.begin_origin(origin_of(node));
    const Status done = lower(node);
    if (done) return {};
    return fail(done.error().within(onnx_place(node)));
  }

  Status lower(const OnnxNode& node) {
    for (const OnnxAttribute& each : node.attributes)
      if (!each.reference.empty())
        return fail(Code::kInvalidArgument, "refers to an attribute of a function");
    if (node.op == "Constant") return constant(node);
    if (node.op == "Shape" || node.op == "Size") return sizes_of(node);
    const OnnxLowering* lowering = find_onnx_lowering(node.op);
    if (lowering == nullptr) return fail(Code::kUnsupported, "has no lowering");
    if (auto known = folded(node, *lowering)) {
      for (size_t i = 0; i < node.outputs.size(); ++i)
        if (!node.outputs[i].empty()) TRY_STATUS(define_known(node.outputs[i], (*known)[i]));
      return {};
    }
    OnnxCall call(b_, node, *this, version_, symbols_);
    const Values results = lowering->lower(call);
    if (!b_.ok()) return fail(*b_.error());
    return define_all(node, results);
  }

  Status define_all(const OnnxNode& node, const Values& results) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i].empty()) continue;
      if (i >= results.size() || results[i] == kInvalidNode)
        return fail(Code::kUnsupported, "its output " + std::to_string(i) + " is not covered");
      if (b_.shape(results[i]).size() > kMostOnnxRank)
        return fail(Code::kUnsupported,
                    "gives a tensor of more than " + std::to_string(kMostOnnxRank) + " axes");
      if (results[i] > kMostCoreNodes)
        return fail(Code::kUnsupported, "makes the program longer than " +
                                            std::to_string(kMostCoreNodes) +
                                            " operations; compile it in parts");
      OnnxValue value;
      value.node = results[i];
      TRY_STATUS(define(node.outputs[i], std::move(value)));
    }
    return {};
  }

  Status define_known(std::string_view name, KnownTensor known) {
    OnnxValue value;
    value.known = std::make_unique<KnownTensor>(std::move(known));
    value.is_computed = true;
    return define(name, std::move(value));
  }

  std::optional<std::vector<KnownTensor>> folded(const OnnxNode& node,
                                                 const OnnxLowering& lowering) {
    std::vector<const KnownTensor*> operands;
    for (const std::string_view name : node.inputs) {
      const auto found = values_.find(name);
      const KnownTensor* known =
          name.empty() || found == values_.end() ? nullptr : foldable(found->second);
      if (known == nullptr && !name.empty()) return std::nullopt;
      operands.push_back(known);
    }
    return fold_onnx_node(node, lowering, version_, symbols_, operands);
  }

  // Its attribute, of whichever form.
  Status constant(const OnnxNode& node) {
    if (node.outputs.size() != 1) return fail(Code::kInvalidArgument, "needs one output");
    for (const OnnxAttribute& each : node.attributes) {
      const auto vector = [&](DType type) {
        KnownTensor known{type, {}, {}, {}};
        known.integers.assign(each.integers.begin(), each.integers.end());
        known.reals.assign(each.reals.begin(), each.reals.end());
        known.sizes = {static_cast<int64_t>(known.numel())};
        return known;
      };
      if (each.name == "value") {
        TRY(OnnxTensor tensor, parse_onnx_tensor(each.tensor));
        constants_.push_back(std::move(tensor));
        OnnxValue value;
        value.stored = &constants_.back();
        value.of_constant_node = true;
        return define(node.outputs[0], std::move(value));
      }
      if (each.name == "value_int")
        return define_known(node.outputs[0], known_scalar(DType::kI64, each.integer));
      if (each.name == "value_float")
        return define_known(node.outputs[0],
                            {DType::kF32, {}, {}, {static_cast<double>(each.real)}});
      if (each.name != "value_ints" && each.name != "value_floats") continue;
      const KnownTensor known = vector(each.name == "value_ints" ? DType::kI64 : DType::kF32);
      if (known.numel() > static_cast<size_t>(kMostKnownElements) || !is_compact(known))
        return fail(Code::kUnsupported,
                    "a long list of numbers is not covered; write it as attribute 'value'");
      return define_known(node.outputs[0], known);
    }
    return fail(Code::kUnsupported, "has no value of numbers");
  }

  Status sizes_of(const OnnxNode& node) {
    if (node.inputs.size() != 1 || node.outputs.size() != 1)
      return fail(Code::kInvalidArgument, "needs one operand and one output");
    OnnxCall call(b_, node, *this, version_, symbols_);
    TRY(const Shape shape, shape_of(node.inputs[0]));
    if (node.op == "Size")
      return define_known(node.outputs[0], known_scalar(DType::kI64, numel(shape)));
    const int64_t rank = static_cast<int64_t>(shape.size());
    const auto bound = [&](std::string_view name, int64_t fallback) {
      const int64_t given = call.integer(name, fallback);
      return std::clamp<int64_t>(given < 0 ? std::max(given, -rank) + rank : given, 0, rank);
    };
    const int64_t start = bound("start", 0), end = std::max(bound("end", rank), start);
    return define_known(node.outputs[0],
                        known_vector({shape.begin() + start, shape.begin() + end}));
  }

  // Without making a node of what is known.
  Result<Shape> shape_of(std::string_view name) {
    const auto found = values_.find(name);
    if (found != values_.end() && found->second.node == kInvalidNode) {
      if (found->second.known) return found->second.known->shape();
      return Shape(found->second.stored->dims.begin(), found->second.stored->dims.end());
    }
    const NodeId id = tensor(name);
    if (!b_.ok()) return fail(*b_.error());
    return b_.shape(id);
  }

  Result<ExportedProgram> finished() {
    std::vector<NodeId> outputs;
    for (const OnnxValueInfo& info : model_.outputs) {
      const NodeId id = tensor(info.name);
      if (!b_.ok())
        return fail(b_.error()->within("output '" + std::string(info.name.substr(0, 120)) + "'"));
      outputs.push_back(id);
      program_.outputs.push_back({ExportedOutput::Kind::kUser, std::string(info.name)});
    }
    if (outputs.empty()) return fail(Code::kInvalidArgument, "the model has no output");
    TRY(program_.graph, b_.finish(std::move(outputs)));
    return std::move(program_);
  }

  const OnnxModel& model_;
  std::string_view bytes_;
  const std::optional<std::filesystem::path>& folder_;
  GraphBuilder b_;
  int64_t version_ = 0;
  SymbolBounds bounds_;
  std::vector<Symbol> symbols_;
  std::unordered_map<std::string_view, SymbolId> symbols_by_name_;
  std::unordered_map<std::string_view, OnnxValue> values_;
  std::deque<OnnxTensor> constants_;  // of Constant nodes; addresses stay
  ExportedProgram program_;
};

}  // namespace

Result<ExportedProgram> lower_onnx_model(const OnnxModel& model, std::string_view bytes,
                                         const std::optional<std::filesystem::path>& folder) {
  SymbolBounds bounds;
  for (int i = 0; i < kMostReadings; ++i) {
    OnnxModelLowering lowering(model, bytes, folder, bounds);
    auto program = lowering.run();
    if (lowering.bounds() == bounds) return program;
    bounds = lowering.bounds();
  }
  return fail(Code::kUnsupported,
              "its slices bound its dynamic sizes again and again; give the "
              "sizes that are known as numbers");
}

}  // namespace kiln
