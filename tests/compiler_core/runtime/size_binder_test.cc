#include "compiler_core/runtime/size_binder.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

const Dim kBatch = Dim::symbol(0), kLength = Dim::symbol(1);

class Binding {
 public:
  Binding(std::vector<TensorSpec> inputs, std::vector<ProgramSymbol> symbols)
      : inputs_(std::move(inputs)), symbols_(std::move(symbols)) {}

  Result<std::vector<int64_t>> bind(const std::vector<std::vector<int64_t>>& sizes) const {
    std::vector<const TensorSpec*> specs;
    for (const TensorSpec& input : inputs_) specs.push_back(&input);
    TRY(const SizeBinder binder, SizeBinder::make(specs, symbols_));
    const std::vector<std::span<const int64_t>> spans(sizes.begin(), sizes.end());
    std::vector<int64_t> symbols;
    TRY_STATUS(binder.bind(spans, symbols));
    return symbols;
  }
  std::string refusal(const std::vector<std::vector<int64_t>>& sizes) const {
    const auto bound = bind(sizes);
    if (bound) return "";
    EXPECT_EQ(bound.error().code, Code::kInvalidArgument);
    return bound.error().message;
  }

 private:
  std::vector<TensorSpec> inputs_;
  std::vector<ProgramSymbol> symbols_;
};

Binding sequence() {
  return {{{DType::kF32, {kBatch, kLength * 16, 4}}, {DType::kF32, {kLength, kBatch}}},
          {{1, 4096, 31}, {1, 64, 8}}};
}

TEST(SizeBinder, ReadsSymbolsOffTheInputs) {
  EXPECT_EQ(*sequence().bind({{7, 48, 4}, {3, 7}}), (std::vector<int64_t>{7, 3}));
}

TEST(SizeBinder, ASymbolMayBeTheSizeOfASumOrProductOnly) {
  const Binding pages({{DType::kF32, {kBatch * 16 + Dim(1)}}}, {{1, 8, 2}});
  EXPECT_EQ(*pages.bind({{33}}), std::vector<int64_t>{2});
  EXPECT_EQ(pages.refusal({{32}}),
            "input 0 has size 32 along axis 0; the program takes 1 more than multiples of 16");
  EXPECT_EQ(pages.refusal({{1}}), "input 0 has size 1 along axis 0; the program takes 17 to 129");
  const Binding even({{DType::kF32, {kBatch * 2}}}, {{0, INT64_MAX, 2}});
  EXPECT_EQ(even.refusal({{3}}),
            "input 0 has size 3 along axis 0; the program takes multiples of 2");
}

TEST(SizeBinder, SaysWhichInputIsWrongAndHow) {
  EXPECT_EQ(sequence().refusal({{5000, 48, 4}, {3, 5000}}),
            "input 0 has size 5000 along axis 0; the program takes 1 to 4096");
  EXPECT_EQ(sequence().refusal({{0, 48, 4}, {3, 0}}),
            "input 0 has size 0 along axis 0; the program takes 1 to 4096");
  EXPECT_EQ(sequence().refusal({{7, 48, 5}, {3, 7}}),
            "input 0 has size 5 along axis 2; the program takes 4");
  EXPECT_EQ(sequence().refusal({{7, 48, 4}, {3, 8}}),
            "input 1 has size 8 along axis 1, but by axis 0 of input 0 it would be 7");
  EXPECT_EQ(sequence().refusal({{7, 40, 4}, {3, 7}}),
            "input 0 has size 40 along axis 1, but by axis 0 of input 1 it would be 48");
  EXPECT_EQ(sequence().refusal({{7, 48}, {3, 7}}), "input 0 has 2 axes; the program takes 3");
  EXPECT_EQ(sequence().refusal({{7, 48, 4}}), "the sizes of 1 inputs, of 2");
}

TEST(SizeBinder, ASymbolThatNothingBindsIsRefusedAtOnce) {
  const Binding product({{DType::kF32, {kBatch * kLength}}}, {{1, 8, 2}, {1, 8, 2}});
  EXPECT_EQ(product.refusal({{6}}), "size s0 cannot be told from the inputs: none of them has it");
  const Binding undeclared({{DType::kF32, {kLength}}}, {{1, 8, 2}});
  EXPECT_EQ(undeclared.refusal({{6}}), "symbol s1 of input 0 is not declared");
}

TEST(SizeBinder, InputsThatTheProgramDoesNotReadAreNotAsked) {
  Program program;
  program.buffers = {{Buffer::Kind::kInput, 1, {DType::kF32, {kBatch}}, 0}};
  program.symbols = {{1, 8, 2}};
  const auto binder = SizeBinder::make(program);
  ASSERT_TRUE(binder);
  const std::vector<int64_t> odd = {9, 9, 9}, batch = {5};
  std::vector<int64_t> symbols;
  ASSERT_TRUE(binder->bind(std::vector<std::span<const int64_t>>{odd, batch}, symbols));
  EXPECT_EQ(symbols, std::vector<int64_t>{5});
}

TEST(SizeBinder, SizesAtTheEndsOfTheNumbersOverflowNothing) {
  const Binding shifted({{DType::kF32, {kBatch * 2 + Dim(-1)}}}, {{1, INT64_MAX, 2}});
  EXPECT_FALSE(shifted.bind({{INT64_MAX}}));
  EXPECT_FALSE(shifted.bind({{INT64_MIN}}));
}

}  // namespace
}  // namespace kiln
