// Offers of kernels: which kernel of a graph they are for, and what is refused.
#include "client/kernel_offer.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"

namespace kiln {
namespace {

constexpr char kSource[] =
    "static void f(const float* y, const float* x, float* out, int64_t begin, int64_t end) {\n"
    "  for (int64_t i = begin; i < end; ++i) out[i] = x[i] - y[i];\n}\n";

Graph difference(const Dim& size = 100) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {size}), y = b.input(DType::kF32, {size});
  return *b.finish({b.binary(Op::kSub, x, y)});
}

KernelOffer source_offer(std::vector<int> arguments = {1, 0, -1}) {
  return {"f", *Target::parse("cpu"), std::move(arguments), KernelText{kSource, "f"}};
}

KernelOffer binary_offer() {
  KernelBinary binary{
      "\x7f"
      "ELF",
      "entry", 4, 32};
  binary.null_pointers = 2;
  return {"f", *Target::parse("cuda:sm_90a"), {-1, 0, 1}, binary};
}

void expect_refused(const Graph& graph, const KernelOffer& offer, const std::string& word,
                    Code code = Code::kInvalidArgument) {
  const auto made = make_offer(graph, offer, {});
  ASSERT_FALSE(made) << word;
  EXPECT_EQ(made.error().code, code);
  EXPECT_NE(made.error().message.find(word), std::string::npos) << made.error().message;
}

TEST(KernelOffer, ASourceIsCompiledForTheKernelThatTheGraphIs) {
  const auto made = make_offer(difference(), source_offer(), {});
  ASSERT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->target.isa, host_cpu_target().isa);
  EXPECT_EQ(made->recipe.inputs.size(), 2u);
  EXPECT_EQ(made->recipe.phases[0].grid.constant(), 1) << "100 items, 1024 a block";
  EXPECT_TRUE(
      made->binary.starts_with("\x7f"
                               "ELF"));
  const auto again = make_offer(difference(), source_offer(), {});
  EXPECT_EQ(again->key(), made->key()) << "the same again is the same candidate";
}

TEST(KernelOffer, ABinaryTakesItsArgumentsInItsOrder) {
  const auto made = make_offer(difference(), binary_offer(), {});
  ASSERT_TRUE(made) << made.error().message;
  const Phase& phase = made->recipe.phases[0];
  ASSERT_EQ(phase.arguments.size(), 5u);
  EXPECT_EQ(phase.arguments[0].index, 2) << "the output stands behind the inputs";
  EXPECT_EQ(phase.arguments[3].kind, KernelArgument::Kind::kWorkspace);
  EXPECT_EQ(made->recipe.workspace_bytes, Dim(0)) << "so that it is null";
}

TEST(KernelOffer, AGraphOfSeveralKernelsIsRefusedWithTheirKinds) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {64, 64});
  const Graph two = *b.finish({b.matmul(b.matmul(x, x), x)});
  expect_refused(two, source_offer({0, -1}), "2 kernels (matmul, matmul)");
}

TEST(KernelOffer, ArgumentsThatAreNotTheGraphsAreRefused) {
  expect_refused(difference(), source_offer({0, -1}), "not given input 1");
  expect_refused(difference(), source_offer({0, 1}), "not given output 0");
  expect_refused(difference(), source_offer({0, 1, -1, 1}), "twice");
  expect_refused(difference(), source_offer({0, 1, 2, -1}), "does not have its input 2");
}

TEST(KernelOffer, WhatCannotBeMadeIsRefused) {
  KernelOffer broken = source_offer();
  std::get<KernelText>(broken.kernel).text += "int 3;\n";
  expect_refused(difference(), broken, "f:4");
  KernelOffer reads = source_offer();
  std::get<KernelText>(reads.kernel).text = "#include \"/etc/passwd\"\n";
  expect_refused(difference(), reads, "include");
  KernelOffer unnamed = source_offer();
  unnamed.name = "a b";
  expect_refused(difference(), unnamed, "name");
  KernelOffer wide = binary_offer();
  std::get<KernelBinary>(wide.kernel).threads = 2048;
  expect_refused(difference(), wide, "2048 threads");
  KernelOffer vague = binary_offer();
  vague.target = *Target::parse("cuda");
  expect_refused(difference(), vague, "in full");
  KernelOffer on_a_cpu = binary_offer();
  on_a_cpu.target = *Target::parse("cpu");
  expect_refused(difference(), on_a_cpu, "source", Code::kUnsupported);
}

}  // namespace
}  // namespace kiln
