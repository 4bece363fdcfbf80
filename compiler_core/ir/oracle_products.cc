// Loops over many elements, and blocked products of doubles, on several cores. Every workload that
// is tuned needs a reference, and the obvious loops take minutes for the convolutions of one
// network.
#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstring>
#include <thread>

#include "compiler_core/ir/oracle_ops.h"

namespace kiln::oracle {
namespace {

constexpr int64_t kRows = 6, kColumns = 8;  // of a register tile, 2 * kLanes columns
constexpr int64_t kDepth = 256;             // of what is packed at a time
constexpr int64_t kBlockRows = 32 * kRows, kBlockColumns = 48 * kColumns;
constexpr double kLeastThreadedFlops = 1e8;
constexpr int64_t kPart = 1 << 18;  // elements

constexpr int64_t kLanes = 4;
using Vector [[gnu::vector_size(kLanes * sizeof(double)), gnu::aligned(8)]] = double;

// tile[r][0..kColumns) += sum over p of a[p][r] * b[p][0..kColumns).
#if !defined(__SANITIZE_THREAD__)  // its runtime is not up yet when the clone is resolved
__attribute__((target_clones("arch=x86-64-v3", "default")))
#endif
void multiply_tile(const double* a, const double* b, int64_t depth, double* tile) {
  Vector low[kRows], high[kRows];
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; ++r) {
    low[r] = *reinterpret_cast<const Vector*>(tile + r * kColumns);
    high[r] = *reinterpret_cast<const Vector*>(tile + r * kColumns + kLanes);
  }
  for (int64_t p = 0; p < depth; ++p, a += kRows, b += kColumns) {
    const Vector y = *reinterpret_cast<const Vector*>(b);
    const Vector z = *reinterpret_cast<const Vector*>(b + kLanes);
#pragma GCC unroll 6
    for (int64_t r = 0; r < kRows; ++r) {
      low[r] += a[r] * y;
      high[r] += a[r] * z;
    }
  }
#pragma GCC unroll 6
  for (int64_t r = 0; r < kRows; ++r) {
    *reinterpret_cast<Vector*>(tile + r * kColumns) = low[r];
    *reinterpret_cast<Vector*>(tile + r * kColumns + kLanes) = high[r];
  }
}

// One product of [m, k] by [k, n] into `out`, which is row-major, and its part of `out`.
struct Block {
  int64_t row, rows, column, columns;
};

// `pack_b(p, depth, column, columns, panel)` writes rows [p, p + depth) of columns [column, column
// + columns) to panel[i * kColumns + j], zeros where `columns` ends before kColumns.
template <class PackB>
void multiply_block(const double* a, int64_t n, int64_t k, const Block& block, const PackB& pack_b,
                    double* out) {
  std::vector<double> left(static_cast<size_t>(kRows * kDepth));
  std::vector<double> right(static_cast<size_t>(kBlockColumns * kDepth));
  std::array<double, kRows * kColumns> tile{};
  for (int64_t p = 0; p < k; p += kDepth) {
    const int64_t depth = std::min(kDepth, k - p);
    for (int64_t j = 0; j < block.columns; j += kColumns)
      pack_b(p, depth, block.column + j, std::min(kColumns, block.columns - j),
             right.data() + j * kDepth);
    for (int64_t i = 0; i < block.rows; i += kRows) {
      const int64_t rows = std::min(kRows, block.rows - i);
      for (int64_t q = 0; q < depth; ++q)
        for (int64_t r = 0; r < kRows; ++r)
          left[static_cast<size_t>(q * kRows + r)] =
              r < rows ? a[(block.row + i + r) * k + p + q] : 0;
      for (int64_t j = 0; j < block.columns; j += kColumns) {
        const auto bytes = static_cast<size_t>(std::min(kColumns, block.columns - j)) * 8;
        double* const to = out + (block.row + i) * n + block.column + j;
        tile.fill(0);
        if (p > 0)
          for (int64_t r = 0; r < rows; ++r) std::memcpy(&tile[r * kColumns], to + r * n, bytes);
        multiply_tile(left.data(), right.data() + j * kDepth, depth, tile.data());
        for (int64_t r = 0; r < rows; ++r) std::memcpy(to + r * n, &tile[r * kColumns], bytes);
      }
    }
  }
}

// Calls task(0), ..., task(count - 1), on every core or on this one.
template <class Task>
void run_tasks(int64_t count, bool everywhere, const Task& task) {
  std::atomic<int64_t> next = 0;
  const auto work = [&] {
    for (int64_t i = next++; i < count; i = next++) task(i);
  };
  // Asking how many there are opens a file, and most tasks are one.
  const int64_t cores = everywhere && count > 1 ? std::thread::hardware_concurrency() : 1;
  std::vector<std::jthread> others;
  for (int64_t i = 1; i < std::min(cores, count); ++i) others.emplace_back(work);
  work();
}

// `batches` products [m, k] x [k, n]; a_of(batch) and out_of(batch) are where operands lie, and
// pack_b takes the batch before what multiply_block passes.
template <class A, class PackB>
void multiply(int64_t batches, int64_t m, int64_t n, int64_t k, const A& a_of, const PackB& pack_b,
              double* out) {
  const int64_t down = (m + kBlockRows - 1) / kBlockRows;
  const int64_t across = (n + kBlockColumns - 1) / kBlockColumns;
  const double flops = 2.0 * static_cast<double>(batches * m) * static_cast<double>(n * k);
  run_tasks(batches * down * across, flops >= kLeastThreadedFlops, [&](int64_t task) {
    const int64_t batch = task / (down * across), within = task % (down * across);
    const int64_t row = within / across * kBlockRows, column = within % across * kBlockColumns;
    const Block block = {row, std::min(kBlockRows, m - row), column,
                         std::min(kBlockColumns, n - column)};
    multiply_block(
        a_of(batch), n, k, block,
        [&](int64_t p, int64_t depth, int64_t from, int64_t columns, double* panel) {
          pack_b(batch, p, depth, from, columns, panel);
        },
        out + batch * m * n);
  });
}

}  // namespace

void for_parts(int64_t count, const std::function<void(int64_t, int64_t)>& body) {
  run_tasks((count + kPart - 1) / kPart, true,
            [&](int64_t part) { body(part * kPart, std::min(count, (part + 1) * kPart)); });
}

void multiply_reals(int64_t batches, int64_t m, int64_t n, int64_t k, const std::vector<double>& a,
                    const std::vector<double>& b, std::vector<double>& out) {
  multiply(
      batches, m, n, k, [&](int64_t batch) { return a.data() + batch * m * k; },
      [&](int64_t batch, int64_t p, int64_t depth, int64_t column, int64_t columns, double* panel) {
        const double* from = b.data() + (batch * k + p) * n + column;
        for (int64_t i = 0; i < depth; ++i, from += n, panel += kColumns)
          for (int64_t j = 0; j < kColumns; ++j) panel[j] = j < columns ? from[j] : 0;
      },
      out.data());
}

void convolve_reals(const ConvolutionSizes& sizes, const std::vector<double>& x,
                    const std::vector<double>& w, std::vector<double>& out) {
  // Names of their own: clang 14, which fuzzes, has lambdas capture no structured bindings.
  const int64_t images = sizes.images, groups = sizes.groups;
  const int64_t channels = sizes.channels, outputs = sizes.outputs;
  const Sizes &in = sizes.in, &window = sizes.window, &result = sizes.result;
  const Sizes &stride = sizes.stride, &dilation = sizes.dilation, &low = sizes.low;
  const int64_t taps = window[0] * window[1] * window[2], k = channels * taps;
  const int64_t plane = in[0] * in[1] * in[2], n = result[0] * result[1] * result[2];
  // Out of channel 0: where the window of each position begins, for each axis.
  multiply(
      images * groups, outputs, n, k,
      [&](int64_t batch) { return w.data() + batch % groups * outputs * k; },
      [&](int64_t batch, int64_t p, int64_t depth, int64_t column, int64_t columns, double* panel) {
        const double* const from = x.data() + batch * channels * plane;
        std::array<Sizes, kColumns> begin{};
        for (int64_t j = 0; j < columns; ++j) {
          const int64_t at = column + j;
          const Sizes place = {at / (result[1] * result[2]), at / result[2] % result[1],
                               at % result[2]};
          for (size_t axis = 0; axis < 3; ++axis)
            begin[static_cast<size_t>(j)][axis] = place[axis] * stride[axis] - low[axis];
        }
        for (int64_t i = 0; i < depth; ++i, panel += kColumns) {
          const int64_t tap = (p + i) % taps;
          const Sizes step = {tap / (window[1] * window[2]) * dilation[0],
                              tap / window[2] % window[1] * dilation[1],
                              tap % window[2] * dilation[2]};
          const double* const channel = from + (p + i) / taps * plane;
          for (int64_t j = 0; j < kColumns; ++j) {
            const Sizes& at = begin[static_cast<size_t>(j)];
            const int64_t d = at[0] + step[0], h = at[1] + step[1], v = at[2] + step[2];
            const bool inside =
                j < columns && d >= 0 && d < in[0] && h >= 0 && h < in[1] && v >= 0 && v < in[2];
            panel[j] = inside ? channel[(d * in[1] + h) * in[2] + v] : 0;
          }
        }
      },
      out.data());
}

}  // namespace kiln::oracle
