// Prepared workloads on the CPU, with their tensors where tests can look at them.
#pragma once

#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "worker/runner/prepared_workload.h"

namespace kiln::test {

// The inputs of `graph` as every device draws them.
inline std::vector<Tensor> drawn_inputs(const Graph& graph, std::span<const int64_t> symbols,
                                        uint64_t seed, runner::Floats floats) {
  std::vector<Tensor> tensors;
  const auto draws = runner::input_draws(graph, symbols, seed).value();
  for (const runner::InputDraw& draw : draws) {
    tensors.emplace_back(draw.dtype, draw.sizes);
    runner::draw_elements(draw, floats, 0, tensors.back());
  }
  return tensors;
}

class PreparedOnCpu {
 public:
  explicit PreparedOnCpu(std::string_view text, uint64_t seed = 1)
      : workload_(runner::PreparedWorkload::make(*device_, text, seed).value()) {
    const Graph graph = parse_graph(text).value();
    for (size_t i = 0; i < graph.inputs().size(); ++i)
      inputs_.push_back(tensor(graph, graph.inputs()[i], workload_.inputs()[i].data));
    for (size_t i = 0; i < graph.outputs().size(); ++i)
      expected_.push_back(tensor(graph, graph.outputs()[i], workload_.expected()[i].data()));
  }
  runner::EvaluationDevice& device() const { return *device_; }
  runner::PreparedWorkload& workload() { return workload_; }
  const std::vector<Tensor>& inputs() const { return inputs_; }
  const std::vector<Tensor>& expected() const { return expected_; }

  // What verification says of `got` as output 0.
  std::optional<runner::Difference> compare_output(const Tensor& got) {
    EXPECT_TRUE(device_->device().copy_to_device(workload_.outputs()[0].data, got.bytes()));
    for (const bool leniently : {false, true}) {
      EXPECT_TRUE(workload_.compare_output(0, leniently));
      const auto difference = workload_.difference(0, device_->take().value()[0]);
      if (!difference || leniently) return difference;
    }
    return std::nullopt;
  }

 private:
  Tensor tensor(const Graph& graph, NodeId id, DevicePtr data) const {
    const Node& node = graph.node(id);
    std::vector<int64_t> sizes;
    for (const Dim& dim : node.shape) sizes.push_back(dim.evaluate(workload_.symbols()).value());
    Tensor copy(node.dtype, std::move(sizes));
    EXPECT_TRUE(device_->device().copy_to_host(copy.bytes(), data));
    return copy;
  }

  std::unique_ptr<runner::EvaluationDevice> device_ = runner::make_cpu_evaluation_device(1);
  runner::PreparedWorkload workload_;
  std::vector<Tensor> inputs_, expected_;
};

}  // namespace kiln::test
