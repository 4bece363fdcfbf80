#include <gtest/gtest.h>

#include <limits>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/kernels/random_graph.h"

namespace kiln {
namespace {

using testing::check_schedule;
using testing::check_space;
using testing::hopper;
using testing::random_inputs;
using testing::RandomGraph;

std::string check_rows(const Graph& graph, int limit) {
  std::mt19937 random(7);
  const auto made = make_workload(graph);
  if (!made) return made.error().message;
  if (made->workload.family != Family::kRowReduction) return "not a row reduction";
  const Graph& workload = made->workload.graph;
  const std::string wrong =
      check_space(made->workload, hopper(), random_inputs(workload, random), limit);
  return wrong.empty() ? "" : wrong + "\n" + print(workload);
}

// Row kernels as people write them, in f32 between `dtype` at both ends.
class Rows {
 public:
  Rows(DType dtype, int64_t rows, int64_t columns) : dtype_(dtype), rows_(rows), columns_(columns) {
    input_ = b_.input(dtype, {rows, columns});
    x_ = wide(input_);
  }
  Graph softmax() {
    const NodeId e = b_.unary(Op::kExp, b_.binary(Op::kSub, x_, spread(Op::kReduceMax, x_)));
    return finish({narrow(b_.binary(Op::kDiv, e, spread(Op::kReduceSum, e)))});
  }
  // Two chained reductions, operands that are the same for every row.
  Graph layernorm() {
    const NodeId count = number(static_cast<double>(columns_));
    const NodeId mean = b_.binary(Op::kDiv, spread(Op::kReduceSum, x_), count);
    const NodeId centred = b_.binary(Op::kSub, x_, mean);
    const NodeId squares = spread(Op::kReduceSum, b_.binary(Op::kMul, centred, centred));
    const NodeId variance = b_.binary(Op::kAdd, b_.binary(Op::kDiv, squares, count), number(1e-5));
    const NodeId scaled = b_.binary(Op::kMul, centred, b_.unary(Op::kRsqrt, variance));
    const NodeId weighted = b_.binary(Op::kMul, scaled, vector());
    return finish({narrow(b_.binary(Op::kAdd, weighted, vector()))});
  }
  // Two full outputs, one of them read by the reduction.
  Graph residual_rmsnorm() {
    const NodeId sum = narrow(b_.binary(Op::kAdd, x_, wide(b_.input(dtype_, b_.shape(x_)))));
    const NodeId h = wide(sum);
    const NodeId squares = spread(Op::kReduceSum, b_.binary(Op::kMul, h, h));
    const NodeId mean = b_.binary(Op::kDiv, squares, number(static_cast<double>(columns_)));
    const NodeId scale = b_.unary(Op::kRsqrt, b_.binary(Op::kAdd, mean, number(1e-6)));
    return finish({sum, narrow(b_.binary(Op::kMul, b_.binary(Op::kMul, h, scale), vector()))});
  }
  // Reduced outputs and a full one.
  Graph log_sum_exp_beside_it() {
    const NodeId greatest = b_.reduce(Op::kReduceMax, x_, {1});
    const NodeId below =
        b_.binary(Op::kSub, x_, b_.broadcast(b_.reshape(greatest, {rows_, 1}), b_.shape(x_)));
    const NodeId log =
        b_.unary(Op::kLog, b_.reduce(Op::kReduceSum, b_.unary(Op::kExp, below), {1}));
    const NodeId spread = b_.broadcast(b_.reshape(log, {rows_, 1}), b_.shape(x_));
    return finish(
        {b_.binary(Op::kAdd, log, greatest), greatest, b_.binary(Op::kSub, below, spread)});
  }
  // log(sum of exp) less one element of the row, which an index picks.
  Graph cross_entropy() {
    const NodeId target = b_.input(DType::kI64, {rows_});
    const NodeId from = b_.binary(Op::kMul, b_.iota(DType::kI64, rows_),
                                  b_.broadcast(b_.constant_int(DType::kI64, columns_), {rows_}));
    const NodeId entry =
        wide(b_.gather(b_.reshape(input_, {rows_ * columns_}), b_.binary(Op::kAdd, from, target)));
    const NodeId greatest = b_.reduce(Op::kReduceMax, x_, {1});
    const NodeId below =
        b_.binary(Op::kSub, x_, b_.broadcast(b_.reshape(greatest, {rows_, 1}), b_.shape(x_)));
    const NodeId log =
        b_.unary(Op::kLog, b_.reduce(Op::kReduceSum, b_.unary(Op::kExp, below), {1}));
    return finish({b_.binary(Op::kSub, b_.binary(Op::kSub, entry, greatest), log)});
  }
  Graph sum() { return finish({b_.reduce(Op::kReduceSum, x_, {1})}); }

 private:
  Graph finish(std::vector<NodeId> outputs) { return *b_.finish(std::move(outputs)); }
  NodeId wide(NodeId x) { return b_.dtype(x) == DType::kF32 ? x : b_.cast(x, DType::kF32); }
  NodeId narrow(NodeId x) { return dtype_ == DType::kF32 ? x : b_.cast(x, dtype_); }
  NodeId number(double x) { return b_.broadcast(b_.constant(DType::kF32, x), b_.shape(x_)); }
  NodeId vector() { return b_.broadcast(wide(b_.input(dtype_, {columns_})), b_.shape(x_)); }
  NodeId spread(Op op, NodeId x) { return b_.broadcast(b_.reduce(op, x, {1}, true), b_.shape(x)); }

  GraphBuilder b_;
  const DType dtype_;
  const int64_t rows_, columns_;
  NodeId input_ = 0, x_ = 0;
};

TEST(CudaRowReduction, SoftmaxOfEveryLength) {
  for (const int64_t columns : {2, 7, 63, 64, 65, 1000, 4095, 4096})
    for (const int64_t rows : {1, 37}) {
      if (rows > 1 && columns > 65) continue;
      EXPECT_EQ(check_rows(Rows(DType::kBF16, rows, columns).softmax(), 1), "")
          << rows << "x" << columns;
    }
}

TEST(CudaRowReduction, EveryScheduleOfTheSpace) {
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 3, 1000).softmax(), 100), "");
  EXPECT_EQ(check_rows(Rows(DType::kF16, 2, 40000).layernorm(), 4), "");
}

TEST(CudaRowReduction, SeveralOutputs) {
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 5, 2048).residual_rmsnorm(), 4), "");
  EXPECT_EQ(check_rows(Rows(DType::kF16, 3, 99).log_sum_exp_beside_it(), 4), "");
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 9, 768).layernorm(), 4), "");
}

TEST(CudaRowReduction, ARowsElementPickedByAnIndex) {
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 5, 1000).cross_entropy(), 4), "");
  EXPECT_EQ(check_rows(Rows(DType::kF32, 3, 70001).cross_entropy(), 2), "");
}

// Every form, on rows that fill it, that leave threads idle, and that end in a short vector.
TEST(CudaRowReduction, EveryForm) {
  const auto form = [](RowStorage storage, int threads, int rows, int cluster, int64_t split) {
    CudaRowReductionSchedule s;
    s.lanes = 4;
    s.threads = threads;
    s.rows = rows;
    s.cluster = cluster;
    s.storage = storage;
    s.vectors = 2;
    s.split = split;
    return s;
  };
  using enum RowStorage;
  const CudaRowReductionSchedule forms[] = {
      form(kRegisters, 8, 4, 1, 1),  form(kRegisters, 32, 2, 1, 1), form(kRegisters, 64, 3, 1, 1),
      form(kRegisters, 64, 1, 4, 1), form(kShared, 4, 16, 1, 1),    form(kShared, 128, 1, 1, 1),
      form(kShared, 32, 1, 2, 1),    form(kReread, 16, 2, 1, 1),    form(kReread, 64, 1, 1, 1),
      form(kReread, 32, 1, 2, 1),    form(kReread, 64, 1, 1, 3),    form(kReread, 32, 1, 1, 40)};
  for (const int64_t columns : {512, 252}) {
    std::mt19937 random(11);
    const Workload workload = make_workload(Rows(DType::kF32, 5, columns).softmax())->workload;
    const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
    for (const CudaRowReductionSchedule& s : forms)
      EXPECT_EQ(check_schedule(workload, to_schedule(s), hopper(), inputs), "") << columns;
    CudaRowReductionSchedule odd = forms[0];
    odd.lanes = 1;
    EXPECT_EQ(check_schedule(workload, to_schedule(odd), hopper(), inputs), "") << columns;
  }
}

// Rows that begin between aligned places: their first and last vectors are short, dead lanes are
// neither counted nor written, and nothing is read past a buffer.
TEST(CudaRowReduction, PeeledRowsOfEveryLength) {
  for (const int64_t columns : {17, 63, 65, 66, 100}) {
    std::mt19937 random(5);
    const Workload workload = make_workload(Rows(DType::kF16, 9, columns).layernorm())->workload;
    CudaRowReductionSchedule s;
    s.lanes = 8;
    s.threads = 8;
    s.rows = 4;
    s.storage = columns == 63 ? RowStorage::kShared : RowStorage::kRegisters;
    EXPECT_EQ(
        check_schedule(workload, to_schedule(s), hopper(), random_inputs(workload.graph, random)),
        "")
        << columns;
  }
  EXPECT_EQ(check_rows(Rows(DType::kF32, 5, 255).softmax(), 100), "");
  EXPECT_EQ(check_rows(Rows(DType::kF32, 3, 4095).softmax(), 2), "");
  EXPECT_EQ(check_rows(Rows(DType::kF16, 3, 5003).residual_rmsnorm(), 2), "");
  EXPECT_EQ(check_rows(Rows(DType::kF16, 2, 50257).log_sum_exp_beside_it(), 3), "");
}

TEST(CudaRowReduction, PeeledRowsInEveryForm) {
  struct Form {
    RowStorage storage;
    int threads, rows, cluster;
    int64_t split;
  };
  using enum RowStorage;
  const Form forms[] = {{kRegisters, 16, 2, 1, 1}, {kRegisters, 64, 1, 1, 1},
                        {kRegisters, 32, 1, 2, 1}, {kShared, 8, 4, 1, 1},
                        {kShared, 64, 1, 4, 1},    {kReread, 16, 2, 1, 1},
                        {kReread, 32, 1, 2, 1},    {kReread, 32, 1, 1, 3}};
  for (const int64_t columns : {503, 1001}) {
    const DType dtype = columns == 503 ? DType::kBF16 : DType::kF32;
    std::mt19937 random(3);
    const Workload workload = make_workload(Rows(dtype, 9, columns).layernorm())->workload;
    const std::vector<Tensor> inputs = random_inputs(workload.graph, random);
    for (const Form& form : forms) {
      CudaRowReductionSchedule s;
      s.lanes = dtype == DType::kF32 ? 4 : 8;
      s.threads = form.threads;
      s.rows = form.rows;
      s.cluster = form.cluster;
      s.storage = form.storage;
      s.vectors = 2;
      s.split = form.split;
      s.stream = form.rows > 1;
      EXPECT_EQ(check_schedule(workload, to_schedule(s), hopper(), inputs), "") << columns;
    }
  }
}

// Operands of other widths and other places than the rows' own.
TEST(CudaRowReduction, PeeledRowsBesideOtherOperands) {
  for (const DType dtype : {DType::kU8, DType::kI64}) {
    GraphBuilder b;
    const Shape shape = {7, 133};
    const NodeId x = b.cast(b.input(dtype, shape), DType::kF32);
    const NodeId y = b.cast(b.input(DType::kF16, shape), DType::kF32);
    const NodeId weight = b.broadcast(b.cast(b.input(DType::kU8, {133}), DType::kF32), shape);
    const NodeId by_row = b.broadcast(b.input(DType::kF32, {7, 1}), shape);
    const NodeId sum =
        b.binary(Op::kAdd, b.binary(Op::kAdd, x, y), b.binary(Op::kMul, weight, by_row));
    const NodeId greatest = b.broadcast(b.reduce(Op::kReduceMax, sum, {1}, true), shape);
    const NodeId below = b.binary(Op::kSub, sum, greatest);
    EXPECT_EQ(check_rows(*b.finish({below, b.cast(below, DType::kF16)}), 2), "");
  }
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 5, 1001).cross_entropy(), 1), "");
}

// Blocks that go through rows: some have one more than others; what a row leaves is not the next's.
TEST(CudaRowReduction, WalkingBlocks) {
  const auto check_form = [](const Graph& graph, int threads, int rows, int64_t walk) {
    CudaRowReductionSchedule s;
    s.lanes = 4;
    s.storage = RowStorage::kRegisters;
    s.threads = threads;
    s.rows = rows;
    s.walk = walk;
    std::mt19937 random(13);
    const Workload workload = make_workload(graph)->workload;
    return check_schedule(workload, to_schedule(s), hopper(),
                          random_inputs(workload.graph, random));
  };
  for (const int64_t columns : {512, 250}) {
    EXPECT_EQ(check_form(Rows(DType::kF32, 23, columns).softmax(), 64, 1, 5), "") << columns;
    EXPECT_EQ(check_form(Rows(DType::kF32, 23, columns).softmax(), 32, 4, 2), "") << columns;
    EXPECT_EQ(check_form(Rows(DType::kF32, 9, columns).sum(), 128, 1, 2), "") << columns;
    EXPECT_EQ(check_form(Rows(DType::kBF16, 11, columns).residual_rmsnorm(), 64, 1, 3), "")
        << columns;
    EXPECT_EQ(check_form(Rows(DType::kBF16, 3, columns).layernorm(), 64, 2, 40), "") << columns;
  }
}

// One row alone has vectors that begin aligned and end anywhere.
TEST(CudaRowReduction, OneLongRowInPieces) {
  EXPECT_EQ(check_rows(Rows(DType::kF32, 1, 70001).softmax(), 100), "");
  EXPECT_EQ(check_rows(Rows(DType::kBF16, 1, 300007).sum(), 1), "");
}

// The tail of a reread row alone needs one more round of the loop.
TEST(CudaRowReduction, ATailBehindWholeRounds) {
  CudaRowReductionSchedule s;
  s.lanes = 4;
  s.threads = 32;
  s.vectors = 2;
  s.storage = RowStorage::kReread;
  std::mt19937 random(13);
  const Workload workload = make_workload(Rows(DType::kF32, 1, 257).softmax())->workload;
  EXPECT_EQ(
      check_schedule(workload, to_schedule(s), hopper(), random_inputs(workload.graph, random)),
      "");
}

TEST(CudaRowReduction, SpecialValues) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const std::vector<std::vector<double>> rows = {{1, 2, 3, nan},
                                                 {kInfinity, 0, 1, 2},
                                                 {-kInfinity, 0, 1, 2},
                                                 {-kInfinity, -kInfinity, -kInfinity, -kInfinity},
                                                 {-kInfinity, -kInfinity, -kInfinity, 5},
                                                 {3e38, -3e38, 1, 0},
                                                 {0, -0.0, 1e-40, 1}};
  const auto count = static_cast<int64_t>(rows.size());
  const Workload workload = make_workload(Rows(DType::kF32, count, 64).softmax())->workload;
  Tensor x(DType::kF32, {count, 64});
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < 64; ++j)
      x.set(i * 64 + j, rows[static_cast<size_t>(i)][j == 37 ? 3 : static_cast<size_t>(j % 3)]);
  EXPECT_EQ(check_space(workload, hopper(), std::span(&x, 1), 3), "");
  CudaRowReductionSchedule reread;
  reread.lanes = 4;
  reread.threads = 32;
  reread.storage = RowStorage::kReread;
  reread.vectors = 1;
  EXPECT_EQ(check_schedule(workload, to_schedule(reread), hopper(), std::span(&x, 1)), "");
  reread.split = 4;
  reread.lanes = 1;
  EXPECT_EQ(check_schedule(workload, to_schedule(reread), hopper(), std::span(&x, 1)), "");
}

TEST(CudaRowReduction, RandomGraphsAgreeWithTheInterpreter) {
  struct Case {
    Shape shape;
    int begin;
  };
  const Case cases[] = {{{7}, 0},           {{1000}, 0},     {{5, 3}, 1},
                        {{3, 64}, 1},       {{9, 130}, 1},   {{2, 3, 40}, 2},
                        {{4, 3, 5, 17}, 2}, {{2, 5, 33}, 1}, {{3, 5, 277}, 2}};
  uint32_t seed = 100;
  for (const Case& c : cases)
    for (int i = 0; i < 2; ++i, ++seed) {
      RandomGraph random(seed);
      const Graph graph = random.reduction(c.shape, c.begin, static_cast<int>(c.shape.size()));
      EXPECT_EQ(check_rows(graph, 1), "") << "seed " << seed;
    }
}

TEST(CudaRowReduction, SchedulesThatCannotBeWrittenAreRefused) {
  const auto parses = [](const std::string& decisions) {
    return decisions_of<CudaRowReductionSchedule>(
               *Schedule::parse("cuda.row_reduction " + decisions))
        .has_value();
  };
  EXPECT_TRUE(parses("lanes=8 threads=64 rows=2 cluster=1 storage=0"));
  EXPECT_FALSE(parses("lanes=3 threads=64 rows=2 cluster=1 storage=0"));
  EXPECT_FALSE(parses("lanes=8 threads=4 rows=2 cluster=1 storage=0"));
  EXPECT_FALSE(parses("lanes=8 threads=64 rows=2 cluster=2 storage=0"));
  EXPECT_FALSE(parses("lanes=8 threads=64 rows=1 cluster=1 storage=0 split=2"));
  EXPECT_FALSE(parses("lanes=8 threads=64 rows=1 cluster=2 storage=0 walk=8"));
}

}  // namespace
}  // namespace kiln
