// Backward ops against the slopes of their forward ops: central differences of the interpreter's
// answers in f64.
#include <gtest/gtest.h>

#include <functional>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests
using Sizes = std::vector<int64_t>;

int64_t count(const Sizes& sizes) {
  int64_t n = 1;
  for (const int64_t size : sizes) n *= size;
  return n;
}

// Values that lie apart, none near a kink of what is tested.
Doubles spread_values(int64_t n, double from, double step) {
  Doubles values;
  for (int64_t i = 0; i < n; ++i)
    values.push_back(from + step * static_cast<double>((i * 7) % n) +
                     0.013 * static_cast<double>(i));
  return values;
}

// f(x) with every element of x moved by +h and -h: sum of d y * grad over the outputs.
using Function = std::function<Doubles(const Doubles&)>;
Doubles slopes(const Function& f, Doubles x, const Doubles& grad) {
  constexpr double kStep = 1e-5;
  Doubles result;
  for (size_t i = 0; i < x.size(); ++i) {
    const double at = x[i];
    x[i] = at + kStep;
    const Doubles above = f(x);
    x[i] = at - kStep;
    const Doubles below = f(x);
    x[i] = at;
    double slope = 0;
    for (size_t k = 0; k < grad.size(); ++k) slope += (above[k] - below[k]) / (2 * kStep) * grad[k];
    result.push_back(slope);
  }
  return result;
}

Doubles first_output(const OneNode& node) {
  const auto outputs = node.run();
  EXPECT_TRUE(outputs) << node.op << ": " << outputs.error().message;
  return outputs ? values_of((*outputs)[0]) : Doubles();
}

void expect_near(const Doubles& got, const Doubles& expected, const std::string& what) {
  ASSERT_EQ(got.size(), expected.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    EXPECT_NEAR(got[i], expected[i], 1e-6 * (1 + std::abs(expected[i]))) << what << " at " << i;
}

struct Pair {
  std::string forward, backward;
  std::vector<std::string> options = {};           // both have
  std::vector<std::string> backward_options = {};  // only the backward op has
  bool of_output = false;                          // the backward op reads the forward op's output
  std::string saved = "self";
};

// An elementwise op, or one along the last axis of [3, 4].
void expect_slopes(const Pair& pair) {
  const Sizes sizes = {3, 4};
  const Doubles x = spread_values(count(sizes), -2.3, 0.37),
                grad = spread_values(count(sizes), 0.5, 0.11);
  std::vector<std::string> arguments = {kX};
  arguments.insert(arguments.end(), pair.options.begin(), pair.options.end());
  const auto forward = [&](const Doubles& at) {
    return first_output({pair.forward, arguments, {{kDouble, sizes, at}}, kDouble, sizes});
  };
  std::vector<std::string> backward = {tensor("grad_output", "z"), tensor(pair.saved, "x")};
  backward.insert(backward.end(), pair.options.begin(), pair.options.end());
  backward.insert(backward.end(), pair.backward_options.begin(), pair.backward_options.end());
  const Doubles saved = pair.of_output ? forward(x) : x;
  const Doubles got = first_output(
      {pair.backward, backward, {{kDouble, sizes, saved}, {kDouble, sizes, grad}}, kDouble, sizes});
  expect_near(got, slopes(forward, x, grad), pair.backward);
}

TEST(Gradients, of_activations) {
  for (const Pair& pair : std::vector<Pair>{
           {"aten.relu.default", "aten.threshold_backward.default", {}, {integer("threshold", 0)}},
           {"aten.tanh.default", "aten.tanh_backward.default", {}, {}, true, "output"},
           {"aten.sigmoid.default", "aten.sigmoid_backward.default", {}, {}, true, "output"},
           {"aten.silu.default", "aten.silu_backward.default"},
           {"aten.gelu.default", "aten.gelu_backward.default"},
           {"aten.gelu.default", "aten.gelu_backward.default", {text("approximate", "tanh")}},
           {"aten.hardtanh.default",
            "aten.hardtanh_backward.default",
            {real("min_val", "-1.0"), real("max_val", "1.0")}},
           {"aten.leaky_relu.default",
            "aten.leaky_relu_backward.default",
            {real("negative_slope", "0.1")},
            {flag("self_is_result", false)}},
           {"aten.elu.default",
            "aten.elu_backward.default",
            {real("alpha", "1.5"), real("scale", "1.1"), real("input_scale", "0.9")},
            {flag("is_result", false)},
            false,
            "self_or_result"},
           {"aten.elu.default",
            "aten.elu_backward.default",
            {real("alpha", "1.5"), real("scale", "1.1"), real("input_scale", "0.9")},
            {flag("is_result", true)},
            true,
            "self_or_result"},
           {"aten.hardswish.default", "aten.hardswish_backward.default"},
           {"aten.hardsigmoid.default", "aten.hardsigmoid_backward.default"},
           {"aten.softplus.default",
            "aten.softplus_backward.default",
            {real("beta", "2.0"), real("threshold", "3.0")}},
           {"aten.mish.default", "aten.mish_backward.default"},
           {"aten.log_sigmoid.default", "aten.log_sigmoid_backward.default"},
           {"aten.softshrink.default", "aten.softshrink_backward.default", {real("lambd", "0.4")}},
       })
    expect_slopes(pair);
}

TEST(Gradients, of_softmax_and_its_logarithm) {
  const std::vector<std::string> axis = {integer("dim", 1)};
  expect_slopes({"aten._softmax.default",
                 "aten._softmax_backward_data.default",
                 axis,
                 {dtype("input_dtype", kDouble)},
                 true,
                 "output"});
  expect_slopes({"aten._log_softmax.default",
                 "aten._log_softmax_backward_data.default",
                 axis,
                 {dtype("input_dtype", kDouble)},
                 true,
                 "output"});
}

TEST(Gradients, of_losses_between_two_tensors) {
  const Sizes sizes = {3, 4};
  struct Loss {
    std::string forward, backward;
    std::vector<std::string> options;
    double from = -2.3, step = 0.37;
  };
  for (const Loss& loss : std::vector<Loss>{
           {"aten.mse_loss.default", "aten.mse_loss_backward.default", {}},
           {"aten.smooth_l1_loss.default",
            "aten.smooth_l1_loss_backward.default",
            {real("beta", "0.7")}},
           {"aten.huber_loss.default", "aten.huber_loss_backward.default", {real("delta", "0.7")}},
           {"aten.binary_cross_entropy.default",
            "aten.binary_cross_entropy_backward.default",
            {},
            0.05,
            0.06}})
    for (const int64_t reduction : {0, 1, 2}) {
      const Doubles x = spread_values(12, loss.from, loss.step), y = spread_values(12, 0.1, 0.05);
      const Sizes out = reduction == 0 ? sizes : Sizes{};
      const Doubles grad = reduction == 0 ? spread_values(12, 0.5, 0.1) : Doubles{1.7};
      std::vector<std::string> options = loss.options;
      options.push_back(integer("reduction", reduction));
      std::vector<std::string> forward = {kX, tensor("target", "z")};
      forward.insert(forward.end(), options.begin(), options.end());
      const auto f = [&](const Doubles& at) {
        return first_output(
            {loss.forward, forward, {{kDouble, sizes, at}, {kDouble, sizes, y}}, kDouble, out});
      };
      std::vector<std::string> backward = {tensor("grad_output", "w"), kX, tensor("target", "z")};
      backward.insert(backward.end(), options.begin(), options.end());
      expect_near(first_output({loss.backward,
                                backward,
                                {{kDouble, sizes, x}, {kDouble, sizes, y}, {kDouble, out, grad}},
                                kDouble,
                                sizes}),
                  slopes(f, x, grad), loss.backward + " reduced " + std::to_string(reduction));
    }
}

TEST(Gradients, of_the_negative_log_likelihood_with_a_class_left_out) {
  const Sizes sizes = {3, 4};
  const Doubles x = spread_values(12, -2.3, 0.37), target = {1, -100, 3}, weight = {1, 2, 3, 0.5};
  const std::vector<std::string> options = {tensor("target", "z"), tensor("weight", "w"),
                                            integer("reduction", 1), integer("ignore_index", -100)};
  std::vector<std::string> forward = {kX};
  forward.insert(forward.end(), options.begin(), options.end());
  const auto f = [&](const Doubles& at) {
    return first_output({"aten.nll_loss.default",
                         forward,
                         {{kDouble, sizes, at}, {kLong, {3}, target}, {kDouble, {4}, weight}},
                         kDouble,
                         {}});
  };
  ModelText model;
  model.input("x", kDouble, sizes).input("z", kLong, {3}).input("w", kDouble, {4});
  model.input("g", kDouble, {}).input("t", kDouble, {});
  std::vector<std::string> backward = {tensor("grad_output", "g"), kX, tensor("total_weight", "t")};
  backward.insert(backward.end(), options.begin(), options.end());
  model.node("aten.nll_loss_backward.default", backward, "y", kDouble, sizes).output("y");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << program.error().message;
  const std::vector<Tensor> inputs = [&] {
    std::vector<Tensor> list;
    list.push_back(make_tensor(DType::kF64, sizes, x));
    list.push_back(make_tensor(DType::kI64, {3}, target));
    list.push_back(make_tensor(DType::kF64, {4}, weight));
    list.push_back(make_tensor(DType::kF64, {}, Doubles{1.7}));
    list.push_back(make_tensor(DType::kF64, {}, Doubles{2.5}));  // the weights of classes 1 and 3
    return list;
  }();
  std::vector<const Tensor*> pointers;
  for (const Tensor& each : inputs) pointers.push_back(&each);
  const auto got = interpret(program->graph, pointers);
  ASSERT_TRUE(got) << got.error().message;
  expect_near(values_of((*got)[0]), slopes(f, x, {1.7}), "nll_loss_backward");
}

TEST(Gradients, of_an_embedding_add_up_by_index_and_skip_padding) {
  expect_values({"aten.embedding_dense_backward.default",
                 {tensor("grad_output", "x"), tensor("indices", "z"), integer("num_weights", 4),
                  integer("padding_idx", 2), flag("scale_grad_by_freq", false)},
                 {{kFloat, {4, 2}, {1, 2, 3, 4, 5, 6, 7, 8}}, {kLong, {4}, {3, 0, 2, 3}}},
                 kFloat,
                 {4, 2}},
                {3, 4, 0, 0, 0, 0, 8, 10});
}

TEST(Gradients, of_dropout_pass_where_its_mask_let_through) {
  expect_values({"aten.native_dropout_backward.default",
                 {tensor("grad_output", "x"), tensor("mask", "z"), real("scale", "1.25")},
                 {{kFloat, {2, 3}, {1, 2, -3, 4, kInf, 6}}, {kBool, {2, 3}, {1, 0, 1, 1, 0, 0}}},
                 kFloat,
                 {2, 3}},
                {1.25, 0, -3.75, 5, 0, 0});
}

struct Pooling {
  int64_t size, stride, padding, dilation = 1;
  bool ceil_mode = false;
};
// Of two planes of 5 x 6.
void expect_gradient_of_maxima(const Pooling& p, int64_t height, int64_t width) {
  const Sizes sizes = {2, 1, 5, 6}, pooled = {2, 1, height, width};
  const std::vector<std::string> windows = {
      integers("kernel_size", {p.size, p.size}), integers("stride", {p.stride, p.stride}),
      integers("padding", {p.padding, p.padding}), integers("dilation", {p.dilation, p.dilation}),
      flag("ceil_mode", p.ceil_mode)};
  const Doubles x = spread_values(count(sizes), -2.3, 0.37),
                grad = spread_values(count(pooled), 0.5, 0.11);
  std::vector<std::string> arguments = {kX};
  arguments.insert(arguments.end(), windows.begin(), windows.end());
  const auto forward = [&](const Doubles& at) {
    return first_output(
        {"aten.max_pool2d.default", arguments, {{kDouble, sizes, at}}, kDouble, pooled});
  };
  // Where each maximum is, as max_pool2d_with_indices says it: by looking.
  const Doubles maxima = forward(x);
  Doubles places;
  for (size_t i = 0; i < maxima.size(); ++i) {
    const size_t plane = i / static_cast<size_t>(height * width) * 30;
    for (size_t k = 0; k < 30; ++k)
      if (x[plane + k] == maxima[i]) places.push_back(static_cast<double>(k));
  }
  ASSERT_EQ(places.size(), maxima.size()) << "every value is there once";
  std::vector<std::string> backward = {tensor("grad_output", "z"), kX};
  backward.insert(backward.end(), windows.begin(), windows.end());
  backward.push_back(tensor("indices", "w"));
  const Doubles got =
      first_output({"aten.max_pool2d_with_indices_backward.default",
                    backward,
                    {{kDouble, sizes, x}, {kDouble, pooled, grad}, {kLong, pooled, places}},
                    kDouble,
                    sizes});
  expect_near(got, slopes(forward, x, grad), "max_pool2d_with_indices_backward");
}

TEST(Gradients, of_maxima_of_windows) {
  expect_gradient_of_maxima({3, 2, 1}, 3, 3);  // an element is the maximum of several
  expect_gradient_of_maxima({2, 2, 0}, 2, 3);
  expect_gradient_of_maxima({2, 2, 0, 1, true}, 3, 3);  // the last ones reach behind the plane
  expect_gradient_of_maxima({3, 1, 1}, 5, 6);
  expect_gradient_of_maxima({1, 3, 0}, 2, 2);  // most elements are in none
  expect_gradient_of_maxima({2, 1, 1, 2}, 5, 6);
  expect_gradient_of_maxima({2, 3, 1, 3}, 2, 2);
  expect_gradient_of_maxima({5, 4, 2}, 2, 2);
  expect_gradient_of_maxima({4, 2, 2}, 3, 4);
}

// More than it pays to look at: they are added where their indices say.
TEST(Gradients, of_maxima_of_windows_that_overlap_much) {
  expect_gradient_of_maxima({6, 1, 3}, 6, 7);
}

TEST(Gradients, of_slices_and_selections_are_zero_elsewhere) {
  expect_values({"aten.slice_backward.default",
                 {tensor("grad_output", "x"), integers("input_sizes", {5}), integer("dim", 0),
                  integer("start", 1), integer("end", 3), integer("step", 1)},
                 {{kFloat, {2}, {7, 8}}},
                 kFloat,
                 {5}},
                {0, 7, 8, 0, 0});
  expect_values({"aten.slice_backward.default",
                 {tensor("grad_output", "x"), integers("input_sizes", {6}), integer("dim", 0),
                  integer("start", 1), integer("end", 6), integer("step", 2)},
                 {{kFloat, {3}, {7, 8, 9}}},
                 kFloat,
                 {6}},
                {0, 7, 0, 8, 0, 9});
  expect_values({"aten.select_backward.default",
                 {tensor("grad_output", "x"), integers("input_sizes", {2, 3}), integer("dim", 1),
                  integer("index", -1)},
                 {{kFloat, {2}, {7, 8}}},
                 kFloat,
                 {2, 3}},
                {0, 0, 7, 0, 0, 8});
}

// A norm over [2, 4] or [2, 4, 3]: the backward op's three gradients against slopes in x, weight
// and bias. `statistics` are outputs 1 and 2 of the forward op.
struct Norm {
  std::string forward, backward;
  std::vector<std::string> forward_options, backward_options;
  Sizes sizes, parameters, statistics;
};
void expect_norm_slopes(const Norm& norm) {
  const Doubles x = spread_values(count(norm.sizes), -2.3, 0.37),
                weight = spread_values(count(norm.parameters), 0.5, 0.2),
                bias = spread_values(count(norm.parameters), -0.2, 0.3),
                grad = spread_values(count(norm.sizes), 0.5, 0.11);
  const auto run_forward = [&](const Doubles& at, const Doubles& w, const Doubles& b) {
    ModelText model;
    model.input("x", kDouble, norm.sizes).input("w", kDouble, norm.parameters);
    model.input("b", kDouble, norm.parameters);
    model.declare("y", kDouble, ModelText::constants(norm.sizes));
    model.declare("m", kDouble, ModelText::constants(norm.statistics));
    model.declare("r", kDouble, ModelText::constants(norm.statistics));
    std::vector<std::string> arguments = {tensor("input", "x"), tensor("weight", "w"),
                                          tensor("bias", "b")};
    arguments.insert(arguments.end(), norm.forward_options.begin(), norm.forward_options.end());
    model.raw_node(norm.forward, arguments,
                   R"([{"as_tensor":{"name":"y"}},{"as_tensor":{"name":"m"}},)"
                   R"({"as_tensor":{"name":"r"}}])");
    model.output("y").output("m").output("r");
    const auto program = lower(model.json());
    EXPECT_TRUE(program) << program.error().message;
    std::vector<Doubles> values;
    if (!program) return values;
    const Tensor tx = make_tensor(DType::kF64, norm.sizes, at),
                 tw = make_tensor(DType::kF64, norm.parameters, w),
                 tb = make_tensor(DType::kF64, norm.parameters, b);
    const Tensor* const inputs[] = {&tx, &tw, &tb};
    const auto outputs = interpret(program->graph, inputs);
    EXPECT_TRUE(outputs) << outputs.error().message;
    if (outputs)
      for (const Tensor& each : *outputs) values.push_back(values_of(each));
    return values;
  };
  const std::vector<Doubles> saved = run_forward(x, weight, bias);
  ASSERT_EQ(saved.size(), 3u);
  ModelText model;
  model.input("g", kDouble, norm.sizes).input("x", kDouble, norm.sizes);
  model.input("m", kDouble, norm.statistics).input("r", kDouble, norm.statistics);
  model.input("w", kDouble, norm.parameters);
  model.declare("dx", kDouble, ModelText::constants(norm.sizes));
  model.declare("dw", kDouble, ModelText::constants(norm.parameters));
  model.declare("db", kDouble, ModelText::constants(norm.parameters));
  std::vector<std::string> arguments = {tensor("grad_out", "g"), tensor("input", "x"),
                                        tensor("weight", "w")};
  arguments.insert(arguments.end(), norm.backward_options.begin(), norm.backward_options.end());
  model.raw_node(norm.backward, arguments,
                 R"([{"as_tensor":{"name":"dx"}},{"as_tensor":{"name":"dw"}},)"
                 R"({"as_tensor":{"name":"db"}}])");
  model.output("dx").output("dw").output("db");
  const auto program = lower(model.json());
  ASSERT_TRUE(program) << norm.backward << ": " << program.error().message;
  const Tensor tg = make_tensor(DType::kF64, norm.sizes, grad),
               tx = make_tensor(DType::kF64, norm.sizes, x),
               tm = make_tensor(DType::kF64, norm.statistics, saved[1]),
               tr = make_tensor(DType::kF64, norm.statistics, saved[2]),
               tw = make_tensor(DType::kF64, norm.parameters, weight);
  const Tensor* const inputs[] = {&tg, &tx, &tm, &tr, &tw};
  const auto got = interpret(program->graph, inputs);
  ASSERT_TRUE(got) << got.error().message;
  const auto by_x = [&](const Doubles& at) { return run_forward(at, weight, bias)[0]; };
  const auto by_weight = [&](const Doubles& at) { return run_forward(x, at, bias)[0]; };
  const auto by_bias = [&](const Doubles& at) { return run_forward(x, weight, at)[0]; };
  expect_near(values_of((*got)[0]), slopes(by_x, x, grad), norm.backward + " dx");
  expect_near(values_of((*got)[1]), slopes(by_weight, weight, grad), norm.backward + " dw");
  expect_near(values_of((*got)[2]), slopes(by_bias, bias, grad), norm.backward + " db");
}

const std::string kAll = argument("output_mask", "as_bools", "[true,true,true]");

TEST(Gradients, of_layer_norm) {
  const std::string shape = integers("normalized_shape", {4}), eps = real("eps", "0.001");
  expect_norm_slopes({"aten.native_layer_norm.default",
                      "aten.native_layer_norm_backward.default",
                      {shape, eps},
                      {shape, tensor("mean", "m"), tensor("rstd", "r"), kAll},
                      {2, 4},
                      {4},
                      {2, 1}});
}

TEST(Gradients, of_rms_norm) {
  const std::vector<int64_t> sizes = {2, 4};
  const Doubles x = spread_values(8, -2.3, 0.37), grad = spread_values(8, 0.5, 0.11),
                weight = {0.5, -1, 2, 1.5};
  const std::string shape = integers("normalized_shape", {4}), eps = real("eps", "0.001");
  const auto f = [&](const Doubles& at) {
    return first_output({"aten.rms_norm.default",
                         {tensor("input", "x"), shape, tensor("weight", "z"), eps},
                         {{kDouble, sizes, at}, {kDouble, {4}, weight}},
                         kDouble,
                         sizes});
  };
  Doubles rstd;
  for (size_t row = 0; row < 2; ++row) {
    double square = 0;
    for (size_t i = 0; i < 4; ++i) square += x[row * 4 + i] * x[row * 4 + i] / 4;
    rstd.push_back(1 / std::sqrt(square + 0.001));
  }
  const OneNode backward = {"aten._fused_rms_norm_backward.default",
                            {tensor("grad_out", "z"), tensor("input", "x"), shape,
                             tensor("rstd", "w"), tensor("weight", "v")},
                            {{kDouble, sizes, x},
                             {kDouble, sizes, grad},
                             {kDouble, {2, 1}, rstd},
                             {kDouble, {4}, weight}},
                            kDouble,
                            sizes};
  expect_near(first_output(backward), slopes(f, x, grad), backward.op);
}

TEST(Gradients, of_group_norm) {
  const std::vector<std::string> sizes = {integer("N", 2), integer("C", 4), integer("HxW", 3),
                                          integer("group", 2)};
  std::vector<std::string> forward = sizes, backward = sizes;
  forward.push_back(real("eps", "0.001"));
  backward.insert(backward.end(), {tensor("mean", "m"), tensor("rstd", "r"), kAll});
  expect_norm_slopes({"aten.native_group_norm.default",
                      "aten.native_group_norm_backward.default",
                      forward,
                      backward,
                      {2, 4, 3},
                      {4},
                      {2, 2}});
}

TEST(Gradients, of_batch_norm_in_training) {
  expect_norm_slopes({"aten._native_batch_norm_legit.no_stats",
                      "aten.native_batch_norm_backward.default",
                      {flag("training", true), real("momentum", "0.1"), real("eps", "0.001")},
                      {tensor("save_mean", "m"), tensor("save_invstd", "r"), flag("train", true),
                       real("eps", "0.001"), kAll},
                      {2, 4, 3},
                      {4},
                      {4}});
}

}  // namespace
}  // namespace kiln
