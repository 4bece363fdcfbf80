// OneNode: a model of one ATen node, run by the interpreter, for tests of lowerings.
#pragma once

#include <cmath>
#include <limits>

#include "tests/compiler_core/frontend/model_text.h"

namespace kiln::testing {

using Doubles = std::vector<double>;

inline constexpr double kInf = std::numeric_limits<double>::infinity();
inline const double kNan = std::nan("");

// A model of one node "y" on inputs "x", "z", ...
struct OneNode {
  struct In {
    int code;
    std::vector<int64_t> sizes;
    Doubles values;
    std::vector<int64_t> strides = {};
  };

  std::string op;
  std::vector<std::string> arguments;
  std::vector<In> inputs;
  int code;
  std::vector<int64_t> sizes;

  static const char* name(size_t i) {
    constexpr const char* kNames[] = {"x", "z", "w", "v"};
    return kNames[i];
  }

  Result<std::vector<Tensor>> run() const {
    ModelText model;
    for (size_t i = 0; i < inputs.size(); ++i)
      model.input(name(i), inputs[i].code, inputs[i].sizes);
    model.node(op, arguments, "y", code, sizes).output("y");
    TRY(const ExportedProgram program, lower(model.json()));
    std::vector<Tensor> tensors;
    std::vector<const Tensor*> pointers;
    for (size_t i = 0; i < inputs.size(); ++i)
      tensors.push_back(make_tensor(program.inputs[i].dtype, inputs[i].sizes, inputs[i].values));
    // The seed of a random op.
    if (program.inputs.size() > inputs.size())
      tensors.push_back(make_tensor(DType::kI64, {}, Doubles{7}));
    for (const Tensor& each : tensors) pointers.push_back(&each);
    return interpret(program.graph, pointers);
  }
};

inline void expect_values(const OneNode& node, const Doubles& expected) {
  const auto outputs = node.run();
  ASSERT_TRUE(outputs) << node.op << ": " << outputs.error().message;
  const Doubles got = values_of((*outputs)[0]);
  ASSERT_EQ(got.size(), expected.size()) << node.op;
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i]))
      EXPECT_TRUE(std::isnan(got[i])) << node.op << " at " << i << ": " << got[i];
    else if (std::isinf(expected[i]))
      EXPECT_EQ(got[i], expected[i]) << node.op << " at " << i;
    else
      EXPECT_NEAR(got[i], expected[i], 1e-6 * (1 + std::abs(expected[i])))
          << node.op << " at " << i;
  }
}

inline const std::string kX = tensor("self", "x"), kOther = tensor("other", "z");

// `op` of x, of these sizes and values, and what else it takes.
inline OneNode of_one(const std::string& op, std::vector<std::string> arguments,
                      const std::vector<int64_t>& from, const Doubles& x,
                      const std::vector<int64_t>& to) {
  arguments.insert(arguments.begin(), kX);
  return {op, arguments, {{kFloat, from, x}}, kFloat, to};
}

}  // namespace kiln::testing
