// A C++ program's own op through the real service, with kernels of Kiln's around it: tuned,
// verified, cached; and what its author hears when it is wrong.
#include <gtest/gtest.h>

#include <cmath>

#include "client/client.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/program/program.h"
#include "tests/compiler_core/ir/sample_custom_op.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

constexpr int64_t kCallRows = 37, kCallColumns = 300;

// tanh(swish(sin(x), b) * rowmax(b)), swish being the user's.
Graph program_with(const CustomOp& op) {
  GraphBuilder b;
  const Shape shape = {kCallRows, kCallColumns};
  const NodeId x = b.input(DType::kF32, shape), bias = b.input(DType::kF32, shape);
  const NodeId in[] = {b.unary(Op::kSin, x), bias};
  const NodeId scale = b.broadcast(b.reduce(Op::kReduceMax, bias, {1}, true), Shape(shape));
  auto graph = b.finish({b.unary(Op::kTanh, b.binary(Op::kMul, op.call(b, in), scale))});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return *std::move(graph);
}

Tensor values(double step) {
  Tensor tensor(DType::kF32, {kCallRows, kCallColumns});
  for (int64_t i = 0; i < tensor.numel(); ++i)
    tensor.set(i, std::sin(step * static_cast<double>(i)));
  return tensor;
}

class CustomCalls : public ::testing::Test {
 protected:
  CustomCalls() : dir_(*TempDir::create()) {}

  // A new client: what it finds, it finds at the service.
  std::unique_ptr<Client> client(const Service& service, bool gpu = false) const {
    ClientOptions options;
    options.coordinator = service.endpoint();
    options.allow_fallback = false;
    options.connect_timeout = std::chrono::seconds(60);
#ifdef KILN_FAKE_LIBCUDA
    if (gpu) {
      options.libcuda = KILN_FAKE_LIBCUDA;
      options.libnvrtc = KILN_FAKE_LIBNVRTC;
    }
#endif
    return *Client::create(std::move(options));
  }
  static CompileOptions wanted(Mode mode, bool gpu = false) {
    CompileOptions options;
    if (gpu) options.target = *Target::parse("cuda");
    options.mode = mode;
    return options;
  }
  static void expect_right(const CompiledProgram& program, const Graph& graph) {
    const Tensor x = values(0.7), bias = values(0.3);
    const Tensor* inputs[] = {&x, &bias};
    const auto got = program.run(inputs);
    ASSERT_TRUE(got.has_value()) << got.error().message;
    const auto want = interpret(graph, inputs);
    for (int64_t i = 0; i < x.numel(); ++i)
      ASSERT_NEAR((*got)[0].get(i), (*want)[0].get(i), 1e-5) << i;
  }
  static const ProgramKernel* custom_kernel(const Program& program) {
    for (const ProgramKernel& kernel : program.kernels)
      if (kernel.family == "custom") return &kernel;
    return nullptr;
  }
  void expect_tuned_and_kept(const Service& service, bool gpu, int candidates) const {
    const Graph graph = program_with(swish_op());
    const auto tuned = client(service, gpu)->compile(graph, wanted(Mode::kMaxAutotune, gpu));
    ASSERT_TRUE(tuned.has_value()) << tuned.error().message << service.log();
    EXPECT_EQ((*tuned)->outcome(), Outcome::kTuned);
    expect_right(**tuned, graph);
    const Program& program = (*tuned)->program();
    EXPECT_EQ(program.launches.size(), 3u) << "sin; swish; the row's maximum with tanh";
    const ProgramKernel* kernel = custom_kernel(program);
    ASSERT_NE(kernel, nullptr);
    EXPECT_EQ(kernel->report.candidates, candidates);
    EXPECT_TRUE(kernel->schedule.starts_with("custom ")) << kernel->schedule;

    const auto hit = client(service, gpu)->compile(graph, wanted(Mode::kMaxAutotune, gpu));
    ASSERT_TRUE(hit.has_value()) << hit.error().message;
    EXPECT_EQ((*hit)->outcome(), Outcome::kHit);
    expect_right(**hit, graph);

    // Another text is another kernel; those around it are known.
    CustomOp edited = swish_op();
    for (CustomKernel& text : edited.kernels) text.source += "// edited\n";
    const auto again =
        client(service, gpu)->compile(program_with(edited), wanted(Mode::kDefault, gpu));
    ASSERT_TRUE(again.has_value()) << again.error().message;
    EXPECT_NE((*again)->outcome(), Outcome::kHit);
    EXPECT_NE(custom_kernel((*again)->program())->key, kernel->key);
    expect_right(**again, graph);
  }

  TempDir dir_;
};

TEST_F(CustomCalls, ATunedOneIsRightAndKept) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  expect_tuned_and_kept(service, false, 3);
}

#ifdef KILN_FAKE_LIBCUDA
TEST_F(CustomCalls, ATunedOneIsRightAndKeptOnAGpu) {
  const Service service(dir_.path() / "data", {"--device", "cuda:0", "--libcuda", KILN_FAKE_LIBCUDA,
                                               "--libnvrtc", KILN_FAKE_LIBNVRTC});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  expect_tuned_and_kept(service, true, 2);
}
#endif

TEST_F(CustomCalls, AWrongKernelIsNeverServed) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  // Wrong under every decision.
  CustomOp op = swish_op();
  const size_t plus = op.kernels[0].source.rfind("+ in1[j]");
  op.kernels[0].source.replace(plus, 1, "-");
  for (const Mode mode : {Mode::kMaxAutotune, Mode::kDefault}) {
    const auto refused = client(service)->compile(program_with(op), wanted(mode));
    ASSERT_FALSE(refused.has_value());
    EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
    EXPECT_NE(refused.error().message.find("wrong_result"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("expected"), std::string::npos)
        << refused.error().message;
  }
  // Wrong at the author's first guess: the search finds the right one.
  CustomOp half = swish_op();
  half.kernels[0].decisions[0] = {"UNROLL", {0, 4}};
  half.kernels[0].source = R"(
static void swish(const float* in0, const float* in1, float* out0, int64_t begin, int64_t end) {
  for (int64_t j = begin; j < end; ++j)
    out0[j] = UNROLL == 0 ? in1[j] : in0[j] / (1 + __builtin_expf(-in0[j])) + in1[j];
}
)";
  const Graph graph = program_with(half);
  const auto found = client(service)->compile(graph, wanted(Mode::kMaxAutotune));
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(custom_kernel((*found)->program())->schedule, "custom UNROLL=4");
  expect_right(**found, graph);
}

TEST_F(CustomCalls, AKernelThatWritesOutsideItsBuffersIsRefused) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  CustomOp op = swish_op();
  op.kernels[0].source.replace(op.kernels[0].source.find("i < end"), 7, "i <= end");
  op.kernels[0].source.replace(op.kernels[0].source.find("j < end"), 7, "j <= end");
  const auto refused = client(service)->compile(program_with(op), wanted(Mode::kMaxAutotune));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("out_of_bounds"), std::string::npos)
      << refused.error().message;
}

TEST_F(CustomCalls, WhatTheCompilerSaysReachesTheAuthor) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  CustomOp op = swish_op();
  op.kernels[0].source = "\nstatic void swish(const float*) { no such thing; }\n";
  const auto refused = client(service)->compile(program_with(op), wanted(Mode::kMaxAutotune));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kInvalidArgument) << refused.error().message;
  EXPECT_NE(refused.error().message.find("tests::swish_bias:2"), std::string::npos)
      << refused.error().message;
}

TEST_F(CustomCalls, NoKernelForTheTargetIsSaidByName) {
  const Service service(dir_.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  CustomOp op = swish_op();
  op.kernels.erase(op.kernels.begin());
  const auto refused = client(service)->compile(program_with(op), wanted(Mode::kDefault));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, Code::kUnsupported) << refused.error().message;
  EXPECT_NE(refused.error().message.find("tests::swish_bias has no kernel for cpu"),
            std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace kiln::testing
