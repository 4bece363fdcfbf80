// Every covered program of tests/graphs gives PyTorch's answer through the real service.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

struct Program {
  const char* name;
  size_t launches;  // a good human's plan; 0 where none is laid down
};

class Programs : public OneService<::testing::TestWithParam<Program>> {
 protected:
  static void expect_right(const std::string& mode) {
    const Program& program = GetParam();
    const std::string archive = small_graph(program.name) + ".pt2";
    // Training graphs written by hand are in text form.
    const std::string file =
        std::filesystem::exists(archive) ? archive : small_graph(program.name) + ".graph";
    const Finished ran =
        ask({binary("kiln"), "run", file, "--expect", small_graph(program.name) + ".safetensors",
             "--mode", mode, "--coordinator", service_->endpoint(), "--no-fallback", "--json"});
    EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err << service_->log();
    const nlohmann::json report = ran.json();
    ASSERT_TRUE(report.is_object()) << ran.out;
    EXPECT_TRUE(report["ok"].get<bool>()) << ran.out;
    EXPECT_TRUE(report["compared"].get<bool>());
    EXPECT_NE(report["cache"], "local");
    if (program.launches == 0) return;
    EXPECT_EQ(report["launches"], program.launches) << ran.out;
  }
};

TEST_P(Programs, RunRightInDefaultMode) {
  expect_right("default");
}
TEST_P(Programs, RunRightWhenTuned) {
  expect_right("max-autotune");
}

INSTANTIATE_TEST_SUITE_P(
    , Programs,
    ::testing::Values(
        Program{"fused_gelu", 1}, Program{"sincos", 1}, Program{"sincos_broadcast", 1},
        Program{"dup_and_dead", 1}, Program{"softmax", 1}, Program{"softmax_dim0", 1},
        Program{"layernorm", 1}, Program{"rmsnorm_residual", 1}, Program{"swiglu", 1},
        Program{"rope", 1}, Program{"colsum", 1}, Program{"relu_matmul", 1}, Program{"matmul", 1},
        Program{"matmul_bf16", 1}, Program{"linear_decode", 1}, Program{"linear_bias_gelu", 1},
        Program{"mlp_silu", 2}, Program{"mlp_relu", 2}, Program{"ffn_gelu", 2},
        Program{"linear_ln_gelu", 2}, Program{"attention", 1}, Program{"argmax", 1},
        Program{"where_on_sum", 1}, Program{"cross_entropy", 2}, Program{"sdpa_causal", 1},
        Program{"cond_sin_cos", 1}, Program{"embedding_sum", 2}, Program{"train_step_mlp", 15},
        Program{"attention_backward", 0}, Program{"layernorm_backward", 0},
        Program{"conv_backward", 0}, Program{"conv_bn_relu", 2}, Program{"conv_residual", 4},
        Program{"bert", 21}, Program{"gpt2", 21}, Program{"llama", 29}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace kiln::testing
