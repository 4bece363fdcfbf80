#include "compiler_core/frontend/declarations.h"

#include <algorithm>

#include "compiler_core/frontend/refusals.h"
#include "compiler_core/ir/custom_op.h"

namespace kiln {
namespace {

bool equal_but_for_ones(Shape a, Shape b) {
  for (Shape* shape : {&a, &b}) std::erase_if(*shape, [](const Dim& dim) { return dim.is(1); });
  return a == b;
}

// These ops save for their backward ops what has the dtype of the parameters on a CPU and f32 on a
// GPU, or one axis more. Torch's metadata has running statistics of halves as f32.
bool leaves_type_to_device(const ExportedNode& node, size_t output) {
  static constexpr std::string_view kOps[] = {
      "aten.native_layer_norm.default",
      "aten._scaled_dot_product_cudnn_attention.default",
      "aten._native_batch_norm_legit.no_stats",
      "aten._native_batch_norm_legit_functional.default",
      "aten._batch_norm_with_update_functional.default",
  };
  return output > 0 && std::ranges::find(kOps, short_name(node.target)) != std::end(kOps);
}

}  // namespace

Result<CoreType> core_type(const DeclaredTensor& declared) {
  TRY(const DType dtype, component_type(declared.dtype));
  CoreType type{dtype, declared.shape};
  if (is_complex(declared.dtype)) type.shape.emplace_back(2);
  return type;
}

Result<const DeclaredTensor*> Declarations::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end())
    return fail(Code::kInvalidArgument,
                "tensor '" + std::string(name) + "' has no entry in tensor_values");
  if (!found->second.strided)
    return fail(Code::kUnsupported,
                "tensor '" + std::string(name) + "' is sparse; only dense tensors are covered");
  if (!found->second.refusal.empty()) return fail(Code::kUnsupported, found->second.refusal);
  return &found->second;
}

// Whether nodes compute the declared sizes of `name`, and `value` knows them (known_numbers.h).
bool Declarations::is_of_known_sizes(const GraphBuilder& builder, std::string_view name,
                                     NodeId value) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end() || !found->second.has_computed_size || !found->second.strided)
    return false;
  const Result<DType> dtype = component_type(found->second.dtype);
  return dtype && builder.dtype(value) == *dtype && is_constant(builder.shape(value));
}

// Torch's own metadata is wrong of the last states of aten.lstm.input: the function that infers
// them (one_layer_lstm of torch/_decomp) squeezes the batch instead of the axis before it, and
// declares [layers, 1, batch, hidden] what torch itself computes, as we do, as
// [layers, batch, hidden]. What is computed from such a state is declared from its declaration.
bool Declarations::may_be_wrong(const ExportedNode& node, size_t output) const {
  if (short_name(node.target) == "aten.lstm.input") return output > 0;
  if (wrong_.empty()) return false;
  return std::ranges::any_of(tensor_operands(node),
                             [this](std::string_view name) { return wrong_.contains(name); });
}

Result<NodeId> Declarations::as_declared(GraphBuilder& builder, const ExportedNode& node,
                                         size_t output, std::string_view name, NodeId value) {
  if (is_of_known_sizes(builder, name, value)) return value;
  TRY(const DeclaredTensor* declared, find(name));
  TRY(const CoreType type, core_type(*declared));
  const DType dtype = type.dtype;
  if (leaves_type_to_device(node, output)) {
    if (is_float(dtype) && is_float(builder.dtype(value))) value = builder.cast(value, dtype);
    if (equal_but_for_ones(builder.shape(value), type.shape))
      value = builder.reshape(value, type.shape);
  }
  const Shape& shape = builder.shape(value);
  if (builder.dtype(value) == dtype && shape == type.shape) return value;
  if (builder.dtype(value) == dtype && equal_but_for_ones(shape, type.shape) &&
      may_be_wrong(node, output)) {
    wrong_.insert(name);
    return value;
  }
  return fail(Code::kInvalidArgument, "the archive declares '" + std::string(name) + "' as " +
                                          to_string(OperandType{dtype, type.shape}) +
                                          ", but its operands imply " +
                                          to_string(OperandType{builder.dtype(value), shape}));
}

}  // namespace kiln
