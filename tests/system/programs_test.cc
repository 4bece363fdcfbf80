// Every covered program of tests/graphs gives PyTorch's answer through the real service.
#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

struct NamedProgram {
  const char* name;
  size_t launches;  // a good human's plan; 0 where none is laid down
};

class Programs : public OneService<::testing::TestWithParam<NamedProgram>> {
 protected:
  static void expect_right(const std::string& mode) {
    const NamedProgram& program = GetParam();
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
        NamedProgram{"fused_gelu", 1}, NamedProgram{"sincos", 1},
        NamedProgram{"sincos_broadcast", 1}, NamedProgram{"dup_and_dead", 1},
        NamedProgram{"softmax", 1}, NamedProgram{"softmax_dim0", 1}, NamedProgram{"layernorm", 1},
        NamedProgram{"rmsnorm_residual", 1}, NamedProgram{"swiglu", 1}, NamedProgram{"rope", 1},
        NamedProgram{"colsum", 1}, NamedProgram{"relu_matmul", 1}, NamedProgram{"matmul", 1},
        NamedProgram{"matmul_bf16", 1}, NamedProgram{"linear_decode", 1},
        NamedProgram{"linear_bias_gelu", 1}, NamedProgram{"mlp_silu", 2},
        NamedProgram{"mlp_relu", 2}, NamedProgram{"ffn_gelu", 2}, NamedProgram{"linear_ln_gelu", 2},
        NamedProgram{"attention", 1}, NamedProgram{"argmax", 1}, NamedProgram{"where_on_sum", 1},
        NamedProgram{"cross_entropy", 2}, NamedProgram{"sdpa_causal", 1},
        NamedProgram{"cond_sin_cos", 1}, NamedProgram{"embedding_sum", 2},
        NamedProgram{"train_step_mlp", 15}, NamedProgram{"attention_backward", 0},
        NamedProgram{"layernorm_backward", 0}, NamedProgram{"conv_backward", 0},
        NamedProgram{"conv_bn_relu", 2}, NamedProgram{"conv_residual", 4}, NamedProgram{"bert", 21},
        NamedProgram{"gpt2", 21}, NamedProgram{"llama", 29}),
    [](const auto& param) { return std::string(param.param.name); });

}  // namespace
}  // namespace kiln::testing
