// Recurrent layers, unrolled over their steps.
#include <algorithm>

#include "compiler_core/frontend/expr.h"

namespace kiln {
namespace {

// Unrolled, a step is some twenty nodes.
constexpr int64_t kMostSteps = 1024;

struct Cell {
  Expr input_weight, hidden_weight;
  std::optional<Expr> input_bias, hidden_bias;
};

// x W^T + b
Expr affine(Expr x, Expr weight, const std::optional<Expr>& bias) {
  return {x.b, linear_of(*x.b, x.id, weight.id, bias ? bias->id : kInvalidNode)};
}
Expr part(Expr x, int i, const Dim& size) {
  return {x.b, x.b->slice(x.id, 1, Dim(i) * size, size)};
}

struct State {
  Expr h, c;  // c of an LSTM only
};
enum class CellKind : uint8_t { kTanh, kRelu, kLstm, kGru };

// One step: `gates` is x W^T + b, which does not depend on the state.
State step(CellKind kind, Expr gates, const State& s, const Cell& cell) {
  const Dim size = s.h.shape()[1];
  const Expr from_h = affine(s.h, cell.hidden_weight, cell.hidden_bias);
  if (kind == CellKind::kGru) {
    const Expr r = sigmoid(part(gates, 0, size) + part(from_h, 0, size));
    const Expr z = sigmoid(part(gates, 1, size) + part(from_h, 1, size));
    const Expr n = tanh(part(gates, 2, size) + r * part(from_h, 2, size));
    return {(s.h - n) * z + n, s.c};
  }
  const Expr all = gates + from_h;
  if (kind == CellKind::kTanh) return {tanh(all), s.c};
  if (kind == CellKind::kRelu) return {max(all, 0), s.c};
  const Expr i = sigmoid(part(all, 0, size)), f = sigmoid(part(all, 1, size)),
             g = tanh(part(all, 2, size)), o = sigmoid(part(all, 3, size));
  const Expr c = f * s.c + i * g;
  return {o * tanh(c), c};
}

struct Direction {
  Expr output;  // [steps, batch, hidden]
  State last;
};

// x [steps, batch, features].
Direction run(CellKind kind, Expr x, State state, const Cell& cell, bool backwards) {
  GraphBuilder& b = *x.b;
  const Shape shape = x.shape();
  const int64_t steps = shape[0].constant();
  const Expr gates = affine(x, cell.input_weight, cell.input_bias);  // of all steps at once
  std::vector<NodeId> outputs(static_cast<size_t>(steps));
  for (int64_t i = 0; i < steps && b.ok(); ++i) {
    const int64_t at = backwards ? steps - 1 - i : i;
    const Expr now = Expr{&b, b.slice(gates.id, 0, at, 1)}.reshape({shape[1], gates.shape()[2]});
    state = step(kind, now, state, cell);
    outputs[static_cast<size_t>(at)] = state.h.reshape({1, shape[1], state.h.shape()[1]}).id;
  }
  return {{&b, b.ok() ? b.concat(outputs, 0) : kInvalidNode}, state};
}

// Row `i` of [layers * directions, batch, hidden].
Expr initial(Expr all, size_t i) {
  GraphBuilder& b = *all.b;
  return Expr{&b, b.slice(all.id, 0, static_cast<int64_t>(i), 1)}.reshape(
      {all.shape()[1], all.shape()[2]});
}

Values recurrent(Call& c, CellKind kind) {
  GraphBuilder& b = c.b;
  const bool lstm = kind == CellKind::kLstm;
  const bool batch_first = c.flag("batch_first", false), both = c.flag("bidirectional", false);
  const bool biases = c.flag("has_biases", true);
  const int64_t layers = c.integer("num_layers", 1);
  Expr x = tensor(c, "input");
  const std::vector<NodeId> params = c.tensors("params");
  std::vector<NodeId> states = lstm ? c.tensors("hx") : std::vector<NodeId>{c.tensor("hx")};
  if (c.flag("train", false) && c.real("dropout", 0) != 0)
    return {c.unsupported("dropout between recurrent layers is not covered in training")};
  const size_t directions = both ? 2 : 1, each = biases ? 4 : 2;
  const auto runs = static_cast<size_t>(std::clamp<int64_t>(layers, 0, 64)) * directions;
  if (!c.ok() || x.shape().size() != 3 || params.size() != runs * each || runs == 0 ||
      states.size() != (lstm ? 2u : 1u))
    return {
        c.unsupported("this form of a recurrent layer is not covered (packed sequences, "
                      "projections); use padded batches")};
  if (batch_first) x = {&b, b.permute(x.id, {1, 0, 2})};
  if (!x.shape()[0].is_constant() || x.shape()[0].constant() < 1 ||
      x.shape()[0].constant() > kMostSteps)
    return {
        c.unsupported("a recurrent layer over a symbolic number of steps, or more than 1024, is "
                      "not covered")};
  std::vector<NodeId> last_h, last_c;
  for (size_t layer = 0; layer < runs / directions && c.ok(); ++layer) {
    std::vector<NodeId> outputs;
    for (size_t d = 0; d < directions && c.ok(); ++d) {
      const size_t at = layer * directions + d;
      const auto param = [&](size_t i) { return Expr{&b, params[at * each + i]}; };
      Cell cell{param(0), param(1), {}, {}};
      if (biases) {
        cell.input_bias = param(2);
        cell.hidden_bias = param(3);
      }
      const Expr h = initial({&b, states[0]}, at);
      const Direction result =
          run(kind, x, {h, lstm ? initial({&b, states[1]}, at) : h}, cell, d == 1);
      if (!c.ok()) return {};
      outputs.push_back(result.output.id);
      const Shape row = {1, result.last.h.shape()[0], result.last.h.shape()[1]};
      last_h.push_back(result.last.h.reshape(row).id);
      last_c.push_back(result.last.c.reshape(row).id);
    }
    if (c.ok()) x = {&b, b.concat(outputs, 2)};
  }
  if (!c.ok()) return {};
  if (batch_first) x = {&b, b.permute(x.id, {1, 0, 2})};
  Values values = {x.id, b.concat(last_h, 0)};
  if (lstm) values.push_back(b.concat(last_c, 0));
  return values;
}

template <CellKind kind>
Values layers_of(Call& c) {
  return recurrent(c, kind);
}

// One step by itself, on x [batch, features].
template <CellKind kind>
Values cell_of(Call& c) {
  constexpr bool kLstm = kind == CellKind::kLstm;
  const Expr x = tensor(c, "input");
  const std::vector<NodeId> state = kLstm ? c.tensors("hx") : std::vector<NodeId>{c.tensor("hx")};
  Cell cell{tensor(c, "w_ih"), tensor(c, "w_hh"), {}, {}};
  if (c.has("b_ih")) cell.input_bias = tensor(c, "b_ih");
  if (c.has("b_hh")) cell.hidden_bias = tensor(c, "b_hh");
  if (!c.ok() || state.size() != (kLstm ? 2 : 1) || x.shape().size() != 2 ||
      c.b.shape(state[0]).size() != 2)
    return {c.invalid("a cell needs an input and a state of rank 2")};
  const Expr gates = affine(x, cell.input_weight, cell.input_bias);
  const State after = step(kind, gates, {{&c.b, state.front()}, {&c.b, state.back()}}, cell);
  return kLstm ? Values{after.h.id, after.c.id} : Values{after.h.id};
}

constexpr Lowering kRecurrentLowerings[] = {
    {"aten.lstm.input", layers_of<CellKind::kLstm>},
    {"aten.gru.input", layers_of<CellKind::kGru>},
    {"aten.rnn_tanh.input", layers_of<CellKind::kTanh>},
    {"aten.rnn_relu.input", layers_of<CellKind::kRelu>},
    {"aten.lstm_cell.default", cell_of<CellKind::kLstm>},
    {"aten.gru_cell.default", cell_of<CellKind::kGru>},
    {"aten.rnn_tanh_cell.default", cell_of<CellKind::kTanh>},
    {"aten.rnn_relu_cell.default", cell_of<CellKind::kRelu>},
};

}  // namespace

std::span<const Lowering> recurrent_lowerings() {
  return kRecurrentLowerings;
}

}  // namespace kiln
