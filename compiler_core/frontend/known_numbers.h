// KnownNumbers: the values of numbers that a program takes out of tensors that no input of a call
// reaches, such as int(positions[-1]) of an arange or of a constant tensor. torch.export names them
// like numbers that depend on inputs, which cannot be sizes or bounds. One owner, one thread.
#pragma once

#include <deque>
#include <functional>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "compiler_core/base/tensor.h"
#include "compiler_core/frontend/exported_model.h"
#include "compiler_core/ir/builder.h"

namespace kiln {

class KnownNumbers {
 public:
  // The value of an input that is the same in every call; nothing for any other.
  using Constant = std::function<std::optional<Tensor>(NodeId input)>;

  explicit KnownNumbers(Constant constant) : constant_(std::move(constant)) {}

  // Evaluates the scalar `value` of `b`, which has the name `name` in the model. The number stays
  // unknown where an input reaches it, and where that costs too many nodes or elements.
  void define(std::string_view name, const GraphBuilder& b, NodeId value);

  // A copy of `node` with constants in place of known numbers, which lives as long as this; `node`
  // itself where it has none.
  const ExportedNode& resolved(const ExportedNode& node);

 private:
  using Number = std::variant<int64_t, double>;  // as torch's SymInt and SymFloat

  std::optional<Number> evaluate(const GraphBuilder& b, NodeId value);
  const Number* find(const NumberName& number) const;
  // The argument with constants for all its numbers; nothing where it has none, or one is unknown.
  std::optional<Argument> constant_of(const Argument& argument) const;

  Constant constant_;
  std::unordered_map<std::string_view, Number> known_;
  std::deque<ExportedNode> resolved_;         // whose addresses stay
  int64_t elements_left_ = int64_t{1} << 22;  // all evaluations together compute no more
};

}  // namespace kiln
