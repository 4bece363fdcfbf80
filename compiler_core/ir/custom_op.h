// CustomOp: how a C++ program brings an operation of its own into graphs. Whoever builds graphs
// keeps the op, a value, and calls it; nothing is registered anywhere. What the graph then holds is
// a CustomCall, which needs none of the functions here. docs/custom_call.md has a worked example.
#pragma once

#include <functional>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/custom_call.h"

namespace kiln {

struct OperandType {
  DType dtype = DType::kF32;
  Shape shape;
  bool operator==(const OperandType&) const = default;
};
std::string to_string(const OperandType& type);  // "f32[8,16]"

struct CustomOp {
  std::string name;  // "mylib::rope"
  // The type of the op's result for these operands. Throws (std::exception) for operands it does
  // not take.
  std::function<OperandType(std::span<const OperandType>)> shape;
  // The same computation in core ops; every kernel is checked against it.
  std::function<NodeId(GraphBuilder&, std::span<const NodeId>)> reference;
  std::vector<CustomKernel> kernels;
  // CustomKernel::items for these operands; without it, the elements of the result.
  std::function<int64_t(std::span<const OperandType>, const OperandType&)> items;

  // The call's node in `builder`, whose sticky error it sets otherwise: kInvalidArgument with the
  // words that `shape` or `reference` throw, where the reference gives another type than `shape`
  // says (both are named), or where verify_custom_call() refuses; kUnsupported for operands of
  // dynamic size.
  NodeId call(GraphBuilder& builder, std::span<const NodeId> operands) const;
};

}  // namespace kiln
