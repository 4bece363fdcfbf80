// One model exported in several ways, and one computation written in several ways, get one digest;
// what changes a result gets another. Over whole programs: from model.json to the digest.
#include <gtest/gtest.h>

#include <functional>

#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/pt2_archive.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/frontend/model_text.h"
#include "tests/support/exported_variants.h"

namespace kiln::testing {
namespace {

Result<Digest> digest_of_model(const std::string& json) {
  TRY(const ExportedModel model, parse_exported_model(json));
  TRY(const ExportedProgram program, lower_exported_model(model));
  TRY(const NormalForm form, normalise(program.graph));
  return form.digest;
}

void expect_digest(const std::string& json, const Digest& expected, const char* what) {
  const auto digest = digest_of_model(json);
  ASSERT_TRUE(digest.has_value()) << what << ": " << digest.error().message;
  EXPECT_EQ(*digest, expected) << what;
}

class ExportedTwice : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    const Path file = Path(KILN_GRAPHS_DIR) / "small" / (std::string(GetParam()) + ".pt2");
    const auto archive = Pt2Archive::open(file);
    ASSERT_TRUE(archive.has_value()) << archive.error().message;
    json_ = archive->read_text("models/model.json", 0).value();
    const auto digest = digest_of_model(json_);
    ASSERT_TRUE(digest.has_value()) << digest.error().message;
    digest_ = *digest;
  }
  std::string json_;
  Digest digest_;
};

TEST_P(ExportedTwice, HasOneDigest) {
  EXPECT_NE(with_other_names(json_), json_);
  EXPECT_NE(on_device(json_, "cuda", 1), json_);
  EXPECT_NE(with_views_that_do_nothing(json_), json_);
  expect_digest(with_other_names(json_), digest_, "other names");
  expect_digest(with_parameters_reversed(json_), digest_, "parameters in another order");
  expect_digest(with_nodes_reordered(json_), digest_, "nodes in another order");
  expect_digest(on_device(json_, "cuda", 1), digest_, "on cuda:1");
  expect_digest(with_views_that_do_nothing(json_), digest_, "views that do nothing");
  expect_digest(without_metadata(json_), digest_, "no stack traces");
  expect_digest(with_views_that_do_nothing(with_other_names(
                    with_nodes_reordered(with_parameters_reversed(on_device(json_, "cuda", 3))))),
                digest_, "all at once");
}

INSTANTIATE_TEST_SUITE_P(Graphs, ExportedTwice,
                         ::testing::Values("attention", "bert", "rope", "rmsnorm_residual",
                                           "linear_ln_gelu", "swiglu", "mlp_silu", "cross_entropy",
                                           "train_step_mlp", "llama", "gpt2"),
                         [](const auto& param) { return std::string(param.param); });

// ---- a composite op against its decomposition ----

using Write = std::function<void(ModelText&)>;

std::string written(const Write& write) {
  ModelText model;
  write(model);
  return model.json();
}
void expect_same(const Write& first, const Write& second) {
  const auto digest = digest_of_model(written(first));
  ASSERT_TRUE(digest.has_value()) << digest.error().message;
  expect_digest(written(second), *digest, "written out");
}
void expect_different(const Write& first, const Write& second) {
  const auto a = digest_of_model(written(first)), b = digest_of_model(written(second));
  ASSERT_TRUE(a.has_value() && b.has_value());
  EXPECT_NE(*a, *b);
}

const std::string kX = tensor("self", "x");

TEST(Composites, SiluIsXTimesSigmoid) {
  expect_same(
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .node("aten.silu.default", {kX}, "y", kFloat, {4, 8})
            .output("y");
      },
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .node("aten.sigmoid.default", {kX}, "s", kFloat, {4, 8})
            .node("aten.mul.Tensor", {tensor("self", "s"), tensor("other", "x")}, "y", kFloat,
                  {4, 8})
            .output("y");
      });
}

TEST(Composites, LinearIsAddmmWithTheTransposedWeight) {
  expect_same(
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .parameter("w", kFloat, {16, 8})
            .parameter("b", kFloat, {16})
            .node("aten.linear.default",
                  {tensor("input", "x"), tensor("weight", "p_w"), tensor("bias", "p_b")}, "y",
                  kFloat, {4, 16})
            .output("y");
      },
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .parameter("b", kFloat, {16})
            .parameter("w", kFloat, {16, 8})
            .node("aten.t.default", {tensor("self", "p_w")}, "wt", kFloat, {8, 16})
            .node("aten.addmm.default",
                  {tensor("self", "p_b"), tensor("mat1", "x"), tensor("mat2", "wt")}, "y", kFloat,
                  {4, 16})
            .output("y");
      });
}

TEST(Composites, SoftmaxIsTheExponentialOverItsSum) {
  expect_same(
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .node("aten.softmax.int", {kX, integer("dim", -1)}, "y", kFloat, {4, 8})
            .output("y");
      },
      [](ModelText& m) {
        m.input("x", kFloat, {4, 8})
            .node("aten.amax.default", {kX, integers("dim", {1}), flag("keepdim", true)}, "m",
                  kFloat, {4, 1})
            .node("aten.sub.Tensor", {kX, tensor("other", "m")}, "c", kFloat, {4, 8})
            .node("aten.exp.default", {tensor("self", "c")}, "e", kFloat, {4, 8})
            .node("aten.sum.dim_IntList",
                  {tensor("self", "e"), integers("dim", {-1}), flag("keepdim", true)}, "s", kFloat,
                  {4, 1})
            .node("aten.div.Tensor", {tensor("self", "e"), tensor("other", "s")}, "y", kFloat,
                  {4, 8})
            .output("y");
      });
}

Write layer_norm_by_hand(const std::string& eps) {
  return [eps](ModelText& m) {
    m.input("x", kFloat, {4, 8})
        .parameter("w", kFloat, {8})
        .parameter("b", kFloat, {8})
        .node("aten.mean.dim", {kX, integers("dim", {-1}), flag("keepdim", true)}, "m", kFloat,
              {4, 1})
        .node("aten.sub.Tensor", {kX, tensor("other", "m")}, "c", kFloat, {4, 8})
        .node("aten.mul.Tensor", {tensor("self", "c"), tensor("other", "c")}, "sq", kFloat, {4, 8})
        .node("aten.mean.dim", {tensor("self", "sq"), integers("dim", {-1}), flag("keepdim", true)},
              "v", kFloat, {4, 1})
        .node("aten.add.Scalar", {tensor("self", "v"), real("other", eps)}, "ve", kFloat, {4, 1})
        .node("aten.rsqrt.default", {tensor("self", "ve")}, "r", kFloat, {4, 1})
        .node("aten.mul.Tensor", {tensor("self", "c"), tensor("other", "r")}, "n", kFloat, {4, 8})
        .node("aten.mul.Tensor", {tensor("self", "p_w"), tensor("other", "n")}, "nw", kFloat,
              {4, 8})
        .node("aten.add.Tensor", {tensor("self", "nw"), tensor("other", "p_b")}, "y", kFloat,
              {4, 8})
        .output("y");
  };
}

void layer_norm(ModelText& m) {
  m.input("x", kFloat, {4, 8})
      .parameter("w", kFloat, {8})
      .parameter("b", kFloat, {8})
      .node("aten.layer_norm.default",
            {tensor("input", "x"), integers("normalized_shape", {8}), tensor("weight", "p_w"),
             tensor("bias", "p_b"), real("eps", "1e-05")},
            "y", kFloat, {4, 8})
      .output("y");
}

TEST(Composites, LayerNormIsItsDecomposition) {
  expect_same(layer_norm, layer_norm_by_hand("1e-05"));
}
TEST(Composites, AnotherEpsilonIsAnotherComputation) {
  expect_different(layer_norm, layer_norm_by_hand("1e-06"));
}

TEST(Composites, AttentionIsMatmulSoftmaxMatmul) {
  const std::vector<int64_t> kQ = {2, 3, 8, 4}, kScores = {2, 3, 8, 8};
  expect_same(
      [&](ModelText& m) {
        for (const char* name : {"q", "k", "v"}) m.input(name, kFloat, kQ);
        m.node("aten.scaled_dot_product_attention.default",
               {tensor("query", "q"), tensor("key", "k"), tensor("value", "v")}, "y", kFloat, kQ)
            .output("y");
      },
      [&](ModelText& m) {
        for (const char* name : {"q", "k", "v"}) m.input(name, kFloat, kQ);
        m.node("aten.transpose.int",
               {tensor("self", "k"), integer("dim0", -2), integer("dim1", -1)}, "kt", kFloat,
               {2, 3, 4, 8})
            .node("aten.matmul.default", {tensor("self", "q"), tensor("other", "kt")}, "s", kFloat,
                  kScores)
            .node("aten.mul.Scalar", {tensor("self", "s"), real("other", "0.5")}, "ss", kFloat,
                  kScores)
            .node("aten.softmax.int", {tensor("self", "ss"), integer("dim", -1)}, "p", kFloat,
                  kScores)
            .node("aten.matmul.default", {tensor("self", "p"), tensor("other", "v")}, "y", kFloat,
                  kQ)
            .output("y");
      });
}

// ---- what changes a result changes the digest ----

Write scaled(int code, int64_t columns, const std::string& factor, int64_t axis) {
  return [=](ModelText& m) {
    const bool keeps_rows = axis == 1;
    m.input("x", code, {4, columns})
        .node("aten.mul.Scalar", {kX, real("other", factor)}, "s", code, {4, columns})
        .node("aten.sum.dim_IntList", {tensor("self", "s"), integers("dim", {axis})}, "y", code,
              {keeps_rows ? 4 : columns})
        .output("y");
  };
}

TEST(Sensitivity, EveryFieldCounts) {
  const Write stock = scaled(kFloat, 8, "0.5", 1);
  expect_same(stock, scaled(kFloat, 8, "0.5", 1));
  expect_different(stock, scaled(kDouble, 8, "0.5", 1));
  expect_different(stock, scaled(kFloat, 16, "0.5", 1));
  expect_different(stock, scaled(kFloat, 8, "0.25", 1));
  expect_different(stock, scaled(kFloat, 8, "0.5", 0));
}

TEST(Sensitivity, TheRangeOfASizeCounts) {
  const auto over = [](int64_t most) {
    return [most](ModelText& m) {
      m.range("s0", R"({"min_val":1,"max_val":)" + std::to_string(most) + "}");
      m.symbolic_input("x", kFloat, {"s0", "8"})
          .symbolic_node("aten.relu.default", {kX}, "y", kFloat, {"s0", "8"})
          .output("y");
    };
  };
  expect_same(over(64), over(64));
  expect_different(over(64), over(128));
}

TEST(Sensitivity, WhichOperandIsSubtractedCounts) {
  const auto difference = [](const char* first, const char* second) {
    return [=](ModelText& m) {
      m.input("x", kFloat, {4}).input("y", kFloat, {4});
      m.node("aten.exp.default", {tensor("self", "x")}, "e", kFloat, {4})
          .node("aten.sub.Tensor", {tensor("self", first), tensor("other", second)}, "z", kFloat,
                {4})
          .output("z");
    };
  };
  expect_different(difference("e", "y"), difference("y", "e"));
}

}  // namespace
}  // namespace kiln::testing
