// ComputedOperandText: how a CUDA kernel of attention reads a key or value that it computes
// (plan/attention/computed_operands.h), a chunk of a head at a time. Keeps a reference to the graph, which must
// outlive it.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

class ComputedOperandText {
 public:
  // `at`: an index of the operand's shape, of the variables `token` and `column`, along which a chunk has
  // `lanes` neighbours.
  ComputedOperandText(const Graph& graph, NodeId operand, std::vector<Index> at, int lanes)
      : graph_(graph), operand_(operand), at_(std::move(at)), lanes_(lanes) {}

  // Whether a chunk lies somewhere as it is multiplied, as in pages, and only its address is computed.
  bool has_address() const { return address().has_value(); }
  // Declares `name`, a function of (token, column): to a chunk's address where it has one, else a Computed
  // (device/attention.cuh).
  std::string print(std::string_view name) const;

 private:
  // A node that arithmetic reads, and an index of its shape.
  struct Read {
    NodeId node = kInvalidNode;
    std::vector<Index> at;
  };

  // The body of a function that returns the address.
  std::optional<std::string> address() const;
  std::string print_computed(std::string_view name) const;
  std::optional<Read> widest_read(ExpressionPrinter& printer) const;
  double bytes_below(NodeId id) const;
  int64_t readers(NodeId id) const;

  const Graph& graph_;
  const NodeId operand_;
  const std::vector<Index> at_;
  const int lanes_;
};

}  // namespace kiln
