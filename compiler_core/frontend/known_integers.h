// Integers that a program takes out of tensors which no input reaches: int(positions[-1]) of an arange.
// torch.export gives them names, as it does to what a call computes; here they are the constants that
// they are, so that sizes may be made of them. One owner, one thread.
#pragma once

#include <deque>
#include <optional>
#include <string_view>
#include <unordered_map>

#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

class KnownIntegers {
 public:
  // What the scalar `value` of `b` is, if that can be found out at little cost, is what `name` is.
  void define(std::string_view name, const GraphBuilder& b, NodeId value);

  // `node` with constants for the names that are known; itself where it has none. Lives as long as this.
  const ExportedNode& resolved(const ExportedNode& node);

 private:
  std::optional<int64_t> evaluate(const GraphBuilder& b, NodeId value);
  bool resolve(Argument& argument) const;

  std::unordered_map<std::string_view, int64_t> known_;
  std::deque<ExportedNode> resolved_;         // whose addresses stay
  int64_t elements_left_ = int64_t{1} << 22;  // that all evaluations together may compute
};

}  // namespace kiln
