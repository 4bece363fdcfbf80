#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"

namespace kiln {
namespace {

constexpr DType kF32 = DType::kF32;

TEST(Origin, OfANodeIsTheOneThatWasCurrent) {
  GraphBuilder b;
  const NodeId x = b.input(kF32, {4});
  b.begin_origin({"aten.sin.default", "model.py:1 in forward", "a"});
  const NodeId s = b.unary(Op::kSin, x);
  b.begin_origin({"aten.cos.default", "model.py:2 in forward", "b"});
  const NodeId c = b.unary(Op::kCos, s);
  const NodeId again = b.unary(Op::kSin, x);
  const auto graph = b.finish({c});
  ASSERT_TRUE(graph.has_value());
  EXPECT_EQ(again, s);
  EXPECT_EQ(graph->origin_of(x), kNoOrigin);
  ASSERT_EQ(graph->origins().size(), 2u);
  EXPECT_EQ(graph->origins()[static_cast<size_t>(graph->origin_of(s))].op, "aten.sin.default");
  EXPECT_EQ(graph->origins()[static_cast<size_t>(graph->origin_of(c))].module, "b");
}

TEST(Origin, IsNoPartOfWhatAGraphIs) {
  const auto sine = [](bool with_origin) {
    GraphBuilder b;
    const NodeId x = b.input(kF32, {4});
    if (with_origin) b.begin_origin({"aten.sin.default", "", ""});
    return b.finish({b.unary(Op::kSin, x)}).value();
  };
  EXPECT_EQ(sine(true), sine(false));
  EXPECT_EQ(print(sine(true)), print(sine(false)));
}

}  // namespace
}  // namespace kiln
