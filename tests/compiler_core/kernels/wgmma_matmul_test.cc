// Products on the tensor cores of compute capability 9.0, run on the fake GPU: the copy engine,
// barriers in shared memory and wgmma included.
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/wgmma/wgmma_copied.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/product_workloads.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_with_random_inputs;
using testing::kHopper;
using testing::matmul_workload;
using testing::normed_product;
using testing::plain_product;
using testing::random_inputs;
using testing::Stored;

std::string check_staged_matmul(const Workload& workload, const WgmmaMatmulSchedule& schedule) {
  const Status covered = check_wgmma(workload);
  if (!covered) return covered.error().message;
  return check_with_random_inputs(workload, to_schedule(schedule), kHopper);
}

TEST(WgmmaMatmul, AgreesHoweverTheOperandsAreStored) {
  for (const Stored stored :
       {Stored{}, Stored{false, true}, Stored{true, false}, Stored{true, true}})
    for (const auto& [m, n, k] : {std::array{128, 128, 192}, std::array{104, 72, 88}})
      EXPECT_EQ(
          check_staged_matmul(plain_product(DType::kBF16, m, n, k, stored), {64, 64, 1, 3, 8}), "")
          << m << stored.a_transposed << stored.b_transposed;
}

TEST(WgmmaMatmul, AgreesForF16) {
  EXPECT_EQ(check_staged_matmul(plain_product(DType::kF16, 128, 128, 192), {64, 64, 1, 3, 8}), "");
}

Target two_sms() {
  Target target = kHopper;
  target.units = 2;
  return target;
}

// More tiles than blocks: a block takes one after the other, and its ring goes on.
TEST(WgmmaMatmul, AgreesWhereABlockTakesSeveralTiles) {
  const Workload workload = plain_product(DType::kBF16, 200, 224, 328);
  std::mt19937 random(13);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const int stages : {2, 3, 4})
    EXPECT_EQ(check_schedule(workload, to_schedule(WgmmaMatmulSchedule{64, 64, 1, stages, 2}),
                             two_sms(), inputs),
              "");
}

WgmmaMatmulSchedule ping_pong(WgmmaMatmulSchedule schedule) {
  schedule.ping_pong = 1;
  return schedule;
}

// A block has one tile, two, an odd number, many; fewer steps than places in the ring, and more.
TEST(WgmmaMatmul, AgreesWhereWarpgroupsTakeTilesByTurns) {
  for (const int64_t m : {40, 104, 320, 512})
    for (const int64_t k : {72, 328}) {
      const Workload workload = plain_product(DType::kBF16, m, 224, k, {false, true});
      std::mt19937 random(17);
      const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
      for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
               {64, 32, 2, 2, 1}, {64, 64, 3, 3, 2}, {128, 96, 2, 3, 8}})
        EXPECT_EQ(check_schedule(workload, to_schedule(ping_pong(schedule)), two_sms(), inputs), "")
            << m << ' ' << k;
    }
}

TEST(WgmmaMatmul, AgreesByTurnsHoweverTheOperandsAreStored) {
  for (const Stored stored :
       {Stored{}, Stored{false, true}, Stored{true, false}, Stored{true, true}})
    EXPECT_EQ(check_staged_matmul(plain_product(DType::kF16, 200, 200, 136, stored),
                                  ping_pong({64, 64, 2, 3, 8})),
              "");
}

WgmmaMatmulSchedule divided(WgmmaMatmulSchedule schedule, int splits) {
  schedule.splits = splits;
  return schedule;
}

// Shares of one step and of several, equal ones and others; a warp's pieces are fewer than blocks, as many,
// and more; the last tiles are cut off.
TEST(WgmmaMatmul, AgreesWhereBlocksDivideTheDepth) {
  for (const int64_t k : {264, 520})
    for (const int splits : {2, 3, 4}) {
      const Workload workload = plain_product(DType::kBF16, 200, 328, k, {false, true});
      for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
               {64, 64, 1, 3, 1}, {128, 160, 2, 3, 1}, {64, 256, 1, 3, 1}, {256, 128, 2, 3, 1}})
        EXPECT_EQ(check_staged_matmul(workload, divided(schedule, splits)), "")
            << k << ' ' << splits << ' ' << schedule.bm;
    }
}

TEST(WgmmaMatmul, AgreesDividedHoweverTheOperandsAreStored) {
  for (const Stored stored :
       {Stored{}, Stored{false, true}, Stored{true, false}, Stored{true, true}})
    EXPECT_EQ(check_staged_matmul(plain_product(DType::kF16, 200, 200, 328, stored),
                                  divided({64, 128, 1, 3, 1}, 2)),
              "");
}

// Results leave in boxes of 16 columns.
TEST(WgmmaMatmul, AgreesForTilesOfNoWhole32Columns) {
  const Workload workload = plain_product(DType::kBF16, 200, 328, 264, {false, true});
  for (const WgmmaMatmulSchedule& schedule :
       std::vector<WgmmaMatmulSchedule>{{128, 176, 2, 3, 1}, {64, 80, 1, 3, 8}, {192, 16, 3, 4, 8}})
    EXPECT_EQ(check_staged_matmul(workload, schedule), "") << schedule.bn;
  EXPECT_EQ(check_staged_matmul(workload, ping_pong({64, 112, 2, 3, 8})), "");
  EXPECT_EQ(check_staged_matmul(workload, divided({64, 144, 1, 3, 1}, 2)), "");
  EXPECT_EQ(check_staged_matmul(plain_product(DType::kF16, 72, 259, 136, {false, true}),
                                {64, 80, 1, 3, 8}),
            "");
}

// The address of a block's shared memory in a cluster has the block's rank above 24 bits. The fake GPU's
// pointers have not, so this test compiles a device's words for descriptors.
TEST(WgmmaMatmul, DescriptorsKnowNothingOfABlocksRank) {
  const std::string words(device_text("warpgroup.cuh"));
  const size_t begin = words.find("struct Place {"), end = words.find("// ---- Where `p` lies");
  ASSERT_NE(begin, std::string::npos);
  ASSERT_NE(end, std::string::npos);
  Source source;
  source.text =
      "namespace on_device {\n"
      "KILN_INLINE unsigned shared_place(const char*) { return 0x02004400; }\n" +
      words.substr(begin, end - begin) +
      "}\n"
      "KILN_KERNEL(32, 1) k(const float*, float* out, char*) {\n"
      "  const unsigned long x = on_device::matrix_descriptor(on_device::Place(\"\") + 32, 8192, "
      "1024);\n"
      "  if (thread_index() < 4) out[thread_index()] = x >> thread_index() * 16 & 0xffff;\n"
      "}\n";
  source.recipe.inputs = {{DType::kF32, {1}}};
  source.recipe.outputs = {{DType::kF32, {4}}};
  source.recipe.phases = {{"k", 1, 32}};
  std::vector<Tensor> inputs;
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{1});
  const auto outputs = testing::run_source(source, kHopper, inputs);
  ASSERT_TRUE(outputs) << outputs.error().message;
  const auto fields = outputs->front().as<float>();
  EXPECT_EQ(std::vector<float>(fields.begin(), fields.end()),
            (std::vector<float>{(0x4400 + 32) / 16, 8192 / 16, 1024 / 16, 0x4000}));
}

// Two blocks of an SM share its registers and its shared memory.
TEST(WgmmaMatmul, AgreesForSeveralBlocksAnSm) {
  const Workload workload = plain_product(DType::kBF16, 520, 224, 72, {false, true});
  std::mt19937 random(14);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
           {64, 64, 1, 3, 8, 3}, {128, 96, 2, 2, 8, 2}, {192, 64, 3, 2, 8, 2}})
    EXPECT_EQ(check_schedule(workload, to_schedule(schedule), two_sms(), inputs), "");
  EXPECT_FALSE(lower(workload, to_schedule(WgmmaMatmulSchedule{128, 256, 2, 2, 8, 2}), kHopper));
}

// All tiles of a block have the same columns: the second operand comes once.
TEST(WgmmaMatmul, AgreesWhereTheSecondOperandStays) {
  for (const auto& [k, steps] : {std::pair{72, 2}, std::pair{24, 1}, std::pair{320, 5}}) {
    const Workload workload = plain_product(DType::kBF16, 520, 224, k, {false, true});
    std::mt19937 random(16);
    const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
    for (WgmmaMatmulSchedule schedule : std::vector<WgmmaMatmulSchedule>{{64, 256, 1, 3, 1, 1},
                                                                         {128, 128, 2, 2, 1, 1},
                                                                         {64, 64, 1, 3, 1, 2},
                                                                         {64, 32, 1, 3, 1}}) {
      schedule.kept = steps;
      EXPECT_EQ(check_schedule(workload, to_schedule(schedule), two_sms(), inputs), "");
    }
  }
  const Workload workload = plain_product(DType::kBF16, 520, 224, 72);  // columns in a row
  EXPECT_EQ(check_staged_matmul(workload, {128, 64, 2, 2, 1, 1, 2}), "");
  for (const WgmmaMatmulSchedule& wrong : std::vector<WgmmaMatmulSchedule>{
           {128, 64, 2, 2, 1, 1, 1}, {128, 64, 2, 2, 8, 1, 2}, {128, 64, 2, 2, 1, 1, 3}})
    EXPECT_FALSE(lower(workload, to_schedule(wrong), kHopper));
}

// As many rows as there are, of a device's blocks: none, fewer than a tile, more tiles than blocks and fewer.
TEST(WgmmaMatmul, AgreesForAnyNumberOfRows) {
  const std::vector<std::vector<int64_t>> sizes = {{0}, {1}, {31}, {32}, {33}, {64}, {150}, {333}};
  for (const DType stored : {DType::kBF16, DType::kF32}) {
    const Workload workload = testing::product_of_any_rows(160, 136, stored, 100);
    for (const WgmmaMatmulSchedule& schedule :
         std::vector<WgmmaMatmulSchedule>{{64, 64, 1, 3, 8},
                                          {128, 96, 2, 3, 8},
                                          {64, 32, 1, 3, 1, 3},
                                          {64, 96, 1, 3, 1, 1, 3},
                                          ping_pong({64, 64, 2, 3, 8})})
      EXPECT_EQ(testing::check_sizes(workload, to_schedule(schedule), two_sms(), sizes), "");
  }
  const Workload odd =
      testing::product_of_any_rows(77, 72, DType::kBF16, 3);  // rows begin anywhere
  EXPECT_EQ(
      testing::check_sizes(odd, to_schedule(WgmmaMatmulSchedule{64, 64, 1, 3, 8}), kHopper, sizes),
      "");
}

TEST(WgmmaMatmul, CandidatesForAnyNumberOfRowsAreThoseOfTheMeasuredOne) {
  const auto of = [](const Workload& workload) {
    std::vector<std::string> names;
    const auto space = wgmma_matmul().candidates(workload, testing::hopper());
    for (const Schedule& schedule : *space) names.push_back(schedule.to_string());
    return names;
  };
  const Workload open = testing::product_of_any_rows(4096, 1024, DType::kBF16, 1000);
  EXPECT_TRUE(wgmma_matmul().covers(open, testing::hopper()));
  EXPECT_EQ(of(open), of(plain_product(DType::kBF16, 2000, 4096, 1024, {false, true})));
}

TEST(WgmmaMatmul, AgreesForEveryTile) {
  const Workload workload = plain_product(DType::kBF16, 264, 280, 136, {false, true});
  for (const auto& [bm, bn, groups] :
       {std::array{128, 256, 2}, {128, 224, 2}, {256, 128, 2}, {192, 128, 3}, {64, 32, 1}})
    EXPECT_EQ(check_staged_matmul(workload, {bm, bn, groups, 3, 8}), "") << bm << 'x' << bn;
}

// Results of halves whose rows begin anywhere are stored by threads.
TEST(WgmmaMatmul, AgreesForRowsOfResultsThatBeginAnywhere) {
  const Workload workload = plain_product(DType::kBF16, 70, 77, 72, {false, true});
  EXPECT_FALSE(ends_in_boxes(workload.graph, 77));
  EXPECT_EQ(check_staged_matmul(workload, {64, 64, 1, 3, 8}), "");
}

// silu(x w + bias) * s + residual: the residual comes as the results go, in boxes, of which a warp
// has fewer under way than a tile has.
Workload with_residual(DType dtype, int64_t m, int64_t n, int64_t k, bool by_columns = false) {
  GraphBuilder b;
  const Shape shape = {2, m, n};
  const NodeId product = b.matmul(b.input(dtype, {2, m, k}), b.input(dtype, {2, k, n}));
  const NodeId bias = b.broadcast(b.input(DType::kF32, {n}), Shape(shape));
  const NodeId scale = b.broadcast(b.input(DType::kF32, {2, m, 1}), Shape(shape));
  const NodeId stored = b.input(dtype, by_columns ? Shape{2, n, m} : Shape{2, m, n});
  const NodeId residual = b.cast(by_columns ? b.permute(stored, {0, 2, 1}) : stored, DType::kF32);
  const NodeId sum =
      b.binary(Op::kMul, b.unary(Op::kTanh, b.binary(Op::kAdd, product, bias)), scale);
  return matmul_workload(b, b.cast(b.binary(Op::kAdd, sum, residual), dtype));
}

TEST(WgmmaMatmul, BringsAResidualInBoxes) {
  EXPECT_EQ(check_staged_matmul(with_residual(DType::kBF16, 72, 328, 64), {64, 256, 1, 3, 8}), "");
  EXPECT_EQ(check_staged_matmul(with_residual(DType::kBF16, 136, 104, 72), {128, 128, 1, 3, 8}),
            "");
  EXPECT_EQ(check_staged_matmul(with_residual(DType::kF16, 64, 64, 64), {64, 64, 1, 3, 8}), "");
  const Workload several = with_residual(DType::kBF16, 136, 264, 136);
  std::mt19937 random(14);
  const std::vector<Tensor> inputs = random_inputs(several.graph, random);
  for (const auto& schedule : {WgmmaMatmulSchedule{64, 192, 1, 5, 2}, {64, 128, 1, 8, 2}})
    EXPECT_EQ(check_schedule(several, to_schedule(schedule), two_sms(), inputs), "");
}

TEST(WgmmaMatmul, ReadsAResidualOfColumnsForItself) {
  EXPECT_EQ(check_staged_matmul(with_residual(DType::kBF16, 72, 72, 64, true), {64, 64, 1, 3, 8}),
            "");
}

// The copy engine brings it for its own place; a View of it reads memory.
TEST(WgmmaMatmul, AgreesWithAResidualThatIsReadElsewhereToo) {
  GraphBuilder b;
  NodeId y = b.matmul(b.input(DType::kBF16, {64, 128}), b.input(DType::kBF16, {128, 64}));
  const NodeId residual = b.input(DType::kBF16, {64, 64});
  y = b.binary(Op::kAdd, y, b.cast(residual, DType::kF32));
  y = b.binary(Op::kMul, y, b.cast(b.permute(residual, {1, 0}), DType::kF32));
  EXPECT_EQ(check_staged_matmul(matmul_workload(b, b.cast(y, DType::kBF16)), {64, 64, 1, 3, 8}),
            "");
}

TEST(WgmmaMatmul, AgreesForBatchesAndOperandsTheyShare) {
  GraphBuilder b;
  const NodeId x = b.input(DType::kBF16, {3, 2, 72, 64});
  const NodeId w = b.broadcast(b.input(DType::kBF16, {1, 2, 64, 40}), Shape{3, 2, 64, 40});
  EXPECT_EQ(check_staged_matmul(matmul_workload(b, b.cast(b.matmul(x, w), DType::kBF16)),
                                {64, 64, 1, 2, 8}),
            "");
}

// gelu-like of the product, a bias, a residual and an f32 output.
TEST(WgmmaMatmul, FusesAnEpilogue) {
  GraphBuilder b;
  const Shape shape = {96, 112};
  const NodeId product =
      b.matmul(b.input(DType::kBF16, {96, 80}), b.input(DType::kBF16, {80, 112}));
  const NodeId bias = b.broadcast(b.input(DType::kF32, {112}), Shape(shape));
  const NodeId residual = b.cast(b.input(DType::kBF16, shape), DType::kF32);
  const NodeId y =
      b.binary(Op::kAdd, b.unary(Op::kTanh, b.binary(Op::kAdd, product, bias)), residual);
  EXPECT_EQ(check_staged_matmul(matmul_workload(b, y), {64, 64, 1, 2, 8}), "");
}

// Whether a block computes values of columns before its first tile.
bool has_column_terms(const Workload& workload, const WgmmaMatmulSchedule& schedule) {
  const auto made = lower(workload, to_schedule(schedule), kHopper);
  EXPECT_TRUE(made) << made.error().message;
  return made && std::get<Source>(*made).text.find("TermsEnding<") != std::string::npos;
}

TEST(WgmmaMatmul, ComputesWhatDependsOnColumnsAloneOnceABlock) {
  const Workload workload = normed_product(DType::kBF16, 328, 136, 72);
  std::mt19937 random(15);
  const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
  for (const WgmmaMatmulSchedule& schedule : std::vector<WgmmaMatmulSchedule>{
           {64, 64, 1, 3, 8}, {128, 128, 2, 2, 1}, {192, 64, 3, 3, 8}, {128, 96, 2, 2, 8, 2}}) {
    EXPECT_TRUE(has_column_terms(workload, schedule));
    EXPECT_EQ(check_schedule(workload, to_schedule(schedule), two_sms(), inputs), "");
  }
  EXPECT_EQ(check_staged_matmul(normed_product(DType::kF16, 64, 64, 64), {64, 64, 1, 3, 8}), "");
}

// A View reads values of columns in another order: they are computed where they are read.
TEST(WgmmaMatmul, AgreesWhereAViewReadsWhatColumnsHave) {
  GraphBuilder b;
  const Shape shape = {72, 128};
  const NodeId product =
      b.matmul(b.input(DType::kBF16, {72, 64}), b.input(DType::kBF16, {64, 128}));
  const NodeId bias = b.broadcast(b.input(DType::kF32, {128}), Shape(shape));
  const NodeId squares = b.binary(Op::kMul, bias, bias);
  const NodeId backwards = b.view(squares, shape, {128, -1}, 127);
  const NodeId y = b.binary(Op::kMul, b.binary(Op::kAdd, product, squares), backwards);
  EXPECT_EQ(check_staged_matmul(matmul_workload(b, b.cast(y, DType::kBF16)), {64, 64, 1, 3, 8}),
            "");
}

TEST(WgmmaMatmul, ReadsWhatColumnsHaveWhereNothingIsComputedOrNoMemoryIsLeft) {
  GraphBuilder b;
  const NodeId product = b.matmul(b.input(DType::kBF16, {64, 64}), b.input(DType::kBF16, {64, 64}));
  const NodeId bias = b.cast(b.broadcast(b.input(DType::kBF16, {64}), {64, 64}), DType::kF32);
  EXPECT_FALSE(
      has_column_terms(matmul_workload(b, b.cast(b.binary(Op::kAdd, product, bias), DType::kBF16)),
                       {64, 64, 1, 3, 8}));
  const Workload wide = normed_product(DType::kBF16, 64, 1032, 64);
  const WgmmaMatmulSchedule full{128, 256, 2, 4, 8};
  EXPECT_FALSE(has_column_terms(wide, full));
  EXPECT_EQ(check_staged_matmul(wide, full), "");
}

TEST(WgmmaMatmul, CoversWhatTheCopyEngineCanRead) {
  const auto covers = [](const Workload& workload, const char* target = "cuda:sm_90a") {
    return wgmma_matmul().covers(workload, *Target::parse(target));
  };
  EXPECT_TRUE(covers(plain_product(DType::kBF16, 128, 128, 128)));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 128, 128, 128), "cuda:sm_80"));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 128, 128, 128), "cuda:sm_120"));
  EXPECT_FALSE(covers(plain_product(DType::kF32, 128, 128, 128)));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 128, 128, 129))) << "rows of a begin anywhere";
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 128, 129, 128))) << "rows of b begin anywhere";
  EXPECT_TRUE(covers(plain_product(DType::kBF16, 128, 129, 128, {false, true})));
  EXPECT_FALSE(covers(plain_product(DType::kBF16, 128, 128, 0)));
}

TEST(WgmmaMatmul, CandidatesFitAndTheLargestTilesComeFirstForLargeProducts) {
  const auto space = wgmma_candidates(plain_product(DType::kBF16, 4096, 4096, 4096), kHopper);
  ASSERT_EQ(space.size(), 4u);
  EXPECT_EQ(space[0].get("bm", 0) * space[0].get("bn", 0), 128 * 256) << space[0].to_string();
  for (const Schedule& schedule : space)
    EXPECT_TRUE(fits(*decisions_of<WgmmaMatmulSchedule>(schedule),
                     plain_product(DType::kBF16, 4096, 4096, 4096).graph));
}

// Weights times images whose planes begin anywhere: of single elements, in fours and in eights.
TEST(WgmmaCopied, AgreesForWeightsTimesImages) {
  for (const auto& [m, k, n] :
       {std::array<int64_t, 3>{128, 64, 49}, {192, 80, 196}, {72, 128, 100}, {64, 96, 90}}) {
    GraphBuilder b;
    const Shape images = {6, m, n};
    const NodeId w = b.broadcast(b.input(DType::kBF16, {m, k}), {6, m, k});
    const NodeId y = b.matmul(w, b.input(DType::kBF16, {6, k, n}));
    const NodeId bias = b.broadcast(b.input(DType::kF32, {m, 1}), Shape(images));
    const NodeId residual = b.cast(b.input(DType::kBF16, Shape(images)), DType::kF32);
    const NodeId sum = b.binary(Op::kAdd, b.binary(Op::kAdd, y, bias), residual);
    const Workload workload = matmul_workload(b, b.cast(sum, DType::kBF16));
    const Status covered = check_wgmma_copied(workload);
    ASSERT_TRUE(covered) << covered.error().message;
    std::mt19937 random(17);
    const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
    for (const WgmmaMatmulSchedule& schedule :
         {WgmmaMatmulSchedule{64, 64, 1, 3, 8}, {64, 224, 1, 3, 8}})
      EXPECT_EQ(
          check_schedule(workload, to_schedule(WgmmaCopiedSchedule{schedule}), kHopper, inputs), "")
          << m << ' ' << k << ' ' << n;
  }
}

// Lines that begin anywhere are copied first.
TEST(WgmmaCopied, AgreesHoweverTheOperandsAreStored) {
  Target few = kHopper;
  few.units = 5;
  for (const Stored stored : {Stored{}, Stored{false, true}, Stored{true, false}}) {
    const Workload workload = plain_product(DType::kBF16, 261, 259, 257, stored);
    ASSERT_TRUE(check_wgmma_copied(workload));
    EXPECT_FALSE(check_wgmma(workload));
    std::mt19937 random(17);
    const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
    EXPECT_EQ(check_schedule(workload, to_schedule(WgmmaCopiedSchedule{{128, 128, 2, 4, 8}}),
                             two_sms(), inputs),
              "");
    EXPECT_EQ(
        check_schedule(workload, to_schedule(WgmmaCopiedSchedule{ping_pong({64, 64, 2, 4, 8})}),
                       two_sms(), inputs),
        "");
  }
  EXPECT_FALSE(check_wgmma_copied(plain_product(DType::kBF16, 264, 264, 264))) << "nothing to copy";
  EXPECT_FALSE(check_wgmma_copied(plain_product(DType::kBF16, 3, 259, 257)));
}

int count_of(const Workload& workload, std::string_view decision) {
  int count = 0;
  const auto space = wgmma_matmul().candidates(workload, testing::hopper());
  for (const Schedule& schedule : *space) {
    const std::string text = schedule.to_string() + ' ';
    count += text.find(fmt::format(" {} ", decision)) != std::string::npos ? 1 : 0;
  }
  return count;
}

TEST(WgmmaMatmul, CandidatesTakeTurnsWhereTheyMayGain) {
  const auto by_turns = [](const Workload& workload) { return count_of(workload, "ping_pong=1"); };
  EXPECT_EQ(by_turns(plain_product(DType::kBF16, 4096, 4096, 4096)), 0) << "deep, stored as it is";
  EXPECT_GT(by_turns(plain_product(DType::kBF16, 4096, 4096, 2048)), 0);
  EXPECT_GT(by_turns(with_residual(DType::kBF16, 2048, 4096, 4096)), 0);
  EXPECT_EQ(by_turns(normed_product(DType::kBF16, 40000, 256, 256)), 0) << "terms of columns";
  EXPECT_EQ(by_turns(plain_product(DType::kBF16, 1024, 1024, 1024)), 0) << "a tile for each block";
}

TEST(WgmmaMatmul, CandidatesDivideTheDepthOfFewTiles) {
  EXPECT_GT(count_of(plain_product(DType::kBF16, 512, 2048, 8192), "splits=2"), 0);
  EXPECT_EQ(count_of(plain_product(DType::kBF16, 512, 2048, 256), "splits=2"), 0) << "few steps";
  EXPECT_EQ(count_of(plain_product(DType::kBF16, 4096, 2048, 8192), "splits=1"),
            static_cast<int>(
                wgmma_matmul()
                    .candidates(plain_product(DType::kBF16, 4096, 2048, 8192), testing::hopper())
                    ->size()));
}

// 512x5504: the three best have one wave of tiles, 128x96 has two.
TEST(WgmmaMatmul, CandidatesHaveAnotherNumberOfWavesToo) {
  const Workload workload = plain_product(DType::kBF16, 512, 5504, 2048, {false, true});
  EXPECT_GT(count_of(workload, "bn=96 groups=2 stages=7 raster=8 blocks=1 kept=0 ping_pong=0"), 0);
}

TEST(WgmmaMatmul, RefusesWhatDoesNotFit) {
  const Workload columns = plain_product(DType::kBF16, 128, 128, 128);
  const auto refused = [&](const WgmmaMatmulSchedule& schedule) {
    const auto made = lower(columns, to_schedule(schedule), kHopper);
    return !made && made.error().code == Code::kInvalidArgument;
  };
  EXPECT_TRUE(refused({128, 224, 2, 4, 8})) << "columns of b that are contiguous come in 64";
  EXPECT_TRUE(refused({128, 128, 3, 4, 8}));
  EXPECT_TRUE(refused({256, 256, 2, 3, 8})) << "more sums than registers";
  EXPECT_TRUE(refused({128, 256, 2, 8, 8})) << "more than shared memory";
  EXPECT_TRUE(refused(ping_pong({128, 256, 2, 2, 8}))) << "all sums of a tile in a warpgroup";
  EXPECT_TRUE(refused(ping_pong({64, 64, 1, 3, 8}))) << "nobody to take turns with";
  EXPECT_TRUE(refused(ping_pong({64, 64, 2, 3, 8, 2})));
  EXPECT_TRUE(refused(divided({64, 64, 1, 3, 1}, 3))) << "two steps";
  EXPECT_TRUE(refused(divided(ping_pong({64, 64, 2, 3, 8}), 2)));
  EXPECT_TRUE(refused(divided({64, 64, 1, 3, 1, 2}, 2)));
  const Workload deep = plain_product(DType::kBF16, 128, 160, 520, {false, true});
  EXPECT_TRUE(lower(deep, to_schedule(divided({128, 160, 2, 3, 1}, 4)), kHopper));
  EXPECT_FALSE(lower(deep, to_schedule(divided({128, 160, 2, 2, 1}, 4)), kHopper))
      << "no room for what the others bring";
}

}  // namespace
}  // namespace kiln
