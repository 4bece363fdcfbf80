#include "compiler_core/frontend/exported_model.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Result<Dim> parse(std::string_view text) {
  return parse_symbolic_size(text, [](std::string_view name) -> Result<Dim> {
    if (name == "s0") return Dim::symbol(0);
    if (name == "s77") return Dim::symbol(1);
    return fail(Code::kInvalidArgument, "no symbol " + std::string(name));
  });
}

const Dim kS0 = Dim::symbol(0), kS77 = Dim::symbol(1);

TEST(SymbolicSize, symbols_with_their_assumptions) {
  EXPECT_EQ(parse("Symbol('s77', positive=True, integer=True)"), kS77);
  EXPECT_EQ(parse("Symbol('s0')"), kS0);
}

TEST(SymbolicSize, integers_sums_products_and_powers) {
  EXPECT_EQ(parse("Integer(-3)"), Dim(-3));
  EXPECT_EQ(parse("Add(Mul(Integer(2), Symbol('s0', integer=True)), Integer(1))"),
            Dim(2) * kS0 + Dim(1));
  EXPECT_EQ(parse("Mul(Symbol('s0'), Symbol('s77'))"), kS0 * kS77);
  EXPECT_EQ(parse("Pow(Symbol('s0'), Integer(2))"), kS0 * kS0);
  EXPECT_EQ(parse("Pow(Symbol('s0'), Integer(0))"), Dim(1));
}

TEST(SymbolicSize, other_functions_are_unsupported_and_named) {
  for (const char* name : {"FloorDiv", "Mod", "Max", "CeilToInt"}) {
    const auto dim = parse(std::string(name) + "(Symbol('s0'), Integer(2))");
    ASSERT_FALSE(dim);
    EXPECT_EQ(dim.error().code, Code::kUnsupported);
    EXPECT_NE(dim.error().message.find(name), std::string::npos) << dim.error().message;
  }
}

TEST(SymbolicSize, malformed_text_is_refused) {
  for (const char* text :
       {"", "s0", "Symbol(", "Symbol('s0", "Symbol('s0'", "Symbol('s0',)", "Integer()",
        "Integer(x)", "Integer(99999999999999999999)", "Add()", "Add(Integer(1)",
        "Integer(1) Integer(2)", "Symbol('ghost')", "Pow(Symbol('s0'), Symbol('s0'))",
        "Pow(Symbol('s0'), Integer(-1))", "'"})
    EXPECT_FALSE(parse(text)) << text;
}

TEST(SymbolicSize, what_would_multiply_out_to_something_huge_is_refused) {
  std::string power = "Symbol('s0')";
  for (int i = 0; i < 3; ++i) power = "Pow(Add(" + power + ", Symbol('s77')), Integer(4))";
  EXPECT_FALSE(parse(power));
  std::string deep;
  for (int i = 0; i < 1000; ++i) deep += "Add(";
  EXPECT_FALSE(parse(deep));
  EXPECT_FALSE(parse("Mul(Integer(4611686018427387904), Integer(4))"));
}

}  // namespace
}  // namespace kiln
