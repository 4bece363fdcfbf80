// Weights of 4 bits in the layouts of ATen's kernels, which the tests pack themselves: for tensor cores
// from where PTX's mma.m16n8k16 wants the elements of its second operand, for CPUs from what torch 2.11
// wrote on a machine with AVX-512.
#include <gtest/gtest.h>

#include "tests/compiler_core/frontend/one_node.h"

namespace kiln {
namespace {

using namespace kiln::testing;  // NOLINT: the vocabulary of these tests

constexpr int64_t kGroup = 32;

int64_t weight_at(int64_t row, int64_t k) {
  return (row * 7 + k * 5 + row * k / 3) % 16;
}

// A word has for one lane two tiles of 16 along the depth, of each the elements that the instruction
// takes from that lane: those of two registers, two in each. Even ones are in its lower half.
Doubles packed_for_tensor_cores(int64_t rows, int64_t depth, int64_t inner_tiles) {
  Doubles words;
  for (int64_t tile = 0; tile < rows / 8; ++tile)
    for (int64_t outer = 0; outer < depth / (16 * inner_tiles); ++outer)
      for (int64_t lane = 0; lane < 32; ++lane)
        for (int64_t inner = 0; inner < inner_tiles; inner += 2) {
          uint32_t word = 0;
          int even = 0, odd = 4;  // places of half bytes
          for (int64_t t = 0; t < 2; ++t)
            for (int64_t in_register = 0; in_register < 2; ++in_register)
              for (int64_t i = 0; i < 2; ++i) {
                const int64_t k =
                    (outer * inner_tiles + inner + t) * 16 + in_register * 8 + lane % 4 * 2 + i;
                const auto q = static_cast<uint32_t>(weight_at(tile * 8 + lane / 4, k));
                word |= q << 4 * (i == 0 ? even++ : odd++);
              }
          words.push_back(static_cast<int32_t>(word));
        }
  return words;
}

// Blocks of 64 rows have row i and row i + 32 in a byte, the last rows row 2i and row 2i + 1.
Doubles packed_for_cpu(int64_t rows, int64_t depth) {
  Doubles bytes;
  for (int64_t first = 0; first < rows; first += 64) {
    const int64_t here = std::min<int64_t>(rows - first, 64);
    for (int64_t k = 0; k < depth; ++k)
      for (int64_t i = 0; i < here / 2; ++i) {
        const int64_t low = here == 64 ? i : 2 * i, high = here == 64 ? i + 32 : 2 * i + 1;
        bytes.push_back(
            static_cast<double>(weight_at(first + low, k) + 16 * weight_at(first + high, k)));
      }
  }
  return bytes;
}

double scale_at(int64_t group, int64_t row) {
  return 0.25 * static_cast<double>(1 + (group + row) % 4);
}
double zero_at(int64_t group, int64_t row) {
  return 0.5 * static_cast<double>((group * 3 + row) % 5 - 2);
}

// x, whose rows are 1 at one place and 2 at another, times weights that are packed so.
void expect_product(const std::string& op, const OneNode::In& packed, int64_t rows, int64_t depth) {
  constexpr int64_t kRows = 3;
  Doubles x(static_cast<size_t>(kRows * depth)), factors, expected;
  const auto place = [&](int64_t row, int64_t which) { return (row * 37 + which * 21) % depth; };
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t which = 0; which < 2; ++which)
      x[static_cast<size_t>(row * depth + place(row, which))] += static_cast<double>(1 + which);
  for (int64_t group = 0; group < depth / kGroup; ++group)
    for (int64_t row = 0; row < rows; ++row)
      factors.insert(factors.end(), {scale_at(group, row), zero_at(group, row)});
  for (int64_t i = 0; i < kRows; ++i)
    for (int64_t row = 0; row < rows; ++row) {
      double sum = 0;
      for (int64_t k = 0; k < depth; ++k)
        sum += x[static_cast<size_t>(i * depth + k)] *
               (static_cast<double>(weight_at(row, k) - 8) * scale_at(k / kGroup, row) +
                zero_at(k / kGroup, row));
      expected.push_back(sum);
    }
  expect_values(
      {op,
       {kX, tensor("mat2", "z"), integer("qGroupSize", kGroup), tensor("qScaleAndZeros", "w")},
       {{kBFloat16, {kRows, depth}, x}, packed, {kBFloat16, {depth / kGroup, rows, 2}, factors}},
       kBFloat16,
       {kRows, rows}},
      expected);
}

TEST(PackedWeights, ProductsReadTheLayoutOfTensorCores) {
  for (const int64_t inner : {2, 4, 8})
    expect_product(
        "aten._weight_int4pack_mm.default",
        {kInt, {3, 256 / (16 * inner), 32, inner / 2}, packed_for_tensor_cores(24, 256, inner)}, 24,
        256);
}

TEST(PackedWeights, BytesArePackedForTensorCores) {
  constexpr int64_t kRows = 16, kDepth = 256;
  Doubles bytes;  // the even elements of the depth in the upper half
  for (int64_t row = 0; row < kRows; ++row)
    for (int64_t k = 0; k < kDepth; k += 2)
      bytes.push_back(static_cast<double>(weight_at(row, k) * 16 + weight_at(row, k + 1)));
  for (const int64_t inner : {2, 4, 8})
    expect_values({"aten._convert_weight_to_int4pack.default",
                   {kX, integer("innerKTiles", inner)},
                   {{kByte, {kRows, kDepth / 2}, bytes}},
                   kInt,
                   {kRows / 8, kDepth / (16 * inner), 32, inner / 2}},
                  packed_for_tensor_cores(kRows, kDepth, inner));
}

TEST(PackedWeights, ProductsReadTheLayoutOfCpus) {
  for (const int64_t rows : {16, 64, 96, 176})
    expect_product("aten._weight_int4pack_mm_for_cpu.default",
                   {kByte, {rows, 32}, packed_for_cpu(rows, 64)}, rows, 64);
}

TEST(PackedWeights, IntegersArePackedForCpus) {
  for (const int64_t rows : {16, 64, 96, 176}) {
    Doubles weights;
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t k = 0; k < 64; ++k) weights.push_back(static_cast<double>(weight_at(row, k)));
    expect_values({"aten._convert_weight_to_int4pack_for_cpu.default",
                   {kX, integer("innerKTiles", 2)},
                   {{kInt, {rows, 64}, weights}},
                   kByte,
                   {rows, 32}},
                  packed_for_cpu(rows, 64));
  }
}

// What torch 2.11 wrote of weights of which one alone is 15: where its half byte is.
TEST(PackedWeights, TheLayoutOfCpusIsThatOfTorch) {
  const Doubles packed = packed_for_cpu(64, 64);
  for (const auto& [row, k, byte, high] :
       {std::tuple<int64_t, int64_t, size_t, bool>{17, 0, 17, false},
        {17, 1, 49, false},
        {31, 1, 63, false},
        {32, 0, 0, true},
        {48, 1, 48, true},
        {63, 0, 31, true}}) {
    const auto held = static_cast<int64_t>(packed[byte]);
    EXPECT_EQ(high ? held / 16 : held % 16, weight_at(row, k)) << row << ' ' << k;
  }
}

TEST(PackedWeights, OtherShapesAreRefused) {
  const auto refused = [](const std::string& op, const OneNode::In& packed, int64_t group) {
    const OneNode node{
        op,
        {kX, tensor("mat2", "z"), integer("qGroupSize", group), tensor("qScaleAndZeros", "w")},
        {{kFloat, {1, 64}, Doubles(64, 1.0)}, packed, {kFloat, {2, 16, 2}, Doubles(64, 1.0)}},
        kFloat,
        {1, 16}};
    const auto got = node.run();
    return !got && got.error().code == Code::kInvalidArgument;
  };
  const Doubles bytes(512, 0.0);
  const std::string cpu = "aten._weight_int4pack_mm_for_cpu.default";
  EXPECT_FALSE(refused(cpu, {kByte, {16, 32}, bytes}, 32));
  EXPECT_TRUE(refused(cpu, {kByte, {16, 32}, bytes}, 48)) << "groups do not divide the depth";
  EXPECT_TRUE(refused(cpu, {kInt, {16, 32}, bytes}, 32)) << "no bytes";
  EXPECT_TRUE(refused(cpu, {kByte, {32, 16}, bytes}, 32)) << "another depth than that of x";
  EXPECT_TRUE(refused(cpu, {kByte, {0, 32}, {}}, 32)) << "nothing";
  EXPECT_TRUE(refused(cpu, {kByte, {15, 32}, Doubles(480, 0.0)}, 32)) << "half a byte too few";
  const std::string cuda = "aten._weight_int4pack_mm.default";
  EXPECT_FALSE(refused(cuda, {kInt, {2, 2, 32, 1}, Doubles(128, 0.0)}, 32));
  EXPECT_TRUE(refused(cuda, {kInt, {2, 2, 16, 2}, Doubles(128, 0.0)}, 32)) << "no 32 lanes";
  EXPECT_TRUE(refused(cuda, {kInt, {0, 2, 32, 1}, {}}, 32)) << "nothing";
}

}  // namespace
}  // namespace kiln
