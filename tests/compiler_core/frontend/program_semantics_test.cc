// What lies between nodes: tensors changed in place, bodies of higher-order ops, random numbers,
// outputs beyond what the model returns.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <tuple>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

std::vector<Doubles> run(const ModelText& model, const std::vector<Tensor>& given) {
  const auto program = lower(model.json());
  EXPECT_TRUE(program) << program.error().message;
  if (!program) return {};
  std::vector<const Tensor*> inputs;
  for (const Tensor& each : given) inputs.push_back(&each);
  const auto outputs = interpret(program->graph, inputs);
  EXPECT_TRUE(outputs) << outputs.error().message;
  std::vector<Doubles> values;
  if (outputs)
    for (const Tensor& each : *outputs) values.push_back(values_of(each));
  return values;
}
std::vector<Tensor> one(const std::vector<int64_t>& sizes, const Doubles& values) {
  std::vector<Tensor> list;
  list.push_back(make_tensor(DType::kF32, sizes, values));
  return list;
}

TEST(InPlace, the_changed_value_replaces_the_name) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.neg.default", {kX}, "a", kFloat, {2})
      .node("aten.add_.Tensor", {tensor("self", "a"), real("other", "10.0")}, "b", kFloat, {2})
      .node("aten.mul.Tensor", {tensor("self", "a"), tensor("other", "b")}, "y", kFloat, {2})
      .output("y");
  EXPECT_EQ(run(model, one({2}, {1, 2})), (std::vector<Doubles>{{81, 64}}));
}

TEST(InPlace, a_view_and_its_tensor_are_one_memory) {
  ModelText model;
  model.input("x", kFloat, {2, 2})
      .node("aten.clone.default", {kX}, "a", kFloat, {2, 2})
      .node("aten.t.default", {tensor("self", "a")}, "t", kFloat, {2, 2})
      .node("aten.select.int", {tensor("self", "a"), integer("dim", 1), integer("index", 0)}, "s",
            kFloat, {2})
      .node("aten.fill_.Scalar", {tensor("self", "s"), real("value", "9.0")}, "f", kFloat, {2})
      .node("aten.alias.default", {tensor("self", "t")}, "y", kFloat, {2, 2})
      .output("a")
      .output("y");
  EXPECT_EQ(run(model, one({2, 2}, {1, 2, 3, 4})),
            (std::vector<Doubles>{{9, 2, 9, 4}, {9, 9, 2, 4}}));
}

TEST(InPlace, a_reshaped_view_writes_through_without_a_scatter) {
  ModelText model;
  model.input("x", kFloat, {2, 2})
      .node("aten.clone.default", {kX}, "a", kFloat, {2, 2})
      .node("aten.view.default", {tensor("self", "a"), integers("size", {4})}, "v", kFloat, {4})
      .node("aten.relu_.default", {tensor("self", "v")}, "r", kFloat, {4})
      .output("a");
  EXPECT_EQ(run(model, one({2, 2}, {-1, 2, -3, 4})), (std::vector<Doubles>{{0, 2, 0, 4}}));
  const auto program = lower(model.json());
  for (const Node& node : program->graph.nodes()) EXPECT_NE(node.op, Op::kScatter);
}

TEST(InPlace, an_input_that_changes_is_a_further_output) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.add_.Tensor", {kX, real("other", "1.0")}, "b", kFloat, {2})
      .node("aten.neg.default", {tensor("self", "b")}, "y", kFloat, {2})
      .output("y");
  EXPECT_EQ(run(model, one({2}, {1, 2})), (std::vector<Doubles>{{-2, -3}, {2, 3}}));
  const auto program = lower(model.json());
  ASSERT_EQ(program->outputs.size(), 2u);
  EXPECT_EQ(program->outputs[0].kind, ExportedOutput::Kind::kUser);
  EXPECT_EQ(program->outputs[1].kind, ExportedOutput::Kind::kMutation);
  EXPECT_EQ(program->outputs[1].name, "x");
}

TEST(InPlace, mutations_of_the_signature_come_behind_what_is_returned) {
  ModelText model;
  model.input("x", kFloat, {1})
      .node("aten.neg.default", {kX}, "y", kFloat, {1})
      .node("aten.exp.default", {tensor("self", "y")}, "z", kFloat, {1})
      .output_spec(R"({"buffer_mutation":{"arg":{"name":"y"},"buffer_name":"b"}})")
      .output("z");
  EXPECT_EQ(run(model, one({1}, {0})), (std::vector<Doubles>{{1}, {0}}));
}

// A body of one op on its operand "p".
std::string body(const std::string& op) {
  const std::string declared = R"({"dtype":7,"sizes":[{"as_int":2}],"strides":[{"as_int":1}],)"
                               R"("storage_offset":{"as_int":0},"layout":7})";
  return R"({"name":"g","graph":{"inputs":[{"as_tensor":{"name":"p"}}],)"
         R"("outputs":[{"as_tensor":{"name":"q"}}],"nodes":[{"target":"torch.ops.)" +
         op + R"(","inputs":[)" + tensor("self", "p") +
         R"(],"outputs":[{"as_tensor":{"name":"q"}}],"metadata":{}}],"tensor_values":{"p":)" +
         declared + R"(,"q":)" + declared + R"(},"sym_int_values":{}}})";
}

ModelText conditional(const std::string& yes, const std::string& no) {
  ModelText model;
  model.input("c", kBool, {}).input("x", kFloat, {2});
  model.declare("y", kFloat, {"2"});
  model.raw_node("higher_order.cond",
                 {tensor("", "c"), argument("", "as_graph", yes), argument("", "as_graph", no),
                  tensors("", {"x"})},
                 R"([{"as_tensor":{"name":"y"}}])");
  return model.output("y");
}

TEST(Cond, computes_both_branches_and_selects) {
  const ModelText model = conditional(body("aten.neg.default"), body("aten.abs.default"));
  for (const double condition : {0.0, 1.0}) {
    std::vector<Tensor> inputs;
    inputs.push_back(make_tensor(DType::kBool, {}, Doubles{condition}));
    inputs.push_back(make_tensor(DType::kF32, {2}, Doubles{-1, 2}));
    EXPECT_EQ(run(model, inputs)[0], condition != 0 ? (Doubles{1, -2}) : (Doubles{1, 2}));
  }
}

TEST(Cond, ops_of_a_branch_that_are_not_covered_are_refused) {
  const auto refused =
      lower(conditional(body("aten.neg.default"), body("aten.nonzero.default")).json());
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("aten.nonzero"), std::string::npos);
}

TEST(Cond, a_branch_that_changes_its_operand_is_refused) {
  const auto refused =
      lower(conditional(body("aten.neg.default"), body("aten.relu_.default")).json());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("in place"), std::string::npos);
}

// Loops that torch writes are in tests/graphs/zoo; here those that are refused.
TEST(Loops, a_condition_on_data_is_refused_with_a_way_out) {
  ModelText model;
  model.input("x", kFloat, {2}).declare("y", kFloat, {"2"});
  model.raw_node(
      "higher_order.while_loop",
      {argument("", "as_graph", body("aten.abs.default")),
       argument("", "as_graph", body("aten.neg.default")), tensors("", {"x"}), tensors("", {})},
      R"([{"as_tensor":{"name":"y"}}])");
  const auto refused = lower(model.output("y").json());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("depends on data"), std::string::npos);
  EXPECT_NE(refused.error().message.find("fixed number"), std::string::npos);
}

// The model's graph as the body of a higher-order op that gives `outputs`.
std::string body_of(const ModelText& model, const std::vector<std::string>& outputs) {
  constexpr std::string_view kBefore = R"({"graph_module":{"graph":{)";
  const std::string json = model.json();
  const size_t end = json.find(R"(},"signature")");
  EXPECT_TRUE(json.starts_with(kBefore));
  std::vector<std::string> items;
  for (const std::string& each : outputs) items.push_back(R"({"as_tensor":)" + named(each) + "}");
  return R"({"name":"g","graph":{"outputs":[)" + join(items) + "]," +
         json.substr(kBefore.size(), end - kBefore.size()) + "}}";
}

// while v < limit, and i < 4 where the condition says so: i, v = i + 1, 2 v. Of i = 0.
ModelText doubling(bool bounded) {
  ModelText condition, step, model;
  for (ModelText* each : {&condition, &step})
    each->input("i", kLong, {}).input("v", kFloat, {}).input("limit", kFloat, {});
  condition.node("aten.lt.Scalar", {tensor("self", "i"), integer("other", 4)}, "a", kBool, {})
      .node("aten.lt.Tensor", {tensor("self", "v"), tensor("other", "limit")}, "b", kBool, {})
      .node("aten.bitwise_and.Tensor", {tensor("self", "b"), tensor("other", "a")}, "c", kBool, {});
  step.node("aten.add.Scalar", {tensor("self", "i"), integer("other", 1)}, "j", kLong, {})
      .node("aten.mul.Scalar", {tensor("self", "v"), integer("other", 2)}, "w", kFloat, {});
  model.input("v", kFloat, {}).input("limit", kFloat, {});
  model.node("aten.full.default",
             {integers("size", {}), integer("fill_value", 0), dtype("dtype", kLong)}, "i", kLong,
             {});
  model.declare("count", kLong, {}).declare("y", kFloat, {});
  model.raw_node("higher_order.while_loop",
                 {argument("", "as_graph", body_of(condition, {bounded ? "c" : "b"})),
                  argument("", "as_graph", body_of(step, {"j", "w"})), tensors("", {"i", "v"}),
                  tensors("", {"limit"})},
                 R"([{"as_tensors":[{"name":"count"},{"name":"y"}]}])");
  return model.output("count").output("y");
}

TEST(Loops, one_that_a_counter_bounds_ends_where_its_data_say) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const auto& [v, limit, steps] : std::vector<std::tuple<double, double, double>>{
           {1, 5, 3}, {1, 8, 3}, {1, 8.5, 4}, {1, 1000, 4}, {7, 5, 0}, {1, nan, 0}, {-1, 0, 4}}) {
    std::vector<Tensor> inputs;
    inputs.push_back(make_tensor(DType::kF32, {}, Doubles{v}));
    inputs.push_back(make_tensor(DType::kF32, {}, Doubles{limit}));
    EXPECT_EQ(run(doubling(true), inputs), (std::vector<Doubles>{{steps}, {v * std::exp2(steps)}}))
        << v << " below " << limit;
  }
}

TEST(Loops, one_that_only_its_data_end_is_refused_with_a_way_out) {
  const auto refused = lower(doubling(false).json());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("(i < most) &"), std::string::npos);
}

TEST(Loops, one_too_long_to_be_unrolled_is_refused) {
  const auto mapped = [](int64_t steps) {
    ModelText model;
    model.input("x", kFloat, {steps, 2}).declare("y", kFloat, {std::to_string(steps), "2"});
    model.raw_node(
        "higher_order.map_impl",
        {argument("", "as_graph", body("aten.neg.default")), tensors("", {"x"}), tensors("", {})},
        R"([{"as_tensors":[{"name":"y"}]}])");
    return lower(model.output("y").json());
  };
  EXPECT_TRUE(mapped(100)) << mapped(100).error().message;
  const auto refused = mapped(int64_t{1} << 40);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("in pieces"), std::string::npos);
}

TEST(Random, the_seed_is_the_last_input_and_there_only_when_needed) {
  ModelText model;
  model.input("x", kFloat, {2})
      .node("aten.rand_like.default", {kX}, "a", kFloat, {2})
      .node("aten.rand_like.default", {kX}, "b", kFloat, {2})
      .output("a")
      .output("b");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_EQ(program->inputs.size(), 2u);
  EXPECT_EQ(program->inputs[1].kind, ExportedInput::Kind::kSeed);
  EXPECT_EQ(program->inputs[1].name, "seed");
  EXPECT_EQ(program->inputs[1].dtype, DType::kI64);
  std::vector<Tensor> inputs = one({2}, {0, 0});
  inputs.push_back(make_tensor(DType::kI64, {}, Doubles{3}));
  const std::vector<Doubles> first = run(model, inputs), again = run(model, inputs);
  EXPECT_EQ(first, again);
  EXPECT_NE(first[0], first[1]) << "each call has a stream of its own";
  inputs[1].set_int(0, 4);
  EXPECT_NE(run(model, inputs), first);
}

struct Moments {
  double mean = 0, deviation = 0, least = kInf, greatest = -kInf;
};
Moments moments_of(const Doubles& values) {
  Moments m;
  for (const double v : values) {
    m.mean += v / static_cast<double>(values.size());
    m.least = std::min(m.least, v);
    m.greatest = std::max(m.greatest, v);
  }
  for (const double v : values)
    m.deviation += (v - m.mean) * (v - m.mean) / static_cast<double>(values.size());
  m.deviation = std::sqrt(m.deviation);
  return m;
}
Moments drawn(const std::string& op, std::vector<std::string> arguments, int code = kFloat) {
  arguments.push_back(integers("size", {4096}));
  const auto outputs = OneNode{op, arguments, {}, code, {4096}}.run();
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? moments_of(values_of((*outputs)[0])) : Moments{};
}

TEST(Random, distributions_have_their_moments_and_bounds) {
  const Moments uniform = drawn("aten.rand.default", {});
  EXPECT_NEAR(uniform.mean, 0.5, 0.02);
  EXPECT_NEAR(uniform.deviation, std::sqrt(1 / 12.0), 0.02);
  EXPECT_GE(uniform.least, 0);
  EXPECT_LT(uniform.greatest, 1);
  const Moments half = drawn("aten.rand.default", {dtype("dtype", kBFloat16)}, kBFloat16);
  EXPECT_LT(half.greatest, 1);
  const Moments normal = drawn("aten.randn.default", {});
  EXPECT_NEAR(normal.mean, 0, 0.06);
  EXPECT_NEAR(normal.deviation, 1, 0.06);
  const Moments integers =
      drawn("aten.randint.low", {integer("low", -3), integer("high", 5)}, kLong);
  EXPECT_EQ(integers.least, -3);
  EXPECT_EQ(integers.greatest, 4);
}

TEST(Random, dropout_keeps_its_share_and_scales_it) {
  const auto outputs = OneNode{
      "aten.dropout.default",
      {tensor("input", "x"), real("p", "0.25"), flag("train", true)},
      {{kFloat, {4096}, Doubles(4096, 3)}},
      kFloat,
      {4096}}.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  int kept = 0;
  for (const double v : values_of((*outputs)[0])) {
    EXPECT_TRUE(v == 0 || v == 4) << v;
    kept += v != 0 ? 1 : 0;
  }
  EXPECT_NEAR(kept, 3072, 120);
}

TEST(Random, a_permutation_has_every_number_once) {
  const auto outputs = OneNode{"aten.randperm.default", {integer("n", 64)}, {}, kLong, {64}}.run();
  ASSERT_TRUE(outputs) << outputs.error().message;
  const Doubles values = values_of((*outputs)[0]);
  EXPECT_EQ(std::set<double>(values.begin(), values.end()).size(), 64u);
  EXPECT_FALSE(std::is_sorted(values.begin(), values.end()));
}

TEST(BatchNorm, in_training_moves_the_running_statistics) {
  ModelText model;
  model.input("x", kFloat, {4, 1}).input("m", kFloat, {1}).input("v", kFloat, {1});
  model
      .node("aten.batch_norm.default",
            {tensor("input", "x"), none("weight"), none("bias"), tensor("running_mean", "m"),
             tensor("running_var", "v"), flag("training", true), real("momentum", "0.5"),
             real("eps", "0.0")},
            "y", kFloat, {4, 1})
      .output("y");
  std::vector<Tensor> inputs = one({4, 1}, {1, 1, 3, 3});
  inputs.push_back(make_tensor(DType::kF32, {1}, Doubles{0}));
  inputs.push_back(make_tensor(DType::kF32, {1}, Doubles{0}));
  const std::vector<Doubles> got = run(model, inputs);
  ASSERT_EQ(got.size(), 3u);
  EXPECT_EQ(got[0], (Doubles{-1, -1, 1, 1}));
  EXPECT_NEAR(got[1][0], 1, 1e-6);
  EXPECT_NEAR(got[2][0], 0.5 * 4.0 / 3, 1e-6);
}

TEST(Recurrent, a_gru_steps_as_its_equations_say) {
  // One feature, one unit, no biases: weights 0.5, 0.25, 1 of r, z, n; hidden ones 0.1, 0.2, 0.3.
  ModelText model;
  model.input("x", kFloat, {2, 1, 1}).input("h", kFloat, {1, 1, 1});
  model.input("w", kFloat, {3, 1}).input("u", kFloat, {3, 1});
  model.declare("y", kFloat, {"2", "1", "1"}).declare("last", kFloat, {"1", "1", "1"});
  model.raw_node("aten.gru.input",
                 {tensor("input", "x"), tensor("hx", "h"), tensors("params", {"w", "u"}),
                  flag("has_biases", false), integer("num_layers", 1), real("dropout", "0.0"),
                  flag("train", false), flag("bidirectional", false), flag("batch_first", false)},
                 R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"last"}}])");
  model.output("y").output("last");
  std::vector<Tensor> inputs = one({2, 1, 1}, {1, -2});
  inputs.push_back(make_tensor(DType::kF32, {1, 1, 1}, Doubles{0.5}));
  inputs.push_back(make_tensor(DType::kF32, {3, 1}, Doubles{0.5, 0.25, 1}));
  inputs.push_back(make_tensor(DType::kF32, {3, 1}, Doubles{0.1, 0.2, 0.3}));
  const auto sigmoid = [](double v) { return 1 / (1 + std::exp(-v)); };
  double h = 0.5;
  Doubles expected;
  for (const double x : {1.0, -2.0}) {
    const double r = sigmoid(0.5 * x + 0.1 * h), z = sigmoid(0.25 * x + 0.2 * h);
    const double n = std::tanh(x + r * 0.3 * h);
    h = (1 - z) * n + z * h;
    expected.push_back(h);
  }
  const std::vector<Doubles> got = run(model, inputs);
  ASSERT_EQ(got.size(), 2u);
  for (size_t i = 0; i < 2; ++i) EXPECT_NEAR(got[0][i], expected[i], 1e-6);
  EXPECT_NEAR(got[1][0], expected[1], 1e-6);
}

}  // namespace
}  // namespace kiln
