// compile_locally: default mode from a graph to a program that runs.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/local.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/runtime/cpu_device.h"
#include "compiler_core/runtime/executable.h"

namespace kiln {
namespace {

// relu(x w1) w2, then each row divided by its sum of squares.
NormalForm two_layers() {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {9, 20});
  const NodeId zero = b.broadcast(b.constant(DType::kF32, 0), {9, 33});
  NodeId y = b.binary(Op::kMax, b.matmul(x, b.input(DType::kF32, {20, 33})), zero);
  y = b.matmul(y, b.input(DType::kF32, {33, 18}));
  const NodeId squares = b.reduce(Op::kReduceSum, b.binary(Op::kMul, y, y), {1}, true);
  y = b.binary(Op::kDiv, y, b.broadcast(squares, {9, 18}));
  return *normalise(*b.finish({y}));
}

const HostCompiler& compiler() {
  static const HostCompiler found = *HostCompiler::find();
  return found;
}

TEST(CompileLocally, GivesAProgramThatAgreesWithTheInterpreter) {
  const NormalForm form = two_layers();
  auto local = compile_locally(form.graph, form.digest, host_cpu_target(), compiler(), 2);
  ASSERT_TRUE(local) << local.error().message;
  const auto executable = Executable::load(CpuDevice::make(2), local->program, local->artifacts);
  ASSERT_TRUE(executable) << executable.error().message;

  std::vector<Tensor> inputs;
  std::vector<void*> in;
  std::vector<const Tensor*> operands;
  for (const NodeId id : form.graph.inputs())
    inputs.emplace_back(DType::kF32, constant_sizes(form.graph.node(id).shape));
  for (Tensor& tensor : inputs) {
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, std::sin(static_cast<double>(i)));
    in.push_back(tensor.data());
    operands.push_back(&tensor);
  }
  Tensor output(DType::kF32, {9, 18});
  void* const out[] = {output.data()};
  for (int again = 0; again < 2; ++again) {
    ASSERT_TRUE(executable->launch(device_ptrs(in), device_ptrs(out), nullptr));
    const auto expected = interpret(form.graph, operands, Precision::kHigh);
    ASSERT_TRUE(expected);
    for (int64_t i = 0; i < output.numel(); ++i)
      ASSERT_NEAR(output.get(i), (*expected)[0].get(i), 1e-5) << "element " << i;
  }
}

TEST(CompileLocally, SaysWhatItMade) {
  const NormalForm form = two_layers();
  const Target target = host_cpu_target();
  const auto local = compile_locally(form.graph, form.digest, target, compiler(), 1);
  ASSERT_TRUE(local) << local.error().message;
  const Program& program = local->program;
  EXPECT_EQ(program.graph, form.digest);
  EXPECT_EQ(program.key, program_key(form.digest, target, Mode::kDefault));
  EXPECT_EQ(program.mode, Mode::kDefault);
  ASSERT_EQ(program.kernels.size(), local->artifacts.size());
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    EXPECT_EQ(program.kernels[i].blob, local->artifacts[i].digest);
    EXPECT_EQ(program.kernels[i].recipe, local->artifacts[i].recipe);
    EXPECT_TRUE(Schedule::parse(program.kernels[i].schedule));
  }
  const auto text = program_from_json(program_to_json(program));
  ASSERT_TRUE(text) << text.error().message;
  EXPECT_EQ(*text, program);
}

TEST(CompileLocally, GivesTheSameProgramHoweverManyCompileAtOnce) {
  const NormalForm form = two_layers();
  const auto one = compile_locally(form.graph, form.digest, host_cpu_target(), compiler(), 1);
  const auto many = compile_locally(form.graph, form.digest, host_cpu_target(), compiler(), 8);
  ASSERT_TRUE(one && many);
  EXPECT_EQ(one->program, many->program);
}

TEST(CompileLocally, PassesOnWhatNoKernelCovers) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF8E5M2, {4, 8}), y = b.input(DType::kF8E5M2, {8, 4});
  const NormalForm form = *normalise(*b.finish({b.matmul(x, y)}));
  const auto local = compile_locally(form.graph, form.digest, host_cpu_target(), compiler(), 2);
  ASSERT_FALSE(local);
  EXPECT_EQ(local.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kiln
