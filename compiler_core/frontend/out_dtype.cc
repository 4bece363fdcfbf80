// higher_order.out_dtype: an op whose result, and the operands before it, have a wider dtype than the
// operands that are given.
#include <algorithm>
#include <array>

#include "compiler_core/frontend/exported_model.h"

namespace kiln {
namespace {

using std::string_view;

// The ops that PyTorch allows under out_dtype (its ALLOWABLE_OPS), and their arguments in order.
struct OpArguments {
  string_view op;
  std::array<string_view, 9> names;
};
constexpr auto kAllowed = std::to_array<OpArguments>({
    {"torch.ops.aten.mm.default", {"self", "mat2"}},
    {"torch.ops.aten.linear.default", {"input", "weight", "bias"}},
    {"torch.ops.aten.mul.Tensor", {"self", "other"}},
    {"torch.ops.aten.mul.Scalar", {"self", "other"}},
    {"torch.ops.aten.div.Tensor", {"self", "other"}},
    {"torch.ops.aten.div.Scalar", {"self", "other"}},
    {"torch.ops.aten.conv2d.default",
     {"input", "weight", "bias", "stride", "padding", "dilation", "groups"}},
    {"torch.ops.aten.convolution.default",
     {"input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding",
      "groups"}},
});

}  // namespace

Status unwrap_out_dtype(ExportedNode& node) {
  if (node.target != "torch.ops.higher_order.out_dtype") return {};
  const auto* op =
      node.inputs.size() < 2 ? nullptr : std::get_if<string_view>(&node.inputs[0].value);
  const auto* type = op == nullptr ? nullptr : std::get_if<ScalarTypeCode>(&node.inputs[1].value);
  if (type == nullptr) return fail(Code::kInvalidArgument, "names no op and no type");
  const auto* const allowed = std::ranges::find(kAllowed, *op, &OpArguments::op);
  if (allowed == kAllowed.end()) return {};
  node.target = *op;
  node.computes_in = *type;
  node.inputs.erase(node.inputs.begin(), node.inputs.begin() + 2);
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    if (i >= allowed->names.size() || allowed->names[i].empty())
      return fail(Code::kInvalidArgument, "has more operands than " + std::string(allowed->op));
    node.inputs[i].name = allowed->names[i];
  }
  return {};
}

}  // namespace kiln
