// Kernels whose sizes have symbols: compiled once, right at every size.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/random_graph.h"

namespace kiln {
namespace {

using testing::check_sizes;
using testing::RandomGraph;
using testing::targets;

using Sizes = std::vector<std::vector<int64_t>>;

const Sizes kOne = {{1}, {2}, {7}, {16}, {33}, {131}, {400}};
const Sizes kTwo = {{1, 1}, {3, 1}, {1, 17}, {5, 64}, {33, 37}, {2, 700}, {500, 3}};

// Up to `limit` schedules of the search space, each at all sizes.
std::string check_open(const Workload& workload, const Sizes& sizes, int limit,
                       const std::vector<Target>& on) {
  for (const Target& target : on) {
    const auto space = search_space(workload, target);
    if (!space) return space.error().message;
    const size_t count = std::min(space->size(), static_cast<size_t>(limit));
    for (size_t i = 0; i < count; ++i) {
      const std::string wrong =
          check_sizes(workload, (*space)[i * space->size() / count], target, sizes);
      if (!wrong.empty()) return wrong + "\n" + print(workload.graph);
    }
  }
  return "";
}
std::string check_open(const Workload& workload, const Sizes& sizes, int limit) {
  return check_open(workload, sizes, limit, targets());
}
std::string check_on_host(const Workload& workload, const Sizes& sizes, int limit) {
  return check_open(workload, sizes, limit, {targets()[0]});
}

// Several schedules of a GPU's, on the CPU.
std::string check_on_gpu(const Workload& workload, const Sizes& sizes, int limit) {
  return check_open(workload, sizes, limit, {*Target::parse("cuda:sm_90a")});
}

Sizes with_zeros(Sizes sizes) {
  const size_t symbols = sizes[0].size();
  for (size_t i = 0; i < symbols; ++i) {
    sizes.push_back(sizes[0]);
    sizes.back()[i] = 0;
  }
  return sizes;
}

TEST(SymbolicPointwise, AgreesForRandomGraphsOfABatch) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    RandomGraph random(seed);
    const Dim batch = random.symbol(64);
    const Shape space = seed % 2 == 0 ? Shape{batch, random.pick(1, 40)}
                                      : Shape{batch, random.pick(1, 5), random.pick(1, 40)};
    const Graph graph = random.pointwise(space, 5, seed >= 3);
    EXPECT_EQ(check_on_host({graph, Family::kPointwise, {}}, kOne, 1), "") << seed;
  }
}

TEST(SymbolicPointwise, AgreesForRandomGraphsOfTwoSymbols) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    RandomGraph random(100 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    const Shape spaces[] = {{a, b}, {b, 3, a}, {a * 4, b}, {a * b}, {a, b, 5}, {7, a + b}};
    const Graph graph = random.pointwise(spaces[seed], 5, true);
    EXPECT_EQ(check_on_host({graph, Family::kPointwise, {}}, kTwo, 1), "") << seed;
  }
}

TEST(CudaSymbolicPointwise, AgreesForRandomGraphs) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    RandomGraph random(400 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    const Shape spaces[] = {{a, b}, {a, 24}, {a * 4, b * 8}, {a * b}, {a, b, 5}, {7, a + b}};
    const Graph graph = random.pointwise(spaces[seed], 5, true);
    EXPECT_EQ(check_on_gpu({graph, Family::kPointwise, {}}, kTwo, 2), "") << seed;
  }
}

TEST(CudaSymbolicRows, AgreesForRandomGraphs) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    RandomGraph random(500 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    struct Case {
      Shape space;
      int begin;
    };
    const Case cases[] = {
        {{a, 48}, 1}, {{a, b}, 1}, {{a, 3, b}, 1}, {{a, b, 8}, 1}, {{a, b, 17}, 2}};
    const auto& [space, begin] = cases[seed];
    const Graph graph = random.reduction(space, begin, static_cast<int>(space.size()));
    EXPECT_EQ(check_on_gpu({graph, Family::kRowReduction, {}}, kTwo, 1), "") << seed;
  }
}

// The length is known: a row waits in registers, in shared memory, in a cluster's blocks, as it
// does where the number of rows is known too.
TEST(CudaOpenRows, EveryScheduleOfAnyNumberOfRowsAgrees) {
  for (uint32_t seed = 0; seed < 4; ++seed) {
    RandomGraph random(600 + seed);
    const Dim a = random.symbol(64), b = random.symbol(3);
    struct Case {
      Shape space;
      int begin;
    };
    const Case cases[] = {{{a, 72}, 1}, {{a, b, 33}, 2}, {{a, 4, 24}, 1}, {{b, a, 3, 20}, 2}};
    const auto& [space, begin] = cases[seed];
    const Graph graph = random.reduction(space, begin, static_cast<int>(space.size()));
    EXPECT_EQ(check_on_gpu({graph, Family::kRowReduction, {}}, {{1, 1}, {5, 3}, {37, 1}}, 6), "")
        << seed;
  }
}

TEST(CudaOpenRows, KeepWhatTheyRead) {
  const auto graph = parse_graph(R"(kiln.graph 1
s0 = symbol 0..9000 hint 512
%0 = input 0 : f32[s0,1024]
%1 = reduce_max %0 axes=[1] : f32[s0]
%2 = view %1 strides=[1,0] offset=[0] : f32[s0,1024]
%3 = sub %0 %2 : f32[s0,1024]
%4 = exp %3 : f32[s0,1024]
%5 = reduce_sum %4 axes=[1] : f32[s0]
%6 = view %5 strides=[1,0] offset=[0] : f32[s0,1024]
%7 = div %4 %6 : f32[s0,1024]
return %7
)");
  ASSERT_TRUE(graph) << graph.error().message;
  const auto made = make_workload(*graph);
  ASSERT_TRUE(made) << made.error().message;
  const Target target = *Target::parse("cuda:sm_90a");
  const auto space = search_space(made->workload, target);
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_GE(space->size(), 8U);
  const auto source = lower_to_source(made->workload, space->front(), target);
  ASSERT_TRUE(source) << source.error().message;
  EXPECT_NE(source->text.find("held0["), std::string::npos);
  const Sizes sizes = {{0}, {3}, {130}};
  EXPECT_EQ(check_on_gpu(made->workload, sizes, 6), "");
}

TEST(SymbolicRows, AgreesForRandomGraphs) {
  for (uint32_t seed = 0; seed < 8; ++seed) {
    RandomGraph random(200 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    struct Case {
      Shape space;
      int begin;
    };
    const Case cases[] = {{{a, 45}, 1},    {{a, b}, 1},    {{12, b}, 1},    {{a, 3, b}, 1},
                          {{a, 4, 32}, 2}, {{a, b, 8}, 1}, {{a, b, 17}, 2}, {{5, a * 2, b}, 2}};
    const auto& [space, begin] = cases[seed];
    const Graph graph = random.reduction(space, begin, static_cast<int>(space.size()));
    const bool both = graph.symbols().size() == 2;
    EXPECT_EQ(check_on_host({graph, Family::kRowReduction, {}}, both ? kTwo : kOne, 1), "") << seed;
  }
}

TEST(SymbolicColumns, AgreesForRandomGraphs) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    RandomGraph random(300 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    struct Case {
      Shape space;
      int begin, end;
    };
    const Case cases[] = {{{a, 45}, 0, 1},   {{40, b, a}, 0, 1},   {{a, b}, 0, 1},
                          {{a, b, 5}, 1, 2}, {{a, 6, b, 9}, 1, 3}, {{a, 33, 20}, 1, 2}};
    const auto& [space, begin, end] = cases[seed];
    const Graph graph = random.reduction(space, begin, end);
    EXPECT_EQ(check_on_host({graph, Family::kColumnReduction, {}}, kTwo, 1), "") << seed;
  }
}

Workload parsed(const char* text, Family family) {
  const auto graph = parse_graph(text);
  EXPECT_TRUE(graph) << graph.error().message;
  return {*graph, family, {}};
}

Workload softmax() {
  return parsed(R"(kiln.graph 1
s0 = symbol 0..9223372036854775807 hint 7
s1 = symbol 0..9223372036854775807 hint 13
%0 = input 0 : f32[s0,s1]
%1 = reduce_max %0 axes=[1] : f32[s0]
%2 = view %1 strides=[1,0] offset=[0] : f32[s0,s1]
%3 = sub %0 %2 : f32[s0,s1]
%4 = exp %3 : f32[s0,s1]
%5 = reduce_sum %4 axes=[1] : f32[s0]
%6 = view %5 strides=[1,0] offset=[0] : f32[s0,s1]
%7 = div %4 %6 : f32[s0,s1]
return %7
)",
                Family::kRowReduction);
}

TEST(SymbolicRows, SoftmaxIsRightAtEverySize) {
  Sizes sizes = with_zeros(kTwo);
  sizes.push_back({2, 100'000});
  EXPECT_EQ(check_open(softmax(), sizes, 2), "");
  EXPECT_EQ(check_on_gpu(softmax(), with_zeros(kTwo), 2), "");
}

TEST(CudaSymbolicColumns, AgreesForRandomGraphs) {
  for (uint32_t seed = 0; seed < 5; ++seed) {
    RandomGraph random(600 + seed);
    const Dim a = random.symbol(64), b = random.symbol(48);
    struct Case {
      Shape space;
      int begin, end;
    };
    const Case cases[] = {{{a, 45}, 0, 1},
                          {{40, b, a}, 0, 1},
                          {{a, b}, 0, 1},
                          {{a, b, 5}, 1, 2},
                          {{a, 6, b, 9}, 1, 3}};
    const auto& [space, begin, end] = cases[seed];
    const Graph graph = random.reduction(space, begin, end);
    EXPECT_EQ(check_on_gpu({graph, Family::kColumnReduction, {}}, kTwo, 1), "") << seed;
  }
}

// Sums of columns whose rows are cut into a constant number of pieces, some of them empty.
TEST(SymbolicColumns, CutRowsAreRightWhenThereAreFewerThanPieces) {
  const Workload sum = parsed(R"(kiln.graph 1
s0 = symbol 0..100000 hint 4096
%0 = input 0 : f32[s0,50]
%1 = reduce_sum %0 axes=[0] : f32[50]
return %1
)",
                              Family::kColumnReduction);
  EXPECT_EQ(check_on_host(sum, with_zeros({{1}, {3}, {30}, {33}, {600}}), 4), "");
  EXPECT_EQ(check_on_gpu(sum, with_zeros({{1}, {1024}, {5000}}), 1), "");
}

enum class Which { kBatch, kRows, kColumns, kDepth, kAll };

// x [batch, m, k] times w [k, n], or its transposed, and a bias.
Workload matmul(Which which, DType dtype, bool transposed) {
  GraphBuilder b;
  const Dim s0 = Dim::symbol(b.symbol({0, 5000}, 24)), s1 = Dim::symbol(b.symbol({0, 5000}, 40));
  const Dim batch = which == Which::kBatch ? s0 : Dim(2);
  const Dim m = which == Which::kRows ? s0 : which == Which::kAll ? s1 : Dim(19);
  const Dim n = which == Which::kColumns || which == Which::kAll ? s0 : Dim(35);
  const Dim k = which == Which::kDepth ? s0 : which == Which::kAll ? s0 + s1 : Dim(21);
  const NodeId x = b.input(dtype, {batch, m, k});
  const NodeId w = b.input(dtype, transposed ? Shape{n, k} : Shape{k, n});
  const NodeId bias = b.input(b.dtype(x) == DType::kF64 ? DType::kF64 : DType::kF32, {n});
  const NodeId right = b.broadcast(transposed ? b.permute(w, {1, 0}) : w, {batch, k, n});
  const NodeId product = b.matmul(x, right);
  const NodeId sum = b.binary(Op::kAdd, product, b.broadcast(bias, b.shape(product)));
  const auto graph = b.finish({which == Which::kBatch ? b.unary(Op::kTanh, sum) : sum});
  EXPECT_TRUE(graph) << graph.error().message;
  return {*graph, Family::kMatmul, {}};
}

TEST(SymbolicMatmul, AgreesWhicheverSizeIsOpen) {
  const Sizes sizes = with_zeros({{1, 1}, {2, 3}, {17, 31}, {64, 5}, {97, 40}, {5, 130}});
  bool transposed = false;
  for (const Which which :
       {Which::kBatch, Which::kRows, Which::kColumns, Which::kDepth, Which::kAll}) {
    EXPECT_EQ(check_on_host(matmul(which, DType::kF32, transposed), sizes, 1), "")
        << static_cast<int>(which);
    transposed = !transposed;
  }
}

TEST(SymbolicMatmul, AgreesUnderSeveralSchedules) {
  EXPECT_EQ(check_open(matmul(Which::kRows, DType::kF32, true), {{1, 0}, {40, 0}, {300, 0}}, 2),
            "");
}

TEST(SymbolicMatmul, AgreesForHalves) {
  const Sizes sizes = {{1, 1}, {20, 33}, {70, 9}};
  EXPECT_EQ(check_on_host(matmul(Which::kRows, DType::kBF16, true), sizes, 1), "");
  EXPECT_EQ(check_on_host(matmul(Which::kAll, DType::kF16, false), sizes, 1), "");
}

TEST(CudaSymbolicMatmul, AgreesForAnyRowsAndBatch) {
  const Sizes sizes = with_zeros({{1, 1}, {3, 3}, {64, 1}, {97, 40}, {301, 1}});
  for (const Which which : {Which::kBatch, Which::kRows}) {
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kF32, true), sizes, 2), "");
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kBF16, false), sizes, 2), "");
  }
}

TEST(CudaSymbolicMatmul, AgreesForAnyColumnsAndDepth) {
  const Sizes sizes = with_zeros({{1, 1}, {3, 3}, {64, 1}, {97, 40}, {16, 130}});
  for (const Which which : {Which::kColumns, Which::kDepth, Which::kAll}) {
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kF32, true), sizes, 2), "");
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kF32, false), sizes, 1), "");
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kBF16, false), sizes, 2), "");
    EXPECT_EQ(check_on_gpu(matmul(which, DType::kF16, true), sizes, 1), "");
  }
  EXPECT_EQ(check_on_gpu(matmul(Which::kAll, DType::kF64, false), sizes, 1), "");
}

// Queries times keys, and weights times values: tokens of a head lie `heads` heads apart, in
// aligned chunks, or one behind the other.
TEST(CudaSymbolicMatmul, AgreesForTheProductsOfAttention) {
  for (const char* heads : {"3", "1"})
    for (const char* width : {"16", "20"}) {
      const int64_t apart = std::stoll(heads) * std::stoll(width);
      const std::string scores = fmt::format(
          "kiln.graph 1\ns0 = symbol 1..1000 hint 24\ns1 = symbol 1..1000 hint 40\n"
          "%0 = input 0 : bf16[s0,s1,{0},{1}]\n"
          "%1 = view %0 strides=[{2}*s1,{1},{2},1] offset=[0] : bf16[s0,{0},s1,{1}]\n"
          "%2 = input 1 : bf16[s0,s1,{0},{1}]\n"
          "%3 = view %2 strides=[{2}*s1,{1},1,{2}] offset=[0] : bf16[s0,{0},{1},s1]\n"
          "%4 = matmul %1 %3 : f32[s0,{0},s1,s1]\nreturn %4\n",
          heads, width, apart);
      const std::string mixed = fmt::format(
          "kiln.graph 1\ns0 = symbol 1..1000 hint 24\ns1 = symbol 1..1000 hint 40\n"
          "%0 = input 0 : bf16[s0,{0},s1,s1]\n"
          "%1 = input 1 : bf16[s0,s1,{0},{1}]\n"
          "%2 = view %1 strides=[{2}*s1,{1},{2},1] offset=[0] : bf16[s0,{0},s1,{1}]\n"
          "%3 = matmul %0 %2 : f32[s0,{0},s1,{1}]\nreturn %3\n",
          heads, width, apart);
      const Sizes sizes = {{1, 1}, {2, 7}, {1, 16}, {3, 33}, {1, 130}};
      EXPECT_EQ(check_on_gpu(parsed(scores.c_str(), Family::kMatmul), sizes, 1), "");
      EXPECT_EQ(check_on_gpu(parsed(mixed.c_str(), Family::kMatmul), sizes, 1), "");
    }
}

// x [images, 6, 9, 11] with padding; what is added to the result has its own value for each image.
Workload convolution(int64_t groups, int64_t window, int64_t stride) {
  GraphBuilder b;
  const Dim images = Dim::symbol(b.symbol({0, 1000}, 6));
  const NodeId x = b.input(DType::kF32, {images, 6, 9, 11});
  const NodeId w = b.input(DType::kF32, {10 * groups, 6 / groups, window, window});
  const int64_t zeros = window / 2;
  const NodeId y =
      b.convolution(x, w, {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups});
  const NodeId each = b.reshape(b.input(DType::kF32, {images}), {images, 1, 1, 1});
  const auto graph = b.finish({b.binary(Op::kAdd, y, b.broadcast(each, Shape(b.shape(y))))});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->workload.family, Family::kConvolution);
  return made->workload;
}

// x [2, 6, h, w] of any size that the stride divides; what is added has a value for each column.
Workload any_images(DType dtype, int64_t groups, int64_t window, int64_t stride, int64_t zeros) {
  GraphBuilder b;
  const Dim h = Dim::symbol(b.symbol({2, 500}, 12)) * stride;
  const Dim w = Dim::symbol(b.symbol({2, 500}, 10)) * stride;
  const NodeId x = b.input(dtype, {2, 6, h, w});
  const NodeId weight = b.input(dtype, {10 * groups, 6 / groups, window, window});
  const NodeId y =
      b.convolution(x, weight, {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups});
  const NodeId column = b.input(b.dtype(y), {b.shape(y)[3]});
  const auto graph = b.finish({b.binary(Op::kAdd, y, b.broadcast(column, Shape(b.shape(y))))});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->workload.family, Family::kConvolution);
  return made->workload;
}

TEST(SymbolicConvolution, AgreesForAnyNumberOfImages) {
  const Sizes sizes = {{0}, {1}, {2}, {7}, {33}};
  EXPECT_EQ(check_on_host(convolution(1, 3, 1), sizes, 4), "");
  EXPECT_EQ(check_on_host(convolution(2, 3, 2), sizes, 1), "");
  EXPECT_EQ(check_on_host(convolution(6, 1, 2), sizes, 1), "");
}

TEST(SymbolicConvolution, AgreesForImagesOfAnySize) {
  const Sizes sizes = {{3, 2}, {2, 3}, {9, 11}, {4, 33}, {50, 17}};
  EXPECT_EQ(check_on_host(any_images(DType::kF32, 1, 3, 1, 1), sizes, 3), "");
  EXPECT_EQ(check_on_host(any_images(DType::kF32, 2, 3, 2, 1), sizes, 1), "");
  EXPECT_EQ(check_on_host(any_images(DType::kBF16, 6, 2, 1, 0), sizes, 2), "");
}

TEST(CudaSymbolicConvolution, AgreesForImagesOfAnySize) {
  const Sizes sizes = {{3, 2}, {2, 3}, {9, 11}, {4, 33}, {50, 17}};
  EXPECT_EQ(check_on_gpu(any_images(DType::kF32, 1, 3, 1, 1), sizes, 2), "");
  EXPECT_EQ(check_on_gpu(any_images(DType::kBF16, 2, 3, 2, 1), sizes, 2), "");
  EXPECT_EQ(check_on_gpu(any_images(DType::kF16, 1, 2, 1, 0), sizes, 1), "");
}

TEST(CudaSymbolicConvolution, AgreesForAnyNumberOfImages) {
  const Sizes sizes = {{0}, {1}, {2}, {7}, {33}};
  EXPECT_EQ(check_on_gpu(convolution(1, 3, 1), sizes, 2), "");
  EXPECT_EQ(check_on_gpu(convolution(2, 3, 2), sizes, 1), "");
  EXPECT_EQ(check_on_gpu(convolution(6, 1, 2), sizes, 1), "");
}

const Sizes kPairs = {{0, 3}, {3, 0}, {1, 1}, {7, 5}, {2, 100}, {70, 2}};

TEST(SymbolicScan, AgreesWhicheverSizeIsOpen) {
  for (const char* shape : {"[s0,9,s1]", "[s0,s1,1]", "[s0,s1,5]", "[s0,20000,s1]"}) {
    const std::string text = fmt::format(
        "kiln.graph 1\ns0 = symbol 0..1000 hint 1\ns1 = symbol 0..1000 hint 2\n"
        "%0 = input 0 : f32{0}\n%1 = scan_sum %0 axis=1 : f32{0}\nreturn %1\n",
        shape);
    const Sizes few = {{0, 1}, {1, 2}, {3, 5}};
    const bool large = std::string(shape) == "[s0,20000,s1]";
    EXPECT_EQ(check_on_host(parsed(text.c_str(), Family::kScan), large ? few : kPairs, 1), "")
        << shape;
    EXPECT_EQ(check_on_gpu(parsed(text.c_str(), Family::kScan), large ? few : kPairs, 1), "")
        << shape;
  }
}

TEST(SymbolicSort, AgreesForAnyRowsAndLength) {
  for (const char* shape : {"[s0,40]", "[s0,s1]", "[s0,20000]"}) {
    const std::string text = fmt::format(
        "kiln.graph 1\ns0 = symbol 0..1000 hint 1\ns1 = symbol 0..1000 hint 64\n"
        "%0 = input 0 : f32{0}\n%1 = argsort %0 descending=1 : i64{0}\nreturn %1\n",
        shape);
    const bool one = std::string(shape) != "[s0,s1]", large = std::string(shape) == "[s0,20000]";
    const Sizes sizes = large ? Sizes{{1, 0}, {3, 0}}
                        : one ? Sizes{{0, 0}, {5, 0}, {80, 0}}
                              : kPairs;
    EXPECT_EQ(check_on_host(parsed(text.c_str(), Family::kSort), sizes, 1), "") << shape;
    EXPECT_EQ(check_on_gpu(parsed(text.c_str(), Family::kSort), sizes, 1), "") << shape;
  }
}

// A row is cut into a constant number of pieces, of which there may be more than it has tiles; rows
// longer and shorter than a tile, one of them or many.
TEST(CudaSymbolicScan, PiecesAreRightWhateverTheLength) {
  const Workload scan = parsed(R"(kiln.graph 1
s0 = symbol 0..9223372036854775807 hint 300000
%0 = input 0 : f32[s0]
%1 = scan_sum %0 axis=0 : f32[s0]
return %1
)",
                               Family::kScan);
  EXPECT_EQ(check_on_gpu(scan, {{0}, {1}, {1000}, {70000}, {300000}}, 1), "");
}
TEST(CudaSymbolicSort, MergesAsManyRunsAsThereAre) {
  const Workload sort = parsed(R"(kiln.graph 1
s0 = symbol 0..9223372036854775807 hint 300
s1 = symbol 0..9223372036854775807 hint 2
%0 = input 0 : f32[s1,s0]
%1 = argsort %0 descending=0 : i64[s1,s0]
return %1
)",
                               Family::kSort);
  EXPECT_EQ(check_on_gpu(sort, {{0, 2}, {1, 1}, {1024, 3}, {1025, 3}, {5000, 2}, {17000, 1}}, 1),
            "");
}

// Rows, what is in one, and updates, each open in one of them.
TEST(SymbolicScatter, AgreesWhicheverSizeIsOpen) {
  struct Case {
    const char *rows, *row, *count, *dtype;
    int limit;
  };
  const Case cases[] = {
      {"s1", "24", "s0", "f32", 2}, {"70", "s1", "300", "f32", 1}, {"s1", "3", "s0", "bf16", 2}};
  for (const Case& c : cases) {
    const std::string text = fmt::format(
        "kiln.graph 1\ns0 = symbol 0..90000 hint 6000\ns1 = symbol 0..9000 hint 900\n"
        "%0 = input 0 : {3}[{0},{1}]\n%1 = input 1 : i64[{2}]\n%2 = input 2 : {3}[{2},{1}]\n"
        "%3 = scatter %0 %1 %2 combine=add : {3}[{0},{1}]\nreturn %3\n",
        c.rows, c.row, c.count, c.dtype);
    const Workload scatter = parsed(text.c_str(), Family::kScatter);
    const Sizes sizes = {{0, 9}, {1, 1}, {40, 30}, {5000, 2}, {700, 1000}};
    EXPECT_EQ(check_on_host(scatter, sizes, c.limit), "") << c.rows << c.row;
    EXPECT_EQ(check_on_gpu(scatter, sizes, 1), "") << c.rows << c.row;
  }
}

}  // namespace
}  // namespace kiln
