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

TEST(Origin, ComesBackFromTheTextThatHasIt) {
  GraphBuilder b;
  const NodeId x = b.input(kF32, {4});
  b.begin_origin({"aten.sin.default", "model.py:1 in forward", "layers.0"});
  const NodeId s = b.unary(Op::kSin, x);
  b.begin_origin({"aten.cos.default", "a\tb\nc.py:2 in forward", ""});
  const NodeId c = b.unary(Op::kCos, s);
  b.begin_origin({std::string(199, 'a') + "\u00e9", "", ""});
  const Graph graph = b.finish({b.unary(Op::kExp, c), x}).value();
  const std::string text = print_with_origins(graph);
  EXPECT_EQ(without_origins(text), print(graph));
  EXPECT_EQ(without_origins(print(graph)), print(graph));
  const auto parsed = parse_graph(text);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(*parsed, graph);
  const auto origin = [&](NodeId id) {
    return parsed->origins()[static_cast<size_t>(parsed->origin_of(id))];
  };
  EXPECT_EQ(origin(s), (Origin{"aten.sin.default", "model.py:1 in forward", "layers.0"}));
  EXPECT_EQ(origin(c).source, "a b c.py:2 in forward");
  EXPECT_EQ(origin(parsed->outputs()[0]).op, std::string(199, 'a')) << "whole characters";
  EXPECT_EQ(parsed->origin_of(x), kNoOrigin);
  EXPECT_EQ(print_with_origins(*parsed), text);
}

TEST(Origin, LinesThatSayNoneAreComments) {
  const std::string graph = "kiln.graph 1\n%0 = input 0 : f32[4]\nreturn %0\n";
  for (const char* line :
       {"#from\n", "#from\t", "#from\t\t\t\t\n", "#from\top\tf.py\tm\t%7 %-1 0 %x %\n",
        "#fromage\t%0\n", "#from\ta\n#from\tb\tc\td\t%99999999999999999999\n"}) {
    const auto parsed = parse_graph(graph + line);
    ASSERT_TRUE(parsed.has_value()) << line;
    EXPECT_EQ(parsed->origin_of(0), kNoOrigin) << line;
  }
}

}  // namespace
}  // namespace kiln
