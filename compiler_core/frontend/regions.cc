#include "compiler_core/frontend/regions.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "compiler_core/frontend/decompositions.h"
#include "compiler_core/frontend/refusals.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

constexpr int64_t kMostNodes = 20'000;  // of the bodies of an unrolled loop together
constexpr size_t kMostEvaluated = 256;  // nodes, to know a number beforehand

// torch.amp's lists: ops that it runs in the lower precision, and in f32.
constexpr auto kAutocast = std::to_array<std::string_view>({
    "addbmm",
    "addmm",
    "addmv",
    "baddbmm",
    "bmm",
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "convolution",
    "einsum",
    "linalg_matmul",
    "linear",
    "matmul",
    "mm",
    "mv",
    "prelu",
    "scaled_dot_product_attention",
    "chain_matmul",
    "multi_dot",
    "acos",
    "asin",
    "binary_cross_entropy_with_logits",
    "cosh",
    "cosine_embedding_loss",
    "cosine_similarity",
    "cross_entropy_loss",
    "cumprod",
    "cumsum",
    "dist",
    "erfinv",
    "exp",
    "expm1",
    "group_norm",
    "hinge_embedding_loss",
    "instance_norm",
    "kl_div",
    "l1_loss",
    "layer_norm",
    "log",
    "log10",
    "log1p",
    "log2",
    "log_softmax",
    "logsumexp",
    "mse_loss",
    "multi_margin_loss",
    "nll_loss",
    "norm",
    "pow",
    "prod",
    "reciprocal",
    "renorm",
    "rsqrt",
    "sinh",
    "smooth_l1_loss",
    "soft_margin_loss",
    "softmax",
    "softmin",
    "softplus",
    "sum",
    "tan",
    "triplet_margin_loss",
});

class Region {
 public:
  Region(const RegionContext& context, const ExportedNode& node)
      : context_(context), b_(context.b), node_(node) {}

  Result<Values> lower() {
    const std::string_view name = short_name(node_.target);
    if (name == "higher_order.cond") return cond();
    if (name == "higher_order.scan") return scan();
    if (name == "higher_order.associative_scan") return associative_scan();
    if (name == "higher_order.map_impl") return map();
    if (name == "higher_order.while_loop") return while_loop();
    return wrapped();
  }

 private:
  const ExportedGraph* graph(size_t argument) const {
    if (argument >= node_.inputs.size()) return nullptr;
    const auto* body = std::get_if<const ExportedGraph*>(&node_.inputs[argument].value);
    return body != nullptr ? *body : nullptr;
  }

  Result<Values> values_of(const std::vector<std::string_view>& names) const {
    Values values;
    for (const std::string_view name : names) {
      values.push_back(context_.find(name));
      if (values.back() == kInvalidNode)
        return fail(Code::kInvalidArgument, "has an operand that is no tensor");
    }
    return values;
  }
  // The tensors of one argument, a list of them.
  Result<Values> listed(size_t argument) const {
    std::vector<std::string_view> names;
    if (argument >= node_.inputs.size() || !add_tensor_names(node_.inputs[argument].value, names)) {
      const bool none = argument < node_.inputs.size() &&
                        std::holds_alternative<std::vector<Dim>>(node_.inputs[argument].value);
      if (!none)
        return fail(Code::kUnsupported, "with operands that are no tensors is not covered");
    }
    return values_of(names);
  }

  Result<Values> run(const ExportedGraph& body, const Values& operands,
                     bool autocast = false) const {
    return context_.run(body, operands, autocast);
  }

  // cond(predicate, true_graph, false_graph, operands): both branches are pure, so both are
  // computed and the predicate chooses.
  Result<Values> cond() {
    if (graph(1) == nullptr || graph(2) == nullptr)
      return fail(Code::kInvalidArgument, "has no two branches");
    const Argument& given = node_.inputs[0].value;
    NodeId predicate = kInvalidNode;
    if (const auto* constant = std::get_if<bool>(&given))
      predicate = b_.constant_int(DType::kBool, *constant ? 1 : 0);
    else if (const auto* tensor = std::get_if<TensorName>(&given))
      predicate = context_.find(tensor->name);
    else
      return fail(Code::kUnsupported, "with a predicate on sizes is not covered");
    if (predicate == kInvalidNode || !numel(b_.shape(predicate)).is(1))
      return fail(Code::kInvalidArgument, "needs a predicate of one element");
    predicate = b_.reshape(b_.cast(predicate, DType::kBool), {});
    TRY(const Values operands, values_of(tensor_operands(node_, 3)));
    TRY(const Values yes, run(*graph(1), operands));
    TRY(const Values no, run(*graph(2), operands));
    if (yes.size() != no.size())
      return fail(Code::kInvalidArgument, "has branches with different outputs");
    Values results;
    for (size_t i = 0; i < yes.size(); ++i)
      results.push_back(yes[i] == no[i]
                            ? yes[i]
                            : b_.select(b_.broadcast(predicate, b_.shape(yes[i])), yes[i], no[i]));
    return built(std::move(results));
  }

  // Regions that change nothing about what is computed: the body, on the operands behind it.
  Result<Values> wrapped() {
    size_t at = 0;
    while (at < node_.inputs.size() && graph(at) == nullptr) ++at;
    if (at == node_.inputs.size()) return fail(Code::kInvalidArgument, "has no body");
    TRY(const Values operands, values_of(tensor_operands(node_, at + 1)));
    const bool* enabled = at > 2 ? std::get_if<bool>(&node_.inputs[2].value) : nullptr;
    return run(*graph(at), operands, enabled != nullptr && *enabled);
  }

  Status fits(const ExportedGraph& body, int64_t steps) const {
    const auto nodes = static_cast<int64_t>(body.nodes.size()) + 1;
    if (steps <= kMostNodes / nodes) return {};
    return fail(
        Code::kUnsupported,
        "of " + std::to_string(steps) + " steps of " + std::to_string(body.nodes.size()) +
            " nodes is too long to be unrolled: run it in pieces, each a program of its own");
  }
  // The length of the leading axis that all have.
  Result<int64_t> length(const Values& xs) const {
    if (xs.empty() || b_.shape(xs[0]).empty())
      return fail(Code::kInvalidArgument, "has nothing to go through");
    const Dim size = b_.shape(xs[0])[0];
    if (!size.is_constant() || size.constant() < 1)
      return fail(Code::kUnsupported, "over a symbolic or empty axis is not covered");
    for (const NodeId x : xs)
      if (b_.shape(x).empty() || b_.shape(x)[0] != size)
        return fail(Code::kInvalidArgument, "goes through tensors of different lengths");
    return size.constant();
  }
  NodeId element(NodeId x, int64_t i) {
    const Shape rest(b_.shape(x).begin() + 1, b_.shape(x).end());
    return b_.reshape(b_.slice(x, 0, i, 1), rest);
  }
  NodeId stacked(const Values& elements) {
    Values rows;
    for (const NodeId each : elements) {
      Shape shape = b_.shape(each);
      shape.insert(shape.begin(), Dim(1));
      rows.push_back(b_.reshape(each, shape));
    }
    return b_.concat(rows, 0);
  }
  Result<Values> built(Values results) const {
    if (!b_.ok()) return fail(*b_.error());
    return results;
  }

  // scan(body, init, xs, more): (state, y) = body(state, x, more) for every x along the first axis.
  Result<Values> scan() {
    if (graph(0) == nullptr) return fail(Code::kInvalidArgument, "has no body");
    TRY(Values state, listed(1));
    TRY(const Values xs, listed(2));
    TRY(const Values more, listed(3));
    TRY(const int64_t steps, length(xs));
    TRY_STATUS(fits(*graph(0), steps));
    std::vector<Values> made;
    for (int64_t i = 0; i < steps; ++i) {
      Values operands = state;
      for (const NodeId x : xs) operands.push_back(element(x, i));
      operands.insert(operands.end(), more.begin(), more.end());
      TRY(const Values outputs, run(*graph(0), operands));
      if (outputs.size() < state.size())
        return fail(Code::kInvalidArgument, "has a body that gives less than its state");
      const auto rest = outputs.begin() + static_cast<std::ptrdiff_t>(state.size());
      state.assign(outputs.begin(), rest);
      made.resize(outputs.size() - state.size());
      for (size_t k = 0; k < made.size(); ++k) made[k].push_back(outputs[state.size() + k]);
    }
    for (const Values& each : made) state.push_back(stacked(each));
    return built(std::move(state));
  }

  // associative_scan(body, xs, more): y[0] = x[0], y[i] = body(y[i - 1], x[i], more).
  Result<Values> associative_scan() {
    if (graph(0) == nullptr) return fail(Code::kInvalidArgument, "has no body");
    TRY(const Values xs, listed(1));
    TRY(const Values more, node_.inputs.size() > 2 ? listed(2) : Result<Values>(Values()));
    TRY(const int64_t steps, length(xs));
    TRY_STATUS(fits(*graph(0), steps));
    Values last;
    std::vector<Values> made(xs.size());
    for (int64_t i = 0; i < steps; ++i) {
      Values now;
      for (const NodeId x : xs) now.push_back(element(x, i));
      if (i > 0) {
        Values operands = last;
        operands.insert(operands.end(), now.begin(), now.end());
        operands.insert(operands.end(), more.begin(), more.end());
        TRY(now, run(*graph(0), operands));
        if (now.size() != xs.size())
          return fail(Code::kInvalidArgument, "has a body that gives another number of tensors");
      }
      for (size_t k = 0; k < xs.size(); ++k) made[k].push_back(now[k]);
      last = std::move(now);
    }
    Values results;
    for (const Values& each : made) results.push_back(stacked(each));
    return built(std::move(results));
  }

  // map_impl(body, xs, more): body of every element along the first axis.
  Result<Values> map() {
    if (graph(0) == nullptr) return fail(Code::kInvalidArgument, "has no body");
    TRY(const Values xs, listed(1));
    TRY(const Values more, listed(2));
    TRY(const int64_t steps, length(xs));
    TRY_STATUS(fits(*graph(0), steps));
    std::vector<Values> made;
    for (int64_t i = 0; i < steps; ++i) {
      Values operands;
      for (const NodeId x : xs) operands.push_back(element(x, i));
      operands.insert(operands.end(), more.begin(), more.end());
      TRY(const Values outputs, run(*graph(0), operands));
      made.resize(outputs.size());
      for (size_t k = 0; k < outputs.size(); ++k) made[k].push_back(outputs[k]);
    }
    Values results;
    for (const Values& each : made) results.push_back(stacked(each));
    return built(std::move(results));
  }

  // while_loop(condition, body, state, more): unrolled for as many steps as follow from numbers, as
  // those of a counter against a bound do. Of a condition that asks data besides, a select keeps the
  // state from the first step on that it forbids; what it then says of that state stays the same.
  Result<Values> while_loop() {
    if (graph(0) == nullptr || graph(1) == nullptr)
      return fail(Code::kInvalidArgument, "has no condition or no body");
    TRY(Values results, listed(2));
    TRY(const Values more, listed(3));
    Values state = results;       // the same, as numbers where they follow if no step was forbidden
    NodeId going = kInvalidNode;  // no step was forbidden; none: whatever the data are
    for (int64_t steps = 0;; ++steps) {
      TRY_STATUS(fits(*graph(1), steps));
      for (NodeId& each : state) each = evaluated(each).value_or(each);
      Values operands = state;
      operands.insert(operands.end(), more.begin(), more.end());
      TRY(const Values condition, run(*graph(0), operands));
      if (!b_.ok()) return fail(*b_.error());
      NodeId allowed = kInvalidNode;
      if (condition.size() == 1 && numel(b_.shape(condition[0])).is(1))
        allowed = b_.reshape(b_.cast(condition[0], DType::kBool), {});
      const std::optional<bool> known =
          allowed == kInvalidNode ? std::nullopt : known_part(allowed);
      if (!known)
        return fail(
            Code::kUnsupported,
            "whose number of steps depends on data cannot be planned: give it a fixed number "
            "(with where, for what is done), bound it by a counter (`(i < most) & ...`), or run it "
            "outside the program");
      if (!*known) return built(std::move(results));
      if (!evaluated(allowed))
        going = going == kInvalidNode ? allowed : b_.binary(Op::kAnd, going, allowed);
      TRY(const Values next, run(*graph(1), operands));
      if (next.size() != state.size())
        return fail(Code::kInvalidArgument, "has a body that gives another number of tensors");
      if (!b_.ok()) return fail(*b_.error());
      for (size_t i = 0; i < next.size(); ++i) {
        const std::optional<NodeId> number = evaluated(next[i]);
        const Shape shape = b_.shape(next[i]);
        results[i] = going == kInvalidNode || next[i] == results[i]
                         ? number.value_or(next[i])
                         : b_.select(b_.broadcast(going, shape), next[i], results[i]);
        state[i] = number.value_or(results[i]);
      }
    }
  }

  // The value of a conjunction: false where a part is known to be, true where one is and none is known to be
  // false, nothing where no part follows from numbers.
  std::optional<bool> known_part(NodeId conjunction) {
    std::optional<bool> result;
    std::vector<NodeId> parts{conjunction};
    for (size_t i = 0; i < parts.size() && i < kMostEvaluated; ++i) {
      if (const std::optional<NodeId> known = evaluated(parts[i])) {
        result = std::get<ConstantAttr>(b_.node(*known).attr).as_int() != 0;
        if (!*result) return result;
        continue;
      }
      const Node& node = b_.node(parts[i]);
      if (node.op != Op::kAnd || node.dtype != DType::kBool) continue;
      for (const NodeId each : node.operands)
        if (std::find(parts.begin(), parts.end(), each) == parts.end()) parts.push_back(each);
    }
    return result;
  }

  // The scalar as a constant, where no input takes part in it.
  std::optional<NodeId> evaluated(NodeId id) {
    if (!b_.ok() || !b_.shape(id).empty()) return std::nullopt;
    if (b_.node(id).op == Op::kConstant) return id;
    if (is_float(b_.dtype(id))) return std::nullopt;
    GraphBuilder alone;
    std::unordered_map<NodeId, NodeId> copies;
    if (!copy(id, alone, copies)) return std::nullopt;
    const Result<Graph> graph = alone.finish({copies.at(id)});
    if (!graph) return std::nullopt;
    const Result<std::vector<Tensor>> value = interpret(*graph, {});
    if (!value || value->size() != 1) return std::nullopt;
    return b_.constant_int(b_.dtype(id), (*value)[0].get_int(0));
  }
  bool copy(NodeId id, GraphBuilder& to, std::unordered_map<NodeId, NodeId>& copies) {
    if (copies.contains(id)) return true;
    Node node = b_.node(id);
    const Dim size = numel(node.shape);
    if (node.op == Op::kInput || copies.size() >= kMostEvaluated || !size.is_constant() ||
        size.constant() > 1)
      return false;
    for (NodeId& operand : node.operands) {
      if (!copy(operand, to, copies)) return false;
      operand = copies.at(operand);
    }
    copies[id] = to.add(std::move(node));
    return to.ok();
  }

  const RegionContext& context_;
  GraphBuilder& b_;
  const ExportedNode& node_;
};

}  // namespace

Result<Values> lower_region(const RegionContext& context, const ExportedNode& node) {
  return Region(context, node).lower();
}

bool is_autocast_op(std::string_view op) {
  const size_t first = op.find('.'), last = op.rfind('.');
  if (first == std::string_view::npos || last <= first) return false;
  return std::find(kAutocast.begin(), kAutocast.end(), op.substr(first + 1, last - first - 1)) !=
         kAutocast.end();
}

}  // namespace kiln
