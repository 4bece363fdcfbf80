// Declarations: the types that the archive declares for the tensors of one graph. A result becomes
// what is declared where an op leaves that to its device, and is accepted where torch's own metadata
// is wrong; else the two must agree. One owner, one thread; keeps a reference to the tensors.
#pragma once

#include <string_view>
#include <unordered_map>
#include <unordered_set>

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

// The tensor that stands in a graph for a declared one: complex numbers are their parts along a last
// axis of 2.
struct CoreType {
  DType dtype = DType::kF32;
  Shape shape;
};
Result<CoreType> core_type(const DeclaredTensor& declared);

class Declarations {
 public:
  explicit Declarations(const DeclaredTensors& tensors) : tensors_(tensors) {}

  // kInvalidArgument: nothing is declared under that name; kUnsupported: a type that Kiln lacks.
  Result<const DeclaredTensor*> find(std::string_view name) const;
  const DeclaredTensors& tensors() const { return tensors_; }

  // `value`, output number `output` of `node`, under the name by which it is declared. Returns it, or
  // a cast or reshape of it. kInvalidArgument: the operands imply another type.
  Result<NodeId> as_declared(GraphBuilder& builder, const ExportedNode& node, size_t output,
                             std::string_view name, NodeId value);

 private:
  bool is_of_known_sizes(const GraphBuilder& builder, std::string_view name, NodeId value) const;
  bool may_be_wrong(const ExportedNode& node, size_t output) const;

  const DeclaredTensors& tensors_;
  std::unordered_set<std::string_view> wrong_;  // tensors whose shape is not as declared
};

}  // namespace kiln
