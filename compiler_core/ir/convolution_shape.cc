#include "compiler_core/ir/verify.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr int64_t kMaxStep = int64_t{1} << 31;  // of strides, dilations and paddings

bool all_within(const std::vector<int64_t>& values, int64_t least) {
  return std::all_of(values.begin(), values.end(),
                     [&](int64_t v) { return v >= least && v <= kMaxStep; });
}

tl::unexpected<Error> refuse(std::string_view rule) {
  return fail(Code::kInvalidArgument, std::string(rule));
}

}  // namespace

Result<Shape> convolution_shape(const Shape& x, const Shape& w, const ConvolutionAttr& attr) {
  const size_t spatial = attr.stride.size();
  if (spatial < 1 || spatial > 3) return refuse("a convolution has one to three spatial axes");
  if (attr.dilation.size() != spatial || attr.low.size() != spatial || attr.high.size() != spatial)
    return refuse("a convolution needs stride, dilation and padding for each spatial axis");
  if (x.size() != spatial + 2 || w.size() != spatial + 2)
    return refuse("a convolution's operands have two axes more than spatial ones");
  if (!all_within(attr.stride, 1) || !all_within(attr.dilation, 1) || !all_within(attr.low, 0) ||
      !all_within(attr.high, 0) || attr.groups < 1)
    return refuse("a convolution's stride, dilation, padding or groups are out of range");
  if (!w[0].is_constant() || w[0].constant() % attr.groups != 0)
    return refuse("a convolution's output channels are a multiple of its groups");
  if (x[1] != w[1] * Dim(attr.groups))
    return refuse("a convolution's weight has another number of input channels");
  Shape to = {x[0], w[0]};
  for (size_t i = 0; i < spatial; ++i) {
    const Dim reach = (w[i + 2] - Dim(1)) * Dim(attr.dilation[i]);
    const Dim room = x[i + 2] + Dim(attr.low[i] + attr.high[i]) - reach - Dim(1);
    if (room.is_constant() && room.constant() < 0)
      return refuse("a convolution's window is larger than the padded operand");
    auto windows = count_windows(room, attr.stride[i]);
    if (!windows) return refuse("a convolution's stride over a size that it does not divide");
    to.push_back(*std::move(windows));
  }
  return to;
}

Result<Dim> count_windows(const Dim& room, int64_t stride) {
  const std::vector<SymbolId> symbols = room.symbols();
  const std::vector<int64_t> zeros(symbols.empty() ? 0 : static_cast<size_t>(symbols.back()) + 1);
  TRY(const int64_t constant, room.evaluate(zeros));
  TRY(const Dim open, Dim::divide_exact(room - Dim(constant), stride));
  const int64_t whole = constant / stride - (constant % stride < 0 ? 1 : 0);
  return open + Dim(whole + 1);
}

}  // namespace kiln
