#include "compiler_core/ir/custom_op.h"

#include <exception>

namespace kiln {
namespace {

// Calls `user` and turns an exception into an error: a user's mistake must not end the service.
template <class User>
auto guarded(const std::string& name, std::string_view which, User user)
    -> Result<decltype(user())> {
  const auto failed = [&](std::string_view why) {
    return fail(Code::kInvalidArgument, "custom op " + name + ": its " + std::string(which) +
                                            " fails: " + std::string(why));
  };
  try {
    return user();
  } catch (const std::exception& e) {
    return failed(e.what());
  } catch (...) {
    return failed("it throws something that is no std::exception");
  }
}

Result<std::shared_ptr<const CustomCall>> make_call(const CustomOp& op,
                                                    std::span<const OperandType> operands) {
  if (!op.shape || !op.reference)
    return fail(Code::kInvalidArgument,
                "custom op " + op.name + " needs a shape function and a reference");
  for (const OperandType& operand : operands)
    if (!is_constant(operand.shape))
      return fail(Code::kUnsupported, "custom op " + op.name + ": operand " + to_string(operand) +
                                          " has a dynamic size: export the program with static "
                                          "shapes");
  TRY(const OperandType said,
      guarded(op.name, "shape function", [&] { return op.shape(operands); }));
  GraphBuilder builder;
  std::vector<NodeId> inputs;
  for (const OperandType& operand : operands)
    inputs.push_back(builder.input(operand.dtype, operand.shape));
  TRY(const NodeId result,
      guarded(op.name, "reference", [&] { return op.reference(builder, inputs); }));
  auto reference = builder.finish({result});
  if (!reference) return fail(reference.error().within("custom op " + op.name + ": its reference"));
  const Node& output = reference->node(reference->outputs()[0]);
  const OperandType computed{output.dtype, output.shape};
  if (said != computed)
    return fail(Code::kInvalidArgument, "custom op " + op.name + ": its shape function says " +
                                            to_string(said) + ", its reference gives " +
                                            to_string(computed));
  CustomCall call{op.name, *std::move(reference), op.kernels};
  if (op.items) {
    TRY(const int64_t items,
        guarded(op.name, "items function", [&] { return op.items(operands, said); }));
    for (CustomKernel& kernel : call.kernels) kernel.items = items;
  }
  return std::make_shared<const CustomCall>(std::move(call));
}

}  // namespace

std::string to_string(const OperandType& type) {
  return std::string(to_string(type.dtype)) + to_string(type.shape);
}

NodeId CustomOp::call(GraphBuilder& builder, std::span<const NodeId> operands) const {
  if (!builder.ok()) return kInvalidNode;
  std::vector<OperandType> types;
  for (const NodeId id : operands) types.push_back({builder.dtype(id), builder.shape(id)});
  auto made = make_call(*this, types);
  if (!made) return builder.fail_with(std::move(made).error());
  return builder.custom_call(*std::move(made), operands);
}

}  // namespace kiln
