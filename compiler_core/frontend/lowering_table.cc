// The table of ops.
#include <algorithm>
#include <array>

#include "compiler_core/frontend/lowering.h"

namespace kiln {
namespace {

constexpr auto kIgnored = std::to_array<std::string_view>({
    "aten._assert_tensor_metadata.default",
    "aten._assert_scalar.default",
    "aten._assert_async.default",
    "aten._assert_async.msg",
    "aten._functional_assert_scalar.default",
    "aten._functional_assert_async.msg",
    "aten.sym_constrain_range.default",
    "aten.sym_constrain_range_for_size.default",
    "aten._functional_sym_constrain_range.default",
    "aten._functional_sym_constrain_range_for_size.default",
    "aten._make_dep_token.default",
    "higher_order._export_tracepoint",
});

constexpr auto kNumbers = std::to_array<std::string_view>({
    "aten.item.default",
    "aten._local_scalar_dense.default",
});

// Where PyTorch may copy or not (reshape, contiguous, flatten), it does not for what models change
// in place.
constexpr auto kViews = std::to_array<std::string_view>({
    "aten.alias.default",
    "aten.as_strided.default",
    "aten.broadcast_to.default",
    "aten.chunk.default",
    "aten.contiguous.default",
    "aten.detach.default",
    "aten.diagonal.default",
    "aten.expand.default",
    "aten.flatten.using_ints",
    "aten.mT.default",
    "aten.movedim.int",
    "aten.movedim.intlist",
    "aten.narrow.default",
    "aten.permute.default",
    "aten.reshape.default",
    "aten.select.int",
    "aten.slice.Tensor",
    "aten.split.Tensor",
    "aten.split.sizes",
    "aten.split_with_sizes.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.swapaxes.default",
    "aten.t.default",
    "aten.transpose.int",
    "aten.unbind.int",
    "aten.unflatten.int",
    "aten.unfold.default",
    "aten.unsqueeze.default",
    "aten.view.default",
    "aten.view_as_complex.default",
    "aten.view_as_real.default",
    "aten.real.default",
    "aten.imag.default",
});

using Table = std::unordered_map<std::string_view, const Lowering*>;

Table make_table() {
  Table table;
  for (const std::span<const Lowering> list :
       {arithmetic_lowerings(),    elementwise_lowerings(),    activation_lowerings(),
        view_lowerings(),          rearranging_lowerings(),    stacking_lowerings(),
        creation_lowerings(),      indexing_lowerings(),       scatter_lowerings(),
        sorting_lowerings(),       reduction_lowerings(),      normalisation_lowerings(),
        matmul_lowerings(),        resampling_lowerings(),     embedding_bag_lowerings(),
        convolution_lowerings(),   pooling_lowerings(),        adaptive_pooling_lowerings(),
        attention_lowerings(),     einsum_lowerings(),         recurrent_lowerings(),
        loss_lowerings(),          random_lowerings(),         backward_lowerings(),
        norm_backward_lowerings(), linear_algebra_lowerings(), scan_lowerings(),
        special_lowerings(),       expert_lowerings(),         quantised_lowerings(),
        packed_weight_lowerings(), torchao_lowerings(),        complex_lowerings(),
        fourier_lowerings(),       scaled_mm_lowerings(),      bit_lowerings()})
    for (const Lowering& lowering : list) table.emplace(lowering.name, &lowering);
  return table;
}

const Table& table() {
  static const Table kTable = make_table();
  return kTable;
}

template <size_t n>
bool is_among(const std::array<std::string_view, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

const Lowering* find_lowering(std::string_view name) {
  const auto found = table().find(name);
  return found == table().end() ? nullptr : found->second;
}

std::vector<std::string_view> covered_ops() {
  std::vector<std::string_view> names;
  for (const auto& [name, lowering] : table()) names.push_back(name);
  std::sort(names.begin(), names.end());
  return names;
}

bool is_ignored_op(std::string_view name) {
  return is_among(kIgnored, name);
}

bool is_number_op(std::string_view name) {
  return is_among(kNumbers, name);
}

bool is_view_op(std::string_view name) {
  return is_among(kViews, name);
}

std::optional<std::string> functional_op(std::string_view name) {
  constexpr std::string_view kAten = "aten.";
  if (!name.starts_with(kAten)) return std::nullopt;
  const size_t dot = name.find('.', kAten.size());
  if (dot == std::string_view::npos || dot < kAten.size() + 2 || name[dot - 1] != '_')
    return std::nullopt;
  std::string base(name.substr(0, dot - 1));
  // __iadd__ and its like change their tensor; __and__ does not.
  if (base.ends_with('_')) {
    if (!base.starts_with("aten.__i") || base == "aten.__invert_") return std::nullopt;
    base = "aten.__" + base.substr(std::string_view("aten.__i").size()) + "_";
  }
  return base + std::string(name.substr(dot));
}

}  // namespace kiln
