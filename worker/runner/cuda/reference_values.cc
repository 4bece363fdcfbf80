#include "worker/runner/cuda/reference_values.h"

#include <algorithm>

#include "compiler_core/base/tensor.h"
#include "compiler_core/plan/picked_products.h"

namespace kiln::runner {
namespace {

std::vector<bool> gathers_in_place(const Graph& graph) {
  std::vector<bool> in_place(static_cast<size_t>(graph.size()), false);
  const auto users = users_of(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const auto& readers = users[static_cast<size_t>(id)];
    const auto picks = [&](NodeId reader) {
      const auto picked = picked_matrices(graph, graph.node(reader));
      return picked && picked->gather == id && graph.node(reader).operands[0] != id;
    };
    in_place[static_cast<size_t>(id)] =
        !readers.empty() && std::all_of(readers.begin(), readers.end(), picks);
  }
  for (const NodeId id : graph.outputs()) in_place[static_cast<size_t>(id)] = false;
  return in_place;
}

}  // namespace

int64_t element_count(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

ReferenceValues::ReferenceValues(CudaEvaluationDevice& device, const Graph& graph,
                                 std::span<const int64_t> symbols)
    : device_(device),
      graph_(graph),
      symbols_(symbols),
      launches_(device),
      values_(static_cast<size_t>(graph.size())),
      in_place_(gathers_in_place(graph)) {}

Result<std::vector<ReferenceValues::Sizes>> ReferenceValues::evaluate_sizes() {
  std::vector<Sizes> all;
  for (NodeId id = 0; id < graph_.size(); ++id) {
    TRY(Sizes sizes, evaluate(graph_.node(id).shape));
    TRY_STATUS(checked_bytes(DType::kF64, sizes));
    values_[static_cast<size_t>(id)].sizes = sizes;
    all.push_back(std::move(sizes));
  }
  return all;
}

Result<ReferenceValues::Sizes> ReferenceValues::evaluate(const std::vector<Dim>& dims) const {
  Sizes sizes;
  for (const Dim& dim : dims) {
    TRY(const int64_t size, evaluate(dim));
    sizes.push_back(size);
  }
  return sizes;
}

int64_t ReferenceValues::elements(NodeId id) const {
  return element_count(sizes(id));
}

int64_t ReferenceValues::at(NodeId id, int64_t first) const {
  const Value& value = values_[static_cast<size_t>(id)];
  return parameter(value.memory.data()) + (first - value.held.begin) * 8;
}

Result<PooledMemory> ReferenceValues::allocate(int64_t bytes) {
  auto memory = device_.pool().try_allocate(bytes);
  if (memory) return memory;
  TRY_STATUS(launches_.launch());
  return device_.pool().allocate(bytes);
}

Status ReferenceValues::hold(NodeId id, Interval part) {
  Value& value = values_[static_cast<size_t>(id)];
  TRY(value.memory, allocate(part.count() * 8));
  value.held = part;
  return {};
}

}  // namespace kiln::runner
