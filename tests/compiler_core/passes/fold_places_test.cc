// What becomes of values that depend on the places of elements alone, where sizes have symbols.
#include <gtest/gtest.h>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/passes/passes.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/passes/specialise.h"
#include "tests/compiler_core/passes/random_graph.h"

namespace kiln {
namespace {

using testing::pick;
using testing::Random;

Graph parsed(const std::string& body) {
  const auto graph = parse_graph("kiln.graph 1\n" + body);
  EXPECT_TRUE(graph.has_value()) << graph.error().message << body;
  return *graph;
}

std::string with_places_folded(const std::string& body) {
  const auto after = fold_places(parsed(body));
  EXPECT_TRUE(after.has_value()) << after.error().message;
  const auto live = rewrite_nodes(*after, emit);
  EXPECT_TRUE(live.has_value()) << live.error().message;
  return print(*live);
}
std::string as_written(const std::string& body) {
  return print(*rewrite_nodes(parsed(body), emit));
}

constexpr const char* kLength = "s0 = symbol 0..100000 hint 9\n";

TEST(FoldPlaces, ComparisonsOfPlacesAreDecided) {
  const auto compared = [](const std::string& op, const std::string& with) {
    return with_places_folded(kLength + std::string("%0 = iota : i64[s0]\n%1 = constant ") + with +
                              " : i64[]\n%2 = view %1 strides=[0] offset=[0] : i64[s0]\n%3 = " +
                              op + " %0 %2 : bool[s0]\nreturn %3\n");
  };
  const auto all = [](const std::string& value) {
    return as_written(kLength + std::string("%0 = constant ") + value +
                      " : bool[]\n%1 = view %0 strides=[0] offset=[0] : bool[s0]\nreturn %1\n");
  };
  EXPECT_EQ(compared("lt", "0"), all("0"));
  EXPECT_EQ(compared("le", "-1"), all("0"));
  EXPECT_EQ(compared("ne", "-1"), all("1"));
  EXPECT_EQ(compared("eq", "100000"), all("0"));
  EXPECT_EQ(compared("le", "99999"), all("1"));
  EXPECT_NE(compared("lt", "1"), all("0"));      // at place 0
  EXPECT_NE(compared("le", "99998"), all("1"));  // at the last one
}

TEST(FoldPlaces, RowsAtKnownPlacesAreRead) {
  EXPECT_EQ(with_places_folded("s0 = symbol 0..100 hint 9\n"
                               "%0 = input 0 : f32[s0 + 4,8]\n"
                               "%1 = iota : i64[s0]\n"
                               "%2 = constant 3 : i64[]\n"
                               "%3 = view %2 strides=[0] offset=[0] : i64[s0]\n"
                               "%4 = add %1 %3 : i64[s0]\n"
                               "%5 = gather %0 %4 : f32[s0,8]\n"
                               "return %5\n"),
            as_written("s0 = symbol 0..100 hint 9\n"
                       "%0 = input 0 : f32[s0 + 4,8]\n"
                       "%1 = view %0 strides=[8,1] offset=[24] : f32[s0,8]\n"
                       "return %1\n"));
  // One row more than there is, and a table that may be shorter than what is read of it.
  for (const char* rows : {"s0 + 2", "50"}) {
    const std::string body = "s0 = symbol 0..100 hint 9\n%0 = input 0 : f32[" + std::string(rows) +
                             ",8]\n"
                             "%1 = iota : i64[s0]\n"
                             "%2 = constant 3 : i64[]\n"
                             "%3 = view %2 strides=[0] offset=[0] : i64[s0]\n"
                             "%4 = add %1 %3 : i64[s0]\n"
                             "%5 = gather %0 %4 : f32[s0,8]\n"
                             "return %5\n";
    EXPECT_EQ(with_places_folded(body), as_written(body)) << rows;
  }
}

// As transformers finds out whether tokens follow each other, and which a row sees: they do, so that what is
// left is a causal mask.
TEST(FoldPlaces, APackedMaskOfTokensThatFollowEachOtherIsCausal) {
  const auto form =
      normalise(parsed("s0 = symbol 2..100000 hint 9\ns1 = symbol 1..64 hint 2\n"
                       "%0 = iota : i64[s0]\n"
                       "%1 = view %0 strides=[0,1] offset=[0] : i64[s1,s0]\n"
                       "%2 = view %1 strides=[s0,1] offset=[0] : i64[s1,1]\n"
                       "%3 = constant -1 : i64[]\n"
                       "%4 = view %3 strides=[0,0] offset=[0] : i64[s1,1]\n"
                       "%5 = add %2 %4 : i64[s1,1]\n"
                       "%6 = concat %5 %1 axis=1 : i64[s1,s0 + 1]\n"
                       "%7 = view %6 strides=[s0 + 1,1] offset=[1] : i64[s1,s0]\n"
                       "%8 = view %6 strides=[s0 + 1,1] offset=[0] : i64[s1,s0]\n"
                       "%9 = sub %7 %8 : i64[s1,s0]\n"
                       "%10 = constant 1 : i64[]\n"
                       "%11 = view %10 strides=[0,0] offset=[0] : i64[s1,s0]\n"
                       "%12 = ne %9 %11 : bool[s1,s0]\n"
                       "%13 = cast %12 : i64[s1,s0]\n"
                       "%14 = scan_sum %13 axis=1 : i64[s1,s0]\n"
                       "%15 = iota : i64[s1]\n"
                       "%16 = view %10 strides=[0] offset=[0] : i64[s0]\n"
                       "%17 = reduce_sum %16 axes=[0] : i64[]\n"  // as many as there are tokens
                       "%18 = view %17 strides=[0,0,0] offset=[0] : i64[s1,s0,s0]\n"
                       "%19 = view %15 strides=[1,0,0] offset=[0] : i64[s1,s0,s0]\n"
                       "%20 = mul %18 %19 : i64[s1,s0,s0]\n"
                       "%21 = view %0 strides=[0,1,0] offset=[0] : i64[s1,s0,s0]\n"
                       "%22 = view %0 strides=[0,0,1] offset=[0] : i64[s1,s0,s0]\n"
                       "%23 = add %20 %21 : i64[s1,s0,s0]\n"
                       "%24 = add %20 %22 : i64[s1,s0,s0]\n"
                       "%25 = view %14 strides=[1] offset=[0] : i64[s0*s1]\n"
                       "%26 = gather %25 %23 : i64[s1,s0,s0]\n"
                       "%27 = gather %25 %24 : i64[s1,s0,s0]\n"
                       "%28 = eq %26 %27 : bool[s1,s0,s0]\n"
                       "%29 = le %22 %21 : bool[s1,s0,s0]\n"
                       "%30 = and %28 %29 : bool[s1,s0,s0]\n"
                       "return %30\n"));
  ASSERT_TRUE(form) << form.error().message;
  const auto causal =
      normalise(parsed("s0 = symbol 2..100000 hint 9\ns1 = symbol 1..64 hint 2\n"
                       "%0 = iota : i64[s0]\n"
                       "%1 = view %0 strides=[0,1,0] offset=[0] : i64[s1,s0,s0]\n"
                       "%2 = view %0 strides=[0,0,1] offset=[0] : i64[s1,s0,s0]\n"
                       "%3 = le %2 %1 : bool[s1,s0,s0]\n"
                       "return %3\n"));
  ASSERT_TRUE(causal) << causal.error().message;
  EXPECT_EQ(print(form->graph), print(causal->graph));
}

TEST(FoldPlaces, AGraphOfKnownSizesStaysAsItIs) {
  const std::string body =
      "%0 = iota : i64[5]\n%1 = sub %0 %0 : i64[5]\n%2 = add %1 %0 : i64[5]\nreturn %2\n";
  EXPECT_EQ(with_places_folded(body), as_written(body));
}

// Places of [s0, s1] by all operations that the pass knows, and what they decide.
Graph random_places(uint64_t seed) {
  Random random(seed);
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({1, 1000}, 3)), columns = Dim::symbol(b.symbol({1, 90}, 4));
  const Shape shape = {rows, columns};
  const NodeId table = b.input(DType::kI64, {rows * columns + 3, 2});
  const auto number = [&](int64_t value) {
    return b.broadcast(b.constant_int(DType::kI64, value), Shape(shape));
  };
  std::vector<NodeId> places = {b.broadcast_in(b.iota(DType::kI64, rows), shape, std::array{0}),
                                b.broadcast_in(b.iota(DType::kI64, columns), shape, std::array{1}),
                                number(pick(random, -3, 3))};
  std::vector<NodeId> outputs;
  const auto some = [&] {
    return places[static_cast<size_t>(pick(random, 0, static_cast<int>(places.size()) - 1))];
  };
  for (int step = 0; step < 14; ++step) {
    const NodeId x = some(), y = some();
    constexpr Op kCompare[] = {Op::kEq, Op::kNe, Op::kLt, Op::kLe};
    const auto compared = [&] { return b.binary(kCompare[pick(random, 0, 3)], x, y); };
    switch (pick(random, 0, 9)) {
      case 0:
        places.push_back(b.binary(Op::kAdd, x, y));
        break;
      case 1:
        places.push_back(b.binary(Op::kSub, x, y));
        break;
      case 2:
        places.push_back(b.binary(Op::kMul, x, number(pick(random, -2, 2))));
        break;
      case 3:
        places.push_back(b.binary(pick(random, 0, 1) == 0 ? Op::kMax : Op::kMin, x, y));
        break;
      case 4:
        places.push_back(b.select(compared(), x, y));
        break;
      case 5: {  // the elements before each, and one in front
        const NodeId first = b.slice(x, 1, 0, 1);
        const NodeId before =
            b.binary(Op::kAdd, first,
                     b.broadcast(b.constant_int(DType::kI64, pick(random, -1, 1)), {rows, 1}));
        const NodeId whole = b.concat(std::vector<NodeId>{before, x}, 1);
        places.push_back(b.view(whole, Shape(shape), {columns + 1, 1}, pick(random, 0, 1)));
        break;
      }
      case 6: {
        const NodeId sum = b.reduce(Op::kReduceSum, x, {1});
        places.push_back(b.broadcast_in(sum, shape, std::array{0}));
        break;
      }
      case 7:
        places.push_back(b.scan_sum(b.cast(compared(), DType::kI64), pick(random, 0, 1)));
        break;
      case 8: {
        const NodeId line = b.reshape(y, {rows * columns});
        places.push_back(b.gather(line, b.select(b.binary(Op::kLt, x, number(0)), number(0), x)));
        break;
      }
      default:
        outputs.push_back(compared());
        break;
    }
  }
  outputs.push_back(b.gather(table, b.binary(Op::kAdd, some(), number(pick(random, 0, 3)))));
  outputs.push_back(some());
  const auto graph = b.finish(std::move(outputs));
  EXPECT_TRUE(graph) << graph.error().message;
  return *graph;
}

std::vector<Tensor> results(const Graph& graph, const std::vector<int64_t>& sizes) {
  std::vector<Symbol> symbols;
  for (const int64_t size : sizes) symbols.push_back({{size, size}, size});
  const auto sized = specialise(graph, symbols);
  EXPECT_TRUE(sized) << sized.error().message;
  std::vector<Tensor> inputs;
  for (const NodeId id : sized->inputs()) {
    Tensor tensor(DType::kI64, constant_sizes(sized->node(id).shape));
    for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set_int(i, i * 7 % 31);
    inputs.push_back(std::move(tensor));
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& tensor : inputs) pointers.push_back(&tensor);
  auto outputs = interpret(*sized, pointers);
  EXPECT_TRUE(outputs) << outputs.error().message;
  return outputs ? *std::move(outputs) : std::vector<Tensor>();
}

TEST(FoldPlaces, ChangesNoValueOfRandomPlaces) {
  int changed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    const Graph graph = random_places(seed);
    const auto after = fold_places(graph);
    ASSERT_TRUE(after) << after.error().message << print(graph);
    changed += print(*after) != print(*rewrite_nodes(graph, emit));
    for (const auto& sizes : std::vector<std::vector<int64_t>>{{1, 1}, {2, 3}, {1, 5}, {4, 1}}) {
      const auto before = results(graph, sizes), now = results(*after, sizes);
      ASSERT_EQ(before.size(), now.size());
      for (size_t i = 0; i < before.size(); ++i)
        for (int64_t k = 0; k < before[i].numel(); ++k)
          ASSERT_EQ(before[i].get_int(k), now[i].get_int(k))
              << "seed " << seed << " output " << i << print(graph) << print(*after);
    }
  }
  EXPECT_GT(changed, 100);
}

}  // namespace
}  // namespace kiln
