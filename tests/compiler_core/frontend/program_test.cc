// Real torch.export programs, evaluated by the interpreter against what PyTorch computed.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/verify.h"

namespace kiln {
namespace {

const Path kGraphs = KILN_GRAPHS_DIR;

// How far `got` may be from `expected`: two units in the last place of the halves, and rounding
// that grows with the magnitude of what was summed.
double tolerance(DType dtype, double expected, double magnitude) {
  if (!is_float(dtype)) return 0;
  const double rounding = 2e-5 * magnitude;
  if (!is_half(dtype)) return rounding;
  const int mantissa = dtype == DType::kBF16 ? 7 : 10;
  return rounding + 2 * std::ldexp(1, std::ilogb(std::abs(expected) + 1e-30) - mantissa);
}

void expect_close(const Tensor& got, const Tensor& expected, const std::string& name) {
  ASSERT_EQ(got.dtype(), expected.dtype()) << name;
  ASSERT_EQ(got.sizes(), expected.sizes()) << name;
  double magnitude = 0;
  for (int64_t i = 0; i < expected.numel(); ++i)
    magnitude = std::max(magnitude, std::abs(expected.get(i)));
  for (int64_t i = 0; i < expected.numel(); ++i)
    ASSERT_NEAR(got.get(i), expected.get(i), tolerance(got.dtype(), expected.get(i), magnitude))
        << name << " at " << i;
}

class SmallProgram : public ::testing::TestWithParam<const char*> {};

TEST_P(SmallProgram, computes_what_pytorch_computed) {
  const Path file = kGraphs / "small" / (std::string(GetParam()) + ".pt2");
  const auto program = read_exported_program(file);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(verify(program->graph)) << verify(program->graph).error().message;
  const auto data =
      read_safetensors(kGraphs / "small" / (std::string(GetParam()) + ".safetensors"));
  ASSERT_TRUE(data) << data.error().message;
  std::vector<Tensor> inputs;
  int users = 0;
  for (const ExportedInput& input : program->inputs) {
    if (input.kind == ExportedInput::Kind::kUser) {
      inputs.push_back(data->at("in" + std::to_string(users++)).clone());
      continue;
    }
    auto payload = read_payload(file, input);
    ASSERT_TRUE(payload) << payload.error().message;
    inputs.push_back(*std::move(payload));
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const auto outputs = interpret(program->graph, pointers);
  ASSERT_TRUE(outputs) << outputs.error().message;
  ASSERT_FALSE(outputs->empty());
  for (size_t i = 0; i < outputs->size(); ++i) {
    const std::string name = "out" + std::to_string(i);
    ASSERT_TRUE(data->contains(name)) << name;
    expect_close((*outputs)[i], data->at(name), name);
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, SmallProgram,
    ::testing::Values("fused_gelu", "sincos", "sincos_broadcast", "dup_and_dead", "softmax",
                      "softmax_dim0", "layernorm", "rmsnorm_residual", "swiglu", "rope", "colsum",
                      "relu_matmul", "matmul", "matmul_bf16", "linear_decode", "linear_bias_gelu",
                      "mlp_silu", "mlp_relu", "ffn_gelu", "linear_ln_gelu", "attention",
                      // Beyond the programs that must run: what their ops happen to be covered for.
                      "batch_dynamic_mlp", "seq_dynamic_softmax", "sdpa_causal", "argmax",
                      "where_on_sum", "cross_entropy", "train_step_mlp", "llama", "gpt2", "bert",
                      "cond_sin_cos", "embedding_sum", "conv_bn_relu", "conv_residual"),
    [](const auto& program) { return std::string(program.param); });

class LargeProgram : public ::testing::TestWithParam<const char*> {};

TEST_P(LargeProgram, is_read_and_valid_without_its_weights) {
  const auto program =
      read_exported_program(kGraphs / "large" / (std::string(GetParam()) + ".pt2"));
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_TRUE(verify(program->graph)) << verify(program->graph).error().message;
  for (const ExportedInput& input : program->inputs) EXPECT_FALSE(input.has_payload) << input.name;
}

INSTANTIATE_TEST_SUITE_P(All, LargeProgram,
                         ::testing::Values("attention", "colsum", "cross_entropy", "fused_gelu",
                                           "layernorm", "linear_bias_gelu", "linear_decode",
                                           "llama_16x2048", "matmul", "matmul_bf16", "mlp_silu",
                                           "resnet18", "resnet50_bf16", "rmsnorm_residual",
                                           "sdpa_causal", "sincos", "softmax", "swiglu"),
                         [](const auto& program) { return std::string(program.param); });

TEST(ExportedProgram, keeps_the_users_names_and_kinds) {
  const auto program = read_exported_program(kGraphs / "small" / "mlp_relu.pt2");
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->inputs.size(), 5u);
  EXPECT_EQ(program->inputs[0].name, "net.0.weight");
  EXPECT_EQ(program->inputs[0].kind, ExportedInput::Kind::kParameter);
  EXPECT_TRUE(program->inputs[0].has_payload);
  EXPECT_EQ(program->inputs[4].name, "x");
  EXPECT_EQ(program->inputs[4].kind, ExportedInput::Kind::kUser);
  EXPECT_EQ(program->graph.inputs().size(), 5u);
}

TEST(ExportedProgram, a_dynamic_batch_becomes_a_symbol_with_its_range) {
  const auto program = read_exported_program(kGraphs / "small" / "batch_dynamic_mlp.pt2");
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->graph.symbols().size(), 1u);
  EXPECT_EQ(program->graph.symbols()[0], (Symbol{{1, 4096}, 32}));
}

TEST(ExportedProgram, a_dynamic_batch_runs_at_another_size) {
  const Path file = kGraphs / "small" / "batch_dynamic_mlp.pt2";
  const auto program = read_exported_program(file);
  ASSERT_TRUE(program) << program.error().message;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < 4; ++i) inputs.push_back(read_payload(file, program->inputs[i]).value());
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{3, program->inputs[4].shape[1].constant()});
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const auto outputs = interpret(program->graph, pointers);
  ASSERT_TRUE(outputs) << outputs.error().message;
  EXPECT_EQ((*outputs)[0].sizes(), (std::vector<int64_t>{3, 4}));
}

TEST(ExportedProgram, a_graph_only_archive_has_no_payload_to_read) {
  const Path file = kGraphs / "large" / "llama_16x2048.pt2";
  const auto program = read_exported_program(file);
  ASSERT_TRUE(program) << program.error().message;
  const auto payload = read_payload(file, program->inputs[0]);
  ASSERT_FALSE(payload);
  EXPECT_EQ(payload.error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
