// Runs a plan with the interpreter as its kernels, on the plan's own buffers: temporaries lie in
// one poisoned arena at their offsets, so that an overlap of live buffers shows as a wrong result.
// A plan with symbols is run for one set of values.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/specialise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln::testing {

// The families of a plan's launches, one after the other.
inline std::string families(const Plan& plan) {
  std::string text;
  for (const Launch& launch : plan.launches)
    text += (text.empty() ? "" : " ") +
            std::string(to_string(plan.kernels[static_cast<size_t>(launch.kernel)].family));
  return text;
}

class PlanRunner {
 public:
  PlanRunner(const Plan& plan, const std::vector<const Tensor*>& inputs,
             std::vector<int64_t> symbols)
      : plan_(plan), symbols_(std::move(symbols)) {
    arena_.assign(static_cast<size_t>(value(plan.arena_bytes)), 0xa5);
    for (const Buffer& buffer : plan.buffers) {
      std::vector<int64_t> sizes;
      for (const Dim& size : buffer.spec.shape) sizes.push_back(value(size));
      owned_.emplace_back(buffer.spec.dtype, std::move(sizes));
      if (buffer.kind == Buffer::Kind::kInput)
        owned_.back() = inputs[static_cast<size_t>(buffer.index)]->clone();
    }
  }

  std::vector<Tensor> run() {
    for (const Launch& launch : plan_.launches) run(launch);
    std::vector<Tensor> outputs;
    for (int buffer : plan_.output_buffers)
      outputs.push_back(owned_[static_cast<size_t>(buffer)].clone());
    return outputs;
  }

 private:
  int64_t value(const Dim& dim) const { return dim.evaluate(symbols_).value(); }

  // The kernel for the sizes of this launch.
  Graph sized(const Graph& kernel, const Launch& launch) const {
    EXPECT_EQ(kernel.symbols().size(), launch.dims.size());
    std::vector<Symbol> sizes;
    for (const Dim& dim : launch.dims) sizes.push_back({{value(dim), value(dim)}, 0});
    return specialise(kernel, sizes).value();
  }

  uint8_t* data(int index) {
    const Buffer& buffer = plan_.buffers[static_cast<size_t>(index)];
    Tensor& tensor = owned_[static_cast<size_t>(index)];
    if (buffer.kind != Buffer::Kind::kTemporary) return tensor.bytes().data();
    const int64_t offset = value(buffer.arena_offset);
    EXPECT_EQ(offset % 64, 0);
    EXPECT_LE(offset + tensor.byte_size(), static_cast<int64_t>(arena_.size()));
    return arena_.data() + offset;
  }

  void run(const Launch& launch) {
    const Graph kernel = sized(plan_.kernels[static_cast<size_t>(launch.kernel)].graph, launch);
    const size_t inputs = kernel.inputs().size();
    ASSERT_EQ(launch.args.size(), inputs + kernel.outputs().size());
    std::vector<Tensor> arguments;
    for (size_t i = 0; i < inputs; ++i) {
      const Node& node = kernel.node(kernel.inputs()[i]);
      Tensor argument(node.dtype, constant_sizes(node.shape));
      expect_fits(argument, launch.args[i]);
      if (argument.byte_size() > 0)
        std::memcpy(argument.bytes().data(), data(launch.args[i]), argument.bytes().size());
      arguments.push_back(std::move(argument));
    }
    std::vector<const Tensor*> pointers;
    for (const Tensor& argument : arguments) pointers.push_back(&argument);
    const auto results = interpret(kernel, pointers);
    ASSERT_TRUE(results.has_value()) << results.error().message;
    for (size_t i = 0; i < results->size(); ++i) {
      expect_fits((*results)[i], launch.args[inputs + i]);
      EXPECT_NE(plan_.buffers[static_cast<size_t>(launch.args[inputs + i])].kind,
                Buffer::Kind::kInput);
      std::memcpy(data(launch.args[inputs + i]), (*results)[i].bytes().data(),
                  (*results)[i].bytes().size());
    }
  }

  void expect_fits(const Tensor& argument, int buffer) {
    EXPECT_EQ(argument.dtype(), owned_[static_cast<size_t>(buffer)].dtype());
    EXPECT_EQ(argument.numel(), owned_[static_cast<size_t>(buffer)].numel());
  }

  const Plan& plan_;
  const std::vector<int64_t> symbols_;
  std::vector<uint8_t> arena_;
  std::vector<Tensor> owned_;  // one per buffer; a temporary's own memory is not used
};

inline std::vector<Tensor> run_plan(const Plan& plan, const std::vector<const Tensor*>& inputs,
                                    std::vector<int64_t> symbols = {}) {
  return PlanRunner(plan, inputs, std::move(symbols)).run();
}

// The program's plan. It gives bit for bit what the interpreter does for inputs at random: else the test fails.
inline Plan right_plan(const Graph& program, const PartitionRules& rules = {}) {
  const auto form = normalise(program);
  EXPECT_TRUE(form.has_value()) << form.error().message;
  if (!form) return {};
  auto made = plan(form->graph, rules);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  if (!made) return {};
  const std::vector<Tensor> inputs = random_inputs(form->graph, 1);
  const std::vector<Tensor> expected = evaluate(form->graph, in_order(inputs));
  const std::vector<Tensor> got = run_plan(*made, in_order(inputs));
  EXPECT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < std::min(got.size(), expected.size()); ++i)
    EXPECT_TRUE(std::ranges::equal(got[i].bytes(), expected[i].bytes())) << "output " << i;
  return *std::move(made);
}

}  // namespace kiln::testing
