// The vectorised math of printing/device/math_f32.h against libm in long double: a lattice over all f32
// bit patterns, and the neighbourhoods where approximations change.
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/support/fake_cuda/host_launch.h"

namespace kiln {
namespace {

using Reference = long double (*)(long double);

// How far `got` is from `want`, in units of the last place of an f32 of that size.
double ulps(float got, long double want) {
  const float rounded = static_cast<float>(want);
  if (std::isnan(rounded) || std::isnan(got))
    return std::isnan(rounded) && std::isnan(got) ? 0 : INFINITY;
  if (std::isinf(rounded) || std::isinf(got)) {
    // Overflow may start an ulp early or late.
    const float other = std::isinf(rounded) ? got : rounded;
    return rounded == got                                          ? 0
           : std::fabs(other) == std::numeric_limits<float>::max() ? 1
                                                                   : INFINITY;
  }
  int exponent;
  std::frexp(want, &exponent);
  const long double unit = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / unit);
}

std::vector<float> samples() {
  std::vector<float> values;
  for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += 104729)
    values.push_back(std::bit_cast<float>(static_cast<uint32_t>(bits)));
  for (float edge :
       {0.0f,       0.625f,      1.0f,        4.0f,        0x1p-126f, 20.0f,   87.0f,   88.72f,
        89.0f,      103.9f,      104.0f,      1e5f,        0x1p22f,   0x1p23f, 0x1p24f, 1.5707964f,
        3.1415927f, 0.70710678f, 1.41421356f, 0.34657359f, 2.5f,      3.5f})
    for (int step = -20; step <= 20; ++step)
      for (float sign : {-1.0f, 1.0f})
        values.push_back(sign * std::bit_cast<float>(std::bit_cast<uint32_t>(edge + 1e-30f) +
                                                     static_cast<uint32_t>(step)));
  for (int i = -20000; i < 20000; ++i) values.push_back(static_cast<float>(i) * 0.0107f);
  for (float special : {INFINITY, -INFINITY, NAN, -0.0f, 0x1p-149f, 3.4e38f, -3.4e38f})
    values.push_back(special);
  // NaNs whose payload would carry out of the mantissa, or that lose it when cut.
  for (uint32_t bits : {0x7fffffffu, 0xffffffffu, 0x7f800001u, 0xff800001u, 0x7fff8000u})
    values.push_back(std::bit_cast<float>(bits));
  return values;
}

Tensor tensor_of(const std::vector<float>& values) {
  Tensor tensor(DType::kF32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), tensor.as<float>().begin());
  return tensor;
}

struct Function {
  Op op;
  Reference reference;
  double most_ulps;
};

TEST(Math, UnaryFunctionsAreAccurateOverTheWholeRange) {
  const Function functions[] = {
      {Op::kExp, expl, 1.1},     {Op::kExpm1, expm1l, 2},    {Op::kLog, logl, 1},
      {Op::kLog1p, log1pl, 2.5}, {Op::kSin, sinl, 1.6},      {Op::kCos, cosl, 1.6},
      {Op::kTan, tanl, 3},       {Op::kTanh, tanhl, 2.5},    {Op::kErf, erfl, 1.5},
      {Op::kSqrt, sqrtl, 0.5},   {Op::kFloor, floorl, 0},    {Op::kCeil, ceill, 0},
      {Op::kTrunc, truncl, 0},   {Op::kRound, nearbyintl, 0}};
  const std::vector<float> values = samples();
  // One kernel computes them all.
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {static_cast<int64_t>(values.size())});
  std::vector<NodeId> outputs;
  for (const Function& f : functions) outputs.push_back(b.unary(f.op, x));
  const Workload workload{*b.finish(outputs), Family::kPointwise, {}};
  std::vector<Tensor> inputs;
  inputs.push_back(tensor_of(values));
  for (const Target& target : testing::targets())
    for (int lanes : {4, 8, 16}) {
      const Schedule schedule{"cpu.pointwise", {{"lanes", lanes}}};
      const auto results =
          testing::run_source(*lower_to_source(workload, schedule, target), target, inputs);
      ASSERT_TRUE(results) << results.error().message;
      for (size_t f = 0; f < std::size(functions); ++f)
        for (size_t i = 0; i < values.size(); ++i) {
          const float got = (*results)[f].as<float>()[i];
          const long double want = functions[f].reference(values[i]);
          ASSERT_LE(ulps(got, want), functions[f].most_ulps)
              << to_string(functions[f].op) << "(" << values[i] << ") = " << got << ", lanes "
              << lanes << ", " << target.to_string();
          if (want == 0) {
            ASSERT_EQ(std::signbit(got), std::signbit(want))
                << to_string(functions[f].op) << "(" << values[i] << ")";
          }
        }
    }
}

// The rest of CUDA's functions are the device library's; the fake GPU has libm's in their place.
TEST(Math, CudaFunctionsOfOurOwnAreAccurateOverTheWholeRange) {
  const Function functions[] = {
      {Op::kSin, sinl, 1.6}, {Op::kCos, cosl, 1.6}, {Op::kTan, tanl, 3}, {Op::kTanh, tanhl, 3}};
  const std::vector<float> values = samples();
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {static_cast<int64_t>(values.size())});
  const NodeId wide = b.cast(x, DType::kF64);
  std::vector<NodeId> outputs;
  for (const Function& f : functions) outputs.push_back(b.unary(f.op, x));
  for (const Function& f : functions) outputs.push_back(b.unary(f.op, wide));
  const Workload workload{*b.finish(outputs), Family::kPointwise, {}};
  const Schedule schedule = *Schedule::parse("cuda.pointwise lanes=4 threads=256 unroll=1");
  std::vector<Tensor> inputs;
  inputs.push_back(tensor_of(values));
  const auto results = testing::run_on_fake_gpu(
      *lower_to_source(workload, schedule, *Target::parse("cuda:sm_90a")), inputs);
  ASSERT_TRUE(results) << results.error().message;
  for (size_t f = 0; f < std::size(functions); ++f)
    for (size_t i = 0; i < values.size(); ++i) {
      const float got = (*results)[f].as<float>()[i];
      const double in_f64 = (*results)[f + std::size(functions)].as<double>()[i];
      const long double want = functions[f].reference(values[i]);
      ASSERT_LE(ulps(got, want), functions[f].most_ulps)
          << to_string(functions[f].op) << "(" << values[i] << ") = " << got;
      ASSERT_TRUE(std::isnan(want) ? std::isnan(in_f64)
                                   : std::fabs(in_f64 - want) <= 7e-16L * std::fabs(want))
          << to_string(functions[f].op) << "(" << values[i] << ") = " << in_f64;
      if (want == 0) {
        ASSERT_EQ(std::signbit(got), std::signbit(want));
      }
    }
}

TEST(Math, PowerFollowsAnnexF) {
  const float edges[] = {0.0f,    -0.0f, 1,      -1,       2,         -2,       3,
                         -3,      0.5f,  -0.5f,  INFINITY, -INFINITY, NAN,      1e-40f,
                         -1e-40f, 1e38f, -1e38f, 2.5f,     -2.5f,     16777216, 33554432,
                         7,       127,   150,    -149,     0.999999f, 1.000001f};
  std::vector<float> bases, exponents;
  for (float base : edges)
    for (float exponent : edges) bases.push_back(base), exponents.push_back(exponent);
  std::mt19937 random(5);
  std::uniform_real_distribution<float> base(0, 20), exponent(-30, 30);
  for (int i = 0; i < 20000; ++i) {
    bases.push_back(i % 4 == 0 ? -base(random) : base(random));
    exponents.push_back(i % 4 == 0 ? std::floor(exponent(random)) : exponent(random));
  }
  GraphBuilder b;
  const Shape shape = {static_cast<int64_t>(bases.size())};
  const NodeId x = b.input(DType::kF32, shape), y = b.input(DType::kF32, shape);
  const Workload workload{*b.finish({b.binary(Op::kPow, x, y)}), Family::kPointwise, {}};
  std::vector<Tensor> inputs;
  inputs.push_back(tensor_of(bases));
  inputs.push_back(tensor_of(exponents));
  for (const Target& target : testing::targets()) {
    const Schedule schedule{"cpu.pointwise", {{"lanes", 8}}};
    const auto results =
        testing::run_source(*lower_to_source(workload, schedule, target), target, inputs);
    ASSERT_TRUE(results) << results.error().message;
    for (size_t i = 0; i < bases.size(); ++i) {
      const float got = (*results)[0].as<float>()[i];
      ASSERT_LE(ulps(got, powl(bases[i], exponents[i])), 1)
          << bases[i] << " ^ " << exponents[i] << " = " << got;
    }
  }
}

// One divisor for a whole row takes another path than a division of two rows.
TEST(Math, DivisionByARowsValueIsExact) {
  const float divisors[] = {3,        -7,        0.1f, 1e20f, 1e-20f,   0x1.fffffep0f, 0x1p-120f,
                            0x1p120f, 0x1p-140f, 0.0f, -0.0f, INFINITY, -INFINITY,     NAN};
  const std::vector<float> values = samples();
  const auto rows = static_cast<int64_t>(std::size(divisors));
  const auto columns = static_cast<int64_t>(values.size());
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {columns}), y = b.input(DType::kF32, {rows, 1});
  const Shape shape = {rows, columns};
  const Workload workload{
      *b.finish({b.binary(Op::kDiv, b.broadcast(x, shape), b.broadcast(y, shape))}),
      Family::kPointwise,
      {}};
  std::vector<Tensor> inputs;
  inputs.push_back(tensor_of(values));
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{rows, 1});
  std::copy(std::begin(divisors), std::end(divisors), inputs[1].as<float>().begin());
  for (const Target& target : testing::targets()) {
    const Schedule schedule{"cpu.pointwise",
                            {{"lanes", target.isa == "x86-64-v4" ? 16 : 8}, {"unroll", 2}}};
    const auto results =
        testing::run_source(*lower_to_source(workload, schedule, target), target, inputs);
    ASSERT_TRUE(results) << results.error().message;
    for (size_t r = 0; r < std::size(divisors); ++r)
      for (size_t i = 0; i < values.size(); ++i) {
        const float got = (*results)[0].as<float>()[r * values.size() + i];
        const float want = values[i] / divisors[r];
        if (std::isnan(want)) {
          ASSERT_TRUE(std::isnan(got)) << values[i] << " / " << divisors[r];
          continue;
        }
        // Where the remainder itself is subnormal, the last bit may differ.
        const bool tiny = std::fabs(values[i]) < 0x1p-98f || std::fabs(want) < 0x1p-98f;
        ASSERT_LE(ulps(got, want), tiny ? 1 : 0) << values[i] << " / " << divisors[r];
        ASSERT_EQ(std::signbit(got), std::signbit(want)) << values[i] << " / " << divisors[r];
      }
  }
}

TEST(Math, HalvesRoundToNearestEvenAndKeepNaN) {
  const std::vector<float> values = samples();
  GraphBuilder b;
  const NodeId x = b.input(DType::kF32, {static_cast<int64_t>(values.size())});
  const Workload workload{
      *b.finish({b.cast(x, DType::kBF16), b.cast(x, DType::kF16)}), Family::kPointwise, {}};
  std::vector<Tensor> inputs;
  inputs.push_back(tensor_of(values));
  for (const Target& target : testing::targets())
    for (int lanes : {4, 8, 16}) {
      const Schedule schedule{"cpu.pointwise", {{"lanes", lanes}}};
      const auto results =
          testing::run_source(*lower_to_source(workload, schedule, target), target, inputs);
      ASSERT_TRUE(results) << results.error().message;
      for (size_t i = 0; i < values.size(); ++i)
        for (size_t k = 0; k < 2; ++k) {
          const auto at = static_cast<int64_t>(i);
          Tensor want((*results)[k].dtype(), {1});
          want.set(0, values[i]);
          if (std::isnan(values[i]))
            ASSERT_TRUE(std::isnan((*results)[k].get(at))) << i;
          else
            ASSERT_EQ((*results)[k].as<uint16_t>()[i], want.as<uint16_t>()[0]) << values[i];
        }
    }
}

}  // namespace
}  // namespace kiln
