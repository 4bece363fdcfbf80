// Picked products: matmuls whose second operand is one matrix of a table a batch, named by an index
// on the device. So mixtures of experts are written: a row, and the matrix of its expert. Kernels for
// them read each matrix where it lies, once for all neighbouring rows that name it. Pure functions.
#pragma once

#include <optional>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The nodes of [batch, m, k] x Gather(table, index).
struct PickedMatrices {
  NodeId gather = kInvalidNode;  // [batch, k, n]
  NodeId table = kInvalidNode;   // [matrices, k, n]
  NodeId index = kInvalidNode;   // [batch], i64
};
// nullopt: `product` is no such matmul.
std::optional<PickedMatrices> picked_matrices(const Graph& graph, const Node& product);

// Whether dtypes and sizes of `product` are those that kernels are written for (kernels/wgmma): halves,
// and sizes that are known, of whole 16 bytes and of 64 elements at least. Where its operands lie
// otherwise than reads_in_lines() wants, they are stored anew.
bool is_picked_product(const Graph& graph, const Node& product);

// Whether the copy engine reads `operand` where it lies, `rows` of which (of a [batch, m, k]) follow
// each other: one axis of matrices contiguous, all else at multiples of 16 bytes.
bool reads_in_lines(const Graph& graph, NodeId operand, bool rows);

}  // namespace kiln
