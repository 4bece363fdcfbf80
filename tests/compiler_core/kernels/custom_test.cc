#include "compiler_core/kernels/custom/custom.h"

#include <gtest/gtest.h>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/nvrtc.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/ir/sample_custom_op.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::swish_op;

Target cuda(const char* name = "cuda:sm_90a") {
  Target target = *Target::parse(name);
  target.units = 132;
  return target;
}

Workload workload_of(const CustomOp& op, Shape shape) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, shape), bias = b.input(DType::kF32, shape);
  const NodeId in[] = {x, bias};
  const auto graph = b.finish({op.call(b, in)});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made->workload;
}

std::string check_custom(const CustomOp& op, const Shape& shape) {
  const Workload workload = workload_of(op, shape);
  std::mt19937 random(3);
  const auto inputs = testing::random_inputs(workload.graph, random);
  for (const Target& target : {testing::targets()[0], cuda()}) {
    const std::string wrong = check_space(workload, target, inputs, 100);
    if (!wrong.empty()) return wrong;
  }
  return "";
}

TEST(CustomKernels, EveryDecisionComputesTheReference) {
  EXPECT_EQ(check_custom(swish_op(), {7, 333}), "");
  EXPECT_EQ(check_custom(swish_op(), {1}), "");
}

// One item a row; shared memory, a barrier, sizes by name.
TEST(CustomKernels, ItemsMayBeRows) {
  CustomOp op;
  op.name = "tests::row_max";
  op.shape = [](std::span<const OperandType> in) {
    return OperandType{in[0].dtype, {in[0].shape[0]}};
  };
  op.reference = [](GraphBuilder& b, std::span<const NodeId> in) {
    return b.reduce(Op::kReduceMax, in[0], {1});
  };
  op.items = [](std::span<const OperandType> in, const OperandType&) {
    return in[0].shape[0].constant();
  };
  CustomKernel cpu, cuda_kernel;
  cpu.backend = "cpu";
  cpu.function = cuda_kernel.function = "row_max";
  cpu.source = R"(
static void row_max(const float* x, float* out, int64_t begin, int64_t end) {
  for (int64_t row = begin; row < end; ++row) {
    float most = x[row * KILN_IN0_DIM1];
    for (int64_t j = 1; j < KILN_IN0_DIM1; ++j)
      most = x[row * KILN_IN0_DIM1 + j] > most ? x[row * KILN_IN0_DIM1 + j] : most;
    out[row] = most;
  }
})";
  cuda_kernel.backend = "cuda";
  cuda_kernel.source = R"(
KILN_INLINE void row_max(const float* x, float* out) {
  float* best = reinterpret_cast<float*>(shared_memory());
  float most = x[block_index() * KILN_IN0_DIM1];
  for (int j = thread_index(); j < KILN_IN0_DIM1; j += KILN_THREADS) {
    const float next = x[block_index() * KILN_IN0_DIM1 + j];
    most = next > most ? next : most;
  }
  best[thread_index()] = most;
  block_barrier();
  if (thread_index() != 0) return;
  for (int t = 1; t < KILN_THREADS; ++t) most = best[t] > most ? best[t] : most;
  out[block_index()] = most;
})";
  cuda_kernel.decisions = {{"THREADS", {64, 32}}};
  cuda_kernel.threads = "THREADS";
  cuda_kernel.shared_bytes = "4*THREADS";
  op.kernels = {cpu, cuda_kernel};
  GraphBuilder b;
  const NodeId in[] = {b.input(DType::kF32, {9, 150})};
  const auto graph = b.finish({op.call(b, in)});
  ASSERT_TRUE(graph.has_value()) << graph.error().message;
  const auto made = make_workload(*graph);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  std::mt19937 random(3);
  const auto inputs = testing::random_inputs(made->workload.graph, random);
  EXPECT_EQ(check_space(made->workload, testing::targets()[0], inputs, 9), "");
  EXPECT_EQ(check_space(made->workload, cuda(), inputs, 9), "");
}

TEST(CustomKernels, NumbersOutOfRangeAreRefused) {
  const auto refused = [](void (*change)(CustomKernel&)) {
    CustomOp op = swish_op();
    change(op.kernels[1]);
    const Workload workload = workload_of(op, {4});
    const auto source = lower_to_source(workload, search_space(workload, cuda())->front(), cuda());
    return source ? "" : source.error().message;
  };
  EXPECT_EQ(refused([](CustomKernel&) {}), "");
  EXPECT_NE(refused([](CustomKernel& k) { k.threads = "1025"; }).find("1025 threads"),
            std::string::npos);
  EXPECT_NE(refused([](CustomKernel& k) { k.threads = "0"; }).find("0 threads"), std::string::npos);
  EXPECT_NE(refused([](CustomKernel& k) { k.block = "0"; }).find("no items"), std::string::npos);
  EXPECT_NE(refused([](CustomKernel& k) { k.shared_bytes = "1000000"; }).find("shared memory"),
            std::string::npos);
  EXPECT_NE(refused([](CustomKernel& k) {
              k.items = INT64_MAX;
              k.block = "1";
            }).find("2^31"),
            std::string::npos);
}

TEST(CustomKernels, WhatTheCompilerSaysNamesTheCallAndTheAuthorsLine) {
  CustomOp op = swish_op();
  op.kernels[0].source = "\n\nstatic void swish() { nonsense; }\n";
  const Workload workload = workload_of(op, {4});
  const Target target = testing::targets()[0];
  const auto source = lower_to_source(workload, search_space(workload, target)->front(), target);
  ASSERT_TRUE(source.has_value());
  const auto compiled = HostCompiler::find()->compile(*source, target, 60'000);
  ASSERT_FALSE(compiled.has_value());
  EXPECT_NE(compiled.error().message.find("tests::swish_bias:3"), std::string::npos)
      << compiled.error().message;
}

TEST(CustomKernels, CompileForRealCards) {
  const auto nvrtc = Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  for (const char* name : {"cuda:sm_80", "cuda:sm_90a"}) {
    const Workload workload = workload_of(swish_op(), {1000});
    const auto space = search_space(workload, cuda(name));
    for (const Schedule& schedule : *space) {
      const auto compiled =
          nvrtc->compile(*lower_to_source(workload, schedule, cuda(name)), cuda(name));
      ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
      EXPECT_EQ(compiled->resources.spill_bytes, 0);
    }
  }
}

}  // namespace
}  // namespace kiln
