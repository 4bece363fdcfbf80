#include "compiler_core/frontend/refusals.h"

#include <algorithm>
#include <array>
#include <unordered_map>
#include <vector>

#include "compiler_core/frontend/lowering.h"

namespace kiln {
namespace {

constexpr std::string_view kDataShape =
    "its result's shape depends on the data, and a plan needs it beforehand: keep the shape and "
    "mask "
    "instead (where, masked_fill), or split the program there";
constexpr std::string_view kHostValue =
    "it takes a value out of a tensor while the program runs: keep it a tensor, or make it an "
    "input";
constexpr std::string_view kLoop =
    "a loop whose trip count is data cannot be planned: unroll it, or run it outside the program";
constexpr std::string_view kQuantised =
    "quantised tensors are not covered: dequantise with explicit arithmetic (a cast, a "
    "subtraction, "
    "a product)";
constexpr std::string_view kSparse = "sparse tensors are not covered: use dense ones";
constexpr std::string_view kFactorisation =
    "matrix factorisations are not covered: compute it outside the program";
constexpr std::string_view kSpecial =
    "this special function is not covered: write it as covered arithmetic, or as a custom call";
constexpr std::string_view kStorage =
    "it asks about memory, which a compiled graph does not have: use view, permute, slice or "
    "expand";
constexpr std::string_view kScan = "it writes into tensors that it is given: use cummax or cummin";
constexpr std::string_view kPacked =
    "a packed sequence's shape depends on the data: run the layer on the padded batch, and choose "
    "with a mask (where)";

constexpr auto kRefusals = std::to_array<RefusedOp>({
    {"aten.nonzero", kDataShape},
    {"aten.nonzero_static", kDataShape},
    {"aten.nonzero_numpy", kDataShape},
    {"aten.argwhere", kDataShape},
    {"aten.masked_select", kDataShape},
    {"aten.unique", kDataShape},
    {"aten._unique", kDataShape},
    {"aten._unique2", kDataShape},
    {"aten.unique_dim", kDataShape},
    {"aten.unique_consecutive", kDataShape},
    {"aten.bincount", kDataShape},
    {"aten.combinations", kDataShape},
    {"aten.equal", kHostValue},
    {"aten.is_nonzero", kHostValue},
    {"aten.istft",
     "the inverse of stft is not covered: add the irfft of each frame where it belongs"},
    {"higher_order.map", kLoop},
    {"higher_order.out_dtype",
     "PyTorch allows mm, linear, mul, div, conv2d and convolution under it: cast the operands of "
     "others"},
    {"higher_order.flex_attention",
     "its score function is a program of its own: use scaled_dot_product_attention with a mask"},
    {"aten.quantize_per_tensor", kQuantised},
    {"aten.quantize_per_channel", kQuantised},
    {"aten.dequantize", kQuantised},
    {"aten.to_sparse", kSparse},
    {"aten._to_sparse", kSparse},
    {"aten.to_dense", kSparse},
    {"aten.sparse_coo_tensor", kSparse},
    {"aten._sparse_mm", kSparse},
    {"aten.linalg_cholesky", kFactorisation},
    {"aten.linalg_cholesky_ex", kFactorisation},
    {"aten.cholesky", kFactorisation},
    {"aten.linalg_inv", kFactorisation},
    {"aten.linalg_inv_ex", kFactorisation},
    {"aten.inverse", kFactorisation},
    {"aten.linalg_det", kFactorisation},
    {"aten.linalg_slogdet", kFactorisation},
    {"aten.linalg_qr", kFactorisation},
    {"aten.linalg_svd", kFactorisation},
    {"aten._linalg_svd", kFactorisation},
    {"aten._linalg_det", kFactorisation},
    {"aten._linalg_eigh", kFactorisation},
    {"aten.linalg_eigh", kFactorisation},
    {"aten.linalg_lu_factor_ex", kFactorisation},
    {"aten.linalg_solve", kFactorisation},
    {"aten._linalg_solve_ex", kFactorisation},
    {"aten.linalg_solve_triangular", kFactorisation},
    {"aten.triangular_solve", kFactorisation},
    {"aten.igamma", kSpecial},
    {"aten.igammac", kSpecial},
    {"aten.special_bessel_j0", kSpecial},
    {"aten.special_bessel_j1", kSpecial},
    {"aten.special_erfcx", kSpecial},
    {"aten.special_zeta", kSpecial},
    {"aten.nextafter", kSpecial},
    {"aten.frexp", kSpecial},
    {"aten.gcd", "it is a loop for each element: compute it outside the program"},
    {"aten.lcm", "it is a loop for each element: compute it outside the program"},
    {"aten._cummax_helper", kScan},
    {"aten._cummin_helper", kScan},
    {"aten.resize", kStorage},
    {"aten.resize_", kStorage},
    {"aten.set_", kStorage},
    {"aten.sym_is_contiguous", kStorage},
    {"aten.is_contiguous", kStorage},
    {"aten.as_strided_scatter", kStorage},
    {"aten.masked_scatter",
     "how many values it consumes depends on the data: build the values with gather and cumsum, "
     "and "
     "choose with where"},
    {"aten.multinomial",
     "sampling from given probabilities is not covered: take argmax of logits plus Gumbel noise "
     "(-log(-log(rand)))"},
    {"aten._pdist_forward", "pairwise distances of one set: use cdist of the set with itself"},
    {"aten._pdist_backward", "pairwise distances of one set: use cdist of the set with itself"},
    {"aten.pdist", "pairwise distances of one set: use cdist of the set with itself"},
    {"aten.multilabel_margin_loss",
     "its targets are lists that end where the data says: use multilabel_soft_margin_loss"},
    {"aten.lstm.data", kPacked},
    {"aten.gru.data", kPacked},
    {"aten.rnn_tanh.data", kPacked},
    {"aten.rnn_relu.data", kPacked},
    {"aten._pack_padded_sequence", kPacked},
    {"aten._pad_packed_sequence", kPacked},
    {"aten._ctc_loss", "it is a recurrence over time: compute the loss outside the program"},
    {"aten.ctc_loss", "it is a recurrence over time: compute the loss outside the program"},
});

constexpr auto kRegions = std::to_array<std::string_view>({
    "higher_order.cond",
    "higher_order.wrap_with_set_grad_enabled",
    "higher_order.wrap_with_autocast",
    "higher_order.wrap",
    "higher_order.tag_activation_checkpoint",
    "higher_order.wrap_activation_checkpoint",
    "higher_order.invoke_subgraph",
    "higher_order.scan",
    "higher_order.associative_scan",
    "higher_order.map_impl",
    "higher_order.while_loop",
});

constexpr std::string_view kAdvice =
    "rewrite it with covered ops (docs/operators.md), or decompose the program before saving it "
    "(exported_program.run_decompositions())";

// "aten.nonzero.default" is an overload of "aten.nonzero"; higher-order ops have none.
std::string_view without_overload(std::string_view op) {
  const size_t first = op.find('.'), last = op.rfind('.');
  return first == last ? op : op.substr(0, last);
}

struct Uncovered {
  std::string_view op;
  const ExportedNode* first = nullptr;
  int uses = 0;
};

bool is_covered(std::string_view op) {
  if (is_ignored_op(op) || is_region(op) || find_lowering(op) != nullptr) return true;
  const std::optional<std::string> functional = functional_op(op);
  return functional && find_lowering(*functional) != nullptr;
}

bool gives_a_tensor(const ExportedNode& node) {
  return node.outputs.empty() ||
         std::any_of(node.outputs.begin(), node.outputs.end(), [](const Argument& output) {
           return std::holds_alternative<TensorName>(output) ||
                  std::holds_alternative<std::vector<TensorName>>(output);
         });
}

void collect(const std::vector<ExportedNode>& nodes, std::vector<Uncovered>& found,
             std::unordered_map<std::string_view, size_t>& by_op) {
  for (const ExportedNode& node : nodes) {
    const std::string_view op = short_name(node.target);
    const bool sizes = !gives_a_tensor(node) && find_refusal(op) == nullptr;
    if (sizes || is_covered(op)) continue;
    const auto [known, is_new] = by_op.try_emplace(op, found.size());
    if (is_new) found.push_back({op, &node, 0});
    ++found[known->second].uses;
  }
}

std::string used_at(const ExportedNode& node) {
  const std::string source = source_line(node.stack_trace);
  return source.empty() ? "" : ", used at " + source;
}

}  // namespace

std::span<const RefusedOp> refusals() {
  return kRefusals;
}

const RefusedOp* find_refusal(std::string_view op) {
  const std::string_view name = without_overload(op);
  for (const RefusedOp& each : kRefusals)
    if (each.op == name || each.op == op) return &each;
  return nullptr;
}

bool is_region(std::string_view op) {
  return std::find(kRegions.begin(), kRegions.end(), op) != kRegions.end();
}

std::string_view short_name(std::string_view target) {
  constexpr std::string_view kPrefix = "torch.ops.";
  return target.starts_with(kPrefix) ? target.substr(kPrefix.size()) : target;
}

Error refusal_at(const ExportedNode& node, std::string_view op, const std::string& why) {
  const RefusedOp* known = find_refusal(op);
  const std::string reason = !why.empty()       ? " - " + why
                             : known != nullptr ? " is not covered: " + std::string(known->why)
                                                : " is not covered";
  const bool advised = why.empty() && known != nullptr;
  return {Code::kUnsupported,
          std::string(op.substr(0, 80)) + reason + used_at(node) +
              (advised ? "" : "; " + std::string(kAdvice)),
          0};
}

Status refuse_uncovered_ops(const ExportedModel& model) {
  constexpr size_t kListed = 40;
  std::vector<Uncovered> found;
  std::unordered_map<std::string_view, size_t> by_op;
  collect(model.nodes, found, by_op);
  for (const auto& body : model.subgraphs) collect(body->nodes, found, by_op);
  if (found.empty()) return {};
  if (found.size() == 1) return fail(refusal_at(*found[0].first, found[0].op, ""));
  std::string list;
  for (size_t i = 0; i < std::min(found.size(), kListed); ++i) {
    const Uncovered& each = found[i];
    const RefusedOp* known = find_refusal(each.op);
    list += "\n  " + std::string(each.op.substr(0, 80)) + " (" + std::to_string(each.uses) +
            (each.uses == 1 ? " use)" : " uses)") + used_at(*each.first) +
            (known != nullptr ? ": " + std::string(known->why) : "");
  }
  if (found.size() > kListed) list += "\n  and " + std::to_string(found.size() - kListed) + " more";
  return fail(Code::kUnsupported, std::to_string(found.size()) + " ops are not covered; " +
                                      std::string(kAdvice) + ":" + list);
}

}  // namespace kiln
