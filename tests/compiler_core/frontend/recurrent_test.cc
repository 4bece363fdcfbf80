// A recurrent layer against its equations, step by step.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/compiler_core/frontend/model_text.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests
using Doubles = std::vector<double>;

constexpr int64_t kSteps = 4, kBatch = 2, kFeatures = 3, kHidden = 2;
constexpr int kGates = 4;  // input, forget, cell, output, as torch orders them

Doubles numbers(int64_t count, int seed) {
  Doubles values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(std::sin(1.7 * static_cast<double>(i) + seed));
  return values;
}

double at(const Doubles& values, int64_t row, int64_t width, int64_t column) {
  return values[static_cast<size_t>(row * width + column)];
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Weights {
  int64_t features = 0;
  Doubles input, hidden, input_bias, hidden_bias;
};

Weights weights_of(int64_t features, int seed) {
  return {features, numbers(kGates * kHidden * features, seed),
          numbers(kGates * kHidden * kHidden, seed + 1), numbers(kGates * kHidden, seed + 2),
          numbers(kGates * kHidden, seed + 3)};
}

// One direction of one layer over x [steps, batch, features]; h and c [batch, hidden] are left as
// after its last step. Its outputs [steps, batch, hidden].
Doubles run_layer(const Doubles& x, const Weights& w, Doubles& h, Doubles& c, bool backwards) {
  Doubles outputs(static_cast<size_t>(kSteps * kBatch * kHidden));
  for (int64_t i = 0; i < kSteps; ++i) {
    const int64_t step = backwards ? kSteps - 1 - i : i;
    const Doubles before = h;
    for (int64_t n = 0; n < kBatch; ++n)
      for (int64_t j = 0; j < kHidden; ++j) {
        double gates[kGates];
        for (int g = 0; g < kGates; ++g) {
          const int64_t row = g * kHidden + j;
          gates[g] = at(w.input_bias, row, 1, 0) + at(w.hidden_bias, row, 1, 0);
          for (int64_t k = 0; k < w.features; ++k)
            gates[g] += at(w.input, row, w.features, k) * at(x, step * kBatch + n, w.features, k);
          for (int64_t k = 0; k < kHidden; ++k)
            gates[g] += at(w.hidden, row, kHidden, k) * at(before, n, kHidden, k);
        }
        const auto place = static_cast<size_t>(n * kHidden + j);
        c[place] = sigmoid(gates[1]) * c[place] + sigmoid(gates[0]) * std::tanh(gates[2]);
        h[place] = sigmoid(gates[3]) * std::tanh(c[place]);
        outputs[static_cast<size_t>((step * kBatch + n) * kHidden + j)] = h[place];
      }
  }
  return outputs;
}

// Rows of both directions side by side.
Doubles joined(const Doubles& a, const Doubles& b) {
  Doubles all;
  for (int64_t row = 0; row < kSteps * kBatch; ++row)
    for (const Doubles* from : {&a, &b})
      for (int64_t j = 0; j < kHidden; ++j) all.push_back(at(*from, row, kHidden, j));
  return all;
}

Doubles part_of(const Doubles& states, int64_t run) {
  const auto begin = states.begin() + run * kBatch * kHidden;
  return {begin, begin + kBatch * kHidden};
}

void expect_near(const Tensor& got, const Doubles& expected, const std::string& what) {
  const Doubles values = values_of(got);
  ASSERT_EQ(values.size(), expected.size()) << what;
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_NEAR(values[i], expected[i], 1e-9) << what << " at " << i;
}

// Two layers in both directions: the second reads what both directions of the first gave.
TEST(Recurrent, AnLstmFollowsItsEquations) {
  constexpr int64_t kRuns = 4;
  const Doubles x = numbers(kSteps * kBatch * kFeatures, 1);
  const Doubles h0 = numbers(kRuns * kBatch * kHidden, 2),
                c0 = numbers(kRuns * kBatch * kHidden, 3);
  ModelText model;
  std::vector<Tensor> inputs;
  const auto add = [&](const std::string& name, const std::vector<int64_t>& sizes,
                       const Doubles& values) {
    model.input(name, kDouble, sizes);
    inputs.push_back(make_tensor(DType::kF64, sizes, values));
  };
  add("x", {kSteps, kBatch, kFeatures}, x);
  add("h", {kRuns, kBatch, kHidden}, h0);
  add("c", {kRuns, kBatch, kHidden}, c0);

  std::vector<std::string> params;
  Doubles layer_input = x, last_h, last_c;
  for (int layer = 0; layer < 2; ++layer) {
    Doubles outputs[2];
    for (int direction = 0; direction < 2; ++direction) {
      const int run = layer * 2 + direction;
      const Weights w = weights_of(layer == 0 ? kFeatures : 2 * kHidden, 10 * (run + 1));
      const std::string name = "w" + std::to_string(run);
      add(name + "i", {kGates * kHidden, w.features}, w.input);
      add(name + "h", {kGates * kHidden, kHidden}, w.hidden);
      add(name + "bi", {kGates * kHidden}, w.input_bias);
      add(name + "bh", {kGates * kHidden}, w.hidden_bias);
      for (const char* suffix : {"i", "h", "bi", "bh"}) params.push_back(name + suffix);
      Doubles h = part_of(h0, run), c = part_of(c0, run);
      outputs[direction] = run_layer(layer_input, w, h, c, direction == 1);
      last_h.insert(last_h.end(), h.begin(), h.end());
      last_c.insert(last_c.end(), c.begin(), c.end());
    }
    layer_input = joined(outputs[0], outputs[1]);
  }

  const std::vector<int64_t> state = {kRuns, kBatch, kHidden};
  model.declare("y", kDouble, ModelText::constants({kSteps, kBatch, 2 * kHidden}))
      .declare("hn", kDouble, ModelText::constants(state))
      .declare("cn", kDouble, ModelText::constants(state))
      .raw_node("aten.lstm.input",
                {tensor("input", "x"), tensors("hx", {"h", "c"}), tensors("params", params),
                 flag("has_biases", true), integer("num_layers", 2), real("dropout", "0.0"),
                 flag("train", false), flag("bidirectional", true), flag("batch_first", false)},
                R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"hn"}},)"
                R"({"as_tensor":{"name":"cn"}}])")
      .output("y")
      .output("hn")
      .output("cn");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  std::vector<const Tensor*> pointers;
  for (const Tensor& each : inputs) pointers.push_back(&each);
  const auto got = interpret(program->graph, pointers);
  ASSERT_TRUE(got) << got.error().message;
  expect_near((*got)[0], layer_input, "outputs");
  expect_near((*got)[1], last_h, "last h");
  expect_near((*got)[2], last_c, "last c");
}

// One step of an LSTM, whose last h, declared as `state`, is read by select; `last` declares that.
Result<ExportedProgram> lstm_declaring(const std::vector<int64_t>& y,
                                       const std::vector<int64_t>& state,
                                       const std::vector<int64_t>& last) {
  ModelText model;
  model.input("x", kFloat, {1, kBatch, kFeatures})
      .input("h", kFloat, {1, kBatch, kHidden})
      .input("wi", kFloat, {kGates * kHidden, kFeatures})
      .input("wh", kFloat, {kGates * kHidden, kHidden})
      .declare("y", kFloat, ModelText::constants(y))
      .declare("hn", kFloat, ModelText::constants(state))
      .declare("cn", kFloat, ModelText::constants(state))
      .raw_node("aten.lstm.input",
                {tensor("input", "x"), tensors("hx", {"h", "h"}), tensors("params", {"wi", "wh"}),
                 flag("has_biases", false), integer("num_layers", 1), real("dropout", "0.0"),
                 flag("train", false), flag("bidirectional", false), flag("batch_first", false)},
                R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"hn"}},)"
                R"({"as_tensor":{"name":"cn"}}])")
      .node("aten.select.int", {tensor("self", "hn"), integer("dim", 0), integer("index", -1)},
            "last", kFloat, last)
      .node("aten.tanh.default", {tensor("self", "last")}, "out", kFloat, last)
      .output("out");
  return lower(model.json());
}

TEST(Recurrent, TheAxisThatTorchDeclaresTooManyOfAnLstmsStatesIsPassedOver) {
  const std::vector<int64_t> y = {1, kBatch, kHidden}, state = {1, kBatch, kHidden};
  const auto program = lstm_declaring(y, {1, 1, kBatch, kHidden}, {1, kBatch, kHidden});
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ(program->graph.node(program->graph.outputs()[0]).shape, (Shape{kBatch, kHidden}));
  EXPECT_TRUE(lstm_declaring(y, state, {kBatch, kHidden}));
  // Any other disagreement is a damaged archive: the outputs', another size, or a select of a state
  // that is declared right.
  EXPECT_FALSE(lstm_declaring({1, 1, kBatch, kHidden}, state, {kBatch, kHidden}));
  EXPECT_FALSE(lstm_declaring(y, {1, 1, kBatch, kHidden + 1}, {1, kBatch, kHidden + 1}));
  EXPECT_FALSE(lstm_declaring(y, state, {1, kBatch, kHidden}));
}

}  // namespace
}  // namespace kiln
