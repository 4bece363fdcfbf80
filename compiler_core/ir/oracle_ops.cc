#include "compiler_core/ir/oracle_ops.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "compiler_core/ir/scalar_ops.h"

namespace kiln::oracle {
namespace {

Op scalar_op(Combine combine) {
  switch (combine) {
    case Combine::kAdd:
      return Op::kAdd;
    case Combine::kMul:
      return Op::kMul;
    case Combine::kMin:
      return Op::kMin;
    default:
      return Op::kMax;
  }
}

Sizes spatial_sizes(const std::vector<int64_t>& sizes) {
  Sizes result = {1, 1, 1};
  std::copy_backward(sizes.begin() + 2, sizes.end(), result.end());
  return result;
}
Sizes spatial(const std::vector<int64_t>& values, int64_t fallback) {
  Sizes result = {fallback, fallback, fallback};
  std::copy_backward(values.begin(), values.end(), result.end());
  return result;
}

ConvolutionSizes sizes_of(const ConvolutionAttr& attr, const Value& x, const Value& w,
                          const Value& out) {
  return {out.sizes[0],
          attr.groups,
          w.sizes[1],
          w.sizes[0] / attr.groups,
          spatial_sizes(x.sizes),
          spatial_sizes(w.sizes),
          spatial_sizes(out.sizes),
          spatial(attr.stride, 1),
          spatial(attr.dilation, 1),
          spatial(attr.low, 0)};
}

template <class T>
void convolve(const ConvolutionSizes& sizes, const std::vector<T>& x, const std::vector<T>& w,
              std::vector<T>& out) {
  const auto& [images, groups, channels, outputs, in, window, size, stride, dilation, low] = sizes;
  const int64_t taps = window[0] * window[1] * window[2];
  size_t at = 0;
  for (int64_t n = 0; n < images; ++n)
    for (int64_t o = 0; o < groups * outputs; ++o)
      for (int64_t p = 0; p < size[0] * size[1] * size[2]; ++p, ++at) {
        const Sizes place = {p / (size[1] * size[2]), p / size[2] % size[1], p % size[2]};
        T sum = 0;
        for (int64_t c = 0; c < channels; ++c)
          for (int64_t q = 0; q < taps; ++q) {
            const Sizes tap = {q / (window[1] * window[2]), q / window[2] % window[1],
                               q % window[2]};
            int64_t flat = (n * groups + o / outputs) * channels + c;
            bool inside = true;
            for (size_t k = 0; k < 3; ++k) {
              const int64_t i = place[k] * stride[k] - low[k] + tap[k] * dilation[k];
              inside = inside && i >= 0 && i < in[k];
              flat = flat * in[k] + i;
            }
            if (inside)
              sum += x[static_cast<size_t>(flat)] *
                     w[static_cast<size_t>((o * channels + c) * taps + q)];
          }
        out[at] = sum;
      }
}

}  // namespace

int64_t count(std::span<const int64_t> sizes) {
  int64_t product = 1;
  for (const int64_t size : sizes) product *= size;
  return product;
}

void convolution(const ConvolutionAttr& attr, const Value& x, const Value& w, Value& out) {
  const ConvolutionSizes sizes = sizes_of(attr, x, w, out);
  if (out.f.empty())
    convolve(sizes, x.i, w.i, out.i);
  else if (std::ranges::all_of(w.f, [](double v) { return std::isfinite(v); }))
    convolve_reals(sizes, x.f, w.f, out.f);
  else
    convolve(sizes, x.f, w.f, out.f);
}

void scatter(const ScatterAttr& attr, DType dtype, const Value& x, const Value& index,
             const Value& updates, Value& out) {
  out.f = x.f;
  out.i = x.i;
  const int64_t rows = x.sizes[0], row = count(std::span(x.sizes).subspan(1));
  const Op op = scalar_op(attr.combine);
  for (size_t k = 0; k < index.i.size(); ++k) {
    const int64_t at = index.i[k] < 0 ? index.i[k] + rows : index.i[k];
    if (at < 0 || at >= rows) continue;
    for (int64_t j = 0; j < row; ++j) {
      const auto to = static_cast<size_t>(at * row + j);
      const auto from = k * static_cast<size_t>(row) + static_cast<size_t>(j);
      if (!out.f.empty())
        out.f[to] = attr.combine == Combine::kSet ? updates.f[from]
                                                  : apply_binary(op, out.f[to], updates.f[from]);
      else
        out.i[to] = attr.combine == Combine::kSet
                        ? updates.i[from]
                        : wrap_to(dtype, apply_binary(op, out.i[to], updates.i[from]));
    }
  }
}

void argsort(const SortAttr& attr, const Value& x, Value& out) {
  const int64_t size = x.sizes.back();
  if (size == 0) return;
  const auto less = [&](size_t a, size_t b) {
    if (x.f.empty()) return x.i[a] < x.i[b];
    return !std::isnan(x.f[a]) && (std::isnan(x.f[b]) || x.f[a] < x.f[b]);
  };
  std::vector<int64_t> order(static_cast<size_t>(size));
  for (int64_t row = 0; row < count(x.sizes) / size; ++row) {
    const auto base = static_cast<size_t>(row * size);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
      const size_t first = base + static_cast<size_t>(a), second = base + static_cast<size_t>(b);
      return attr.descending ? less(second, first) : less(first, second);
    });
    std::copy(order.begin(), order.end(), out.i.begin() + static_cast<std::ptrdiff_t>(base));
  }
}

// Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3" (2011).
void philox(const PhiloxAttr& attr, int64_t seed, Value& out) {
  const auto low = [](uint64_t v) { return static_cast<uint32_t>(v); };
  const auto high = [](uint64_t v) { return static_cast<uint32_t>(v >> 32); };
  const auto stream = static_cast<uint64_t>(attr.stream);
  for (size_t p = 0; p < out.i.size(); p += 4) {
    const uint64_t block = p / 4;
    std::array<uint32_t, 4> c = {low(block), high(block), low(stream), high(stream)};
    uint32_t k0 = low(static_cast<uint64_t>(seed)), k1 = high(static_cast<uint64_t>(seed));
    for (int round = 0; round < 10; ++round) {
      const uint64_t a = uint64_t{0xD2511F53} * c[0], b = uint64_t{0xCD9E8D57} * c[2];
      c = {high(b) ^ c[1] ^ k0, low(b), high(a) ^ c[3] ^ k1, low(a)};
      k0 += 0x9E3779B9;
      k1 += 0xBB67AE85;
    }
    for (size_t j = 0; j < 4 && p + j < out.i.size(); ++j) out.i[p + j] = c[j];
  }
}

}  // namespace kiln::oracle
