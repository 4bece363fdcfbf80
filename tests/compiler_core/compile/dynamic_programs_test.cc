// Whole programs whose sizes come at run time, in `default` mode: planned and compiled once, right
// at every size. Their kernels for CUDA run on the fake GPU.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "compiler_core/compile/local.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/specialise.h"
#include "compiler_core/runtime/cpu_device.h"
#include "compiler_core/runtime/executable.h"
#include "tests/compiler_core/compile/dynamic_models.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/support/kept_compiler.h"

namespace kiln {
namespace {

using Sizes = std::vector<std::vector<int64_t>>;

void expect_agrees(const NormalForm& form, const Executable& executable,
                   const LocalCompilation& local, const std::vector<int64_t>& symbols) {
  SCOPED_TRACE(::testing::PrintToString(symbols));
  std::vector<Tensor> inputs = testing::model_inputs(form.graph, symbols), outputs;
  std::vector<const Tensor*> operands;
  std::vector<void*> in, out;
  for (Tensor& tensor : inputs) {
    in.push_back(tensor.data());
    operands.push_back(&tensor);
  }
  for (const int buffer : local.program.output_buffers) {
    const TensorSpec& spec = local.program.buffers[static_cast<size_t>(buffer)].spec;
    outputs.emplace_back(spec.dtype, testing::sizes_at(spec.shape, symbols));
  }
  for (Tensor& tensor : outputs) out.push_back(tensor.data());
  const Status ran = executable.launch(device_ptrs(in), device_ptrs(out), nullptr, symbols);
  ASSERT_TRUE(ran) << ran.error().message;
  const auto expected = interpret(form.graph, operands, Precision::kHigh);
  ASSERT_TRUE(expected) << expected.error().message;
  for (size_t o = 0; o < outputs.size(); ++o)
    for (int64_t i = 0; i < outputs[o].numel(); ++i) {
      const double wanted = (*expected)[o].get(i);
      ASSERT_NEAR(outputs[o].get(i), wanted, 2e-4 * (1 + std::abs(wanted)))
          << "output " << o << ", element " << i;
    }
}

void expect_right(const NormalForm& form, const Sizes& sizes) {
  static const testing::KeptCompiler compiler(*HostCompiler::find());
  const auto local = compile_locally(form.graph, form.digest, host_cpu_target(), compiler, 2);
  ASSERT_TRUE(local) << local.error().message;
  const auto executable = Executable::load(CpuDevice::make(2), local->program, local->artifacts);
  ASSERT_TRUE(executable) << executable.error().message;
  for (const auto& symbols : sizes) expect_agrees(form, *executable, *local, symbols);
}

// As many kernels are launched as when the sizes are constants.
void expect_as_few_launches(const NormalForm& form, const std::vector<int64_t>& sizes) {
  std::vector<Symbol> symbols;
  for (const int64_t size : sizes) symbols.push_back({{size, size}, size});
  const auto fixed = normalise(*specialise(form.graph, symbols));
  EXPECT_EQ(plan(form.graph)->launches.size(), plan(fixed->graph)->launches.size());
}

// The first schedule of every kernel, on the fake GPU, at the sizes that the launches tell it.
void expect_right_on_gpu(const NormalForm& form, const Sizes& sizes) {
  const Target target = *Target::parse("cuda:sm_90a");
  const auto planned = plan(form.graph);
  ASSERT_TRUE(planned) << planned.error().message;
  for (const Launch& launch : planned->launches) {
    const Workload& kernel = planned->kernels[static_cast<size_t>(launch.kernel)];
    const auto space = search_space(kernel, target);
    ASSERT_TRUE(space) << to_string(kernel.family) << ": " << space.error().message;
    Sizes dims;
    for (const auto& symbols : sizes) dims.push_back(testing::sizes_at(launch.dims, symbols));
    EXPECT_EQ(testing::check_sizes(kernel, (*space)[0], target, dims), "")
        << to_string(kernel.family);
  }
}

TEST(DynamicPrograms, AConvolutionalNetworkOfAnyBatch) {
  const NormalForm form = testing::convolutional_network();
  expect_right(form, {{1}, {2}, {7}, {64}});
  expect_right_on_gpu(form, {{1}, {5}});
  expect_as_few_launches(form, {8});
}

TEST(DynamicPrograms, AConvolutionalNetworkOfAnyImage) {
  const NormalForm form = testing::network_of_any_image();
  expect_right(form, {{1, 1, 1}, {2, 3, 4}, {3, 1, 9}, {1, 17, 5}});
  expect_right_on_gpu(form, {{1, 1, 1}, {2, 5, 3}});
}

TEST(DynamicPrograms, ALossOverAnEmbedding) {
  expect_right(testing::embedding_loss(), {{1, 1}, {2, 128}, {7, 5}, {1, 129}});
}

TEST(DynamicPrograms, EmbeddingsOfFixedPositions) {
  expect_right(testing::embedding_of_fixed_positions(), {{1}, {3}, {40}});
}

TEST(DynamicPrograms, ATransformerBlockOfAnyBatch) {
  const NormalForm form = testing::transformer_of_any_batch();
  expect_right(form, {{1}, {2}, {9}});
  expect_as_few_launches(form, {4});
}

TEST(DynamicPrograms, ATransformerBlockOfAnyBatchAndLength) {
  const NormalForm form = testing::transformer_of_any_batch_and_length();
  expect_right(form, {{1, 1}, {33, 2}, {7, 5}, {1, 130}});
  expect_as_few_launches(form, {4, 12});
}

TEST(DynamicPrograms, ALanguageModelOfAnyBatchAndLength) {
  const NormalForm form = testing::language_model();
  expect_right(form, {{1, 1}, {7, 3}, {128, 1}});
  expect_right_on_gpu(form, {{1, 1}, {19, 2}});
  expect_as_few_launches(form, {24, 4});
  const auto planned = plan(form.graph);
  EXPECT_EQ(std::count_if(planned->kernels.begin(), planned->kernels.end(),
                          [](const Workload& w) { return w.family == Family::kAttention; }),
            1);
}

TEST(DynamicPrograms, SortsScansAndScattersOfAnyBatch) {
  const NormalForm form = testing::sorts_scans_and_scatters();
  expect_right(form, {{1}, {2}, {33}, {2000}});
  expect_right_on_gpu(form, {{1}, {70}});
  expect_as_few_launches(form, {32});
}

}  // namespace
}  // namespace kiln
