// Products by cuBLASLt: which workloads become a call, and that the call says what the workload
// does. The library itself runs in tests/compiler_core/runtime.
#include "compiler_core/kernels/library/cublaslt_matmul.h"

#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/kernel_harness.h"

namespace kiln {
namespace {

using testing::kHopper;

Workload library_workload(GraphBuilder& b, NodeId output) {
  const auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->workload.family, Family::kMatmul);
  return made->workload;
}

// What a call of constant sizes says, done slowly.
Tensor evaluate(const LibraryCall& call, const Graph& graph, std::span<const Tensor> inputs) {
  const auto at = [](const LibraryCall::Matrix& x, int64_t batch, int64_t row, int64_t column) {
    return x.offset.constant() + batch * x.batch_stride.constant() +
           (x.transposed ? column : row) * x.ld.constant() + (x.transposed ? row : column);
  };
  std::vector<int64_t> sizes;
  for (const Dim& size : graph.node(graph.outputs()[0]).shape) sizes.push_back(size.constant());
  Tensor d(call.d.dtype, sizes);
  const Tensor& a = inputs[static_cast<size_t>(call.a.buffer)];
  const Tensor& b = inputs[static_cast<size_t>(call.b.buffer)];
  for (int64_t batch = 0; batch < call.batch.constant(); ++batch)
    for (int64_t row = 0; row < call.m.constant(); ++row)
      for (int64_t column = 0; column < call.n.constant(); ++column) {
        double sum = 0;
        for (int64_t i = 0; i < call.k.constant(); ++i)
          sum += a.get(at(call.a, batch, row, i)) * b.get(at(call.b, batch, i, column));
        const int64_t to = at(call.d, batch, row, column);
        if (call.c >= 0) sum += inputs[static_cast<size_t>(call.c)].get(to);
        if (call.bias >= 0) sum += inputs[static_cast<size_t>(call.bias)].get(column);
        d.set(to, sum);
      }
  return d;
}

// "" when the call computes what the workload does.
std::string check_call(const Workload& workload) {
  const auto call = cublaslt_call(workload);
  if (!call) return call.error().message;
  std::vector<int64_t> elements;
  std::mt19937 random(3);
  const std::vector<Tensor> inputs = testing::random_inputs(workload.graph, random);
  for (const Tensor& input : inputs) elements.push_back(input.numel());
  std::vector<Tensor> outputs;
  outputs.push_back(evaluate(*call, workload.graph, inputs));
  elements.push_back(outputs[0].numel());
  if (const Status inside = call->check({}, elements); !inside) return inside.error().message;
  return testing::disagreement(workload.graph, inputs, outputs);
}

std::string refusal(const Workload& workload) {
  const auto call = cublaslt_call(workload);
  if (call) return "none";
  EXPECT_EQ(call.error().code, Code::kUnsupported);
  return call.error().message;
}

NodeId product(GraphBuilder& b, DType dtype, int64_t m, int64_t n, int64_t k, bool a_transposed,
               bool b_transposed) {
  const NodeId x = b.input(dtype, a_transposed ? Shape{k, m} : Shape{m, k});
  const NodeId w = b.input(dtype, b_transposed ? Shape{n, k} : Shape{k, n});
  return b.matmul(a_transposed ? b.permute(x, {1, 0}) : x, b_transposed ? b.permute(w, {1, 0}) : w);
}

TEST(CublasLtMatmul, TakesEveryFloatTypeHoweverItIsStored) {
  for (const DType dtype : {DType::kBF16, DType::kF16, DType::kF32, DType::kF64})
    for (const bool a_transposed : {false, true})
      for (const bool b_transposed : {false, true}) {
        GraphBuilder b;
        const NodeId y = product(b, dtype, 9, 13, 7, a_transposed, b_transposed);
        const Workload workload = library_workload(b, b.cast(y, dtype));
        EXPECT_EQ(check_call(workload), "") << print(workload.graph);
        const LibraryCall call = *cublaslt_call(workload);
        EXPECT_EQ(call.a.transposed, a_transposed);
        EXPECT_EQ(call.b.transposed, b_transposed);
        EXPECT_EQ(call.compute, dtype == DType::kF64 ? "f64" : "f32") << "never tf32";
      }
}

TEST(CublasLtMatmul, TakesDegenerateSizes) {
  const int64_t sizes[][3] = {{1, 5, 4}, {5, 1, 4}, {5, 4, 1}, {1, 1, 6}, {1, 1, 1}};
  for (const auto& [m, n, k] : sizes)
    for (const bool transposed : {false, true}) {
      GraphBuilder b;
      const Workload workload =
          library_workload(b, product(b, DType::kF32, m, n, k, transposed, transposed));
      EXPECT_EQ(check_call(workload), "") << print(workload.graph);
    }
}

TEST(CublasLtMatmul, GivesTheSumsOfHalvesInF32) {
  GraphBuilder b;
  const Workload workload = library_workload(b, product(b, DType::kBF16, 4, 6, 8, false, false));
  EXPECT_EQ(check_call(workload), "");
  EXPECT_EQ(cublaslt_call(workload)->d.dtype, DType::kF32);
}

TEST(CublasLtMatmul, TakesABiasAndAnAddend) {
  for (const DType dtype : {DType::kBF16, DType::kF32}) {
    GraphBuilder b;
    const Shape shape = {9, 13};
    NodeId y = product(b, dtype, 9, 13, 7, false, true);
    const DType wide = compute_type(dtype);
    y = b.binary(Op::kAdd, y, b.broadcast(b.cast(b.input(dtype, {13}), wide), shape));
    y = b.cast(b.cast(y, dtype), wide);  // PyTorch rounds between linear and the addition
    y = b.binary(Op::kAdd, b.cast(b.input(dtype, shape), wide), y);
    const Workload workload = library_workload(b, b.cast(y, dtype));
    EXPECT_EQ(check_call(workload), "") << print(workload.graph);
    const LibraryCall call = *cublaslt_call(workload);
    EXPECT_GE(call.c, 0);
    EXPECT_EQ(call.epilogue, "bias");
  }
}

TEST(CublasLtMatmul, TakesSlicesAndOddLeadingDimensions) {
  GraphBuilder b;
  const NodeId x = b.slice(b.input(DType::kBF16, {8, 37}), 1, 3, 24, 1);
  const NodeId w = b.slice(b.input(DType::kBF16, {40, 13}), 0, 5, 24, 1);
  const Workload workload = library_workload(b, b.matmul(x, w));
  EXPECT_EQ(check_call(workload), "") << print(workload.graph);
  const LibraryCall call = *cublaslt_call(workload);
  EXPECT_EQ(call.a.ld, Dim(37));
  EXPECT_EQ(call.a.offset, Dim(3));
  EXPECT_EQ(call.b.offset, Dim(5 * 13));
}

TEST(CublasLtMatmul, TakesBatchesAtOneStride) {
  GraphBuilder b;
  const NodeId q = b.input(DType::kF16, {2, 3, 5, 8}), k = b.input(DType::kF16, {2, 3, 7, 8});
  const Workload both = library_workload(b, b.matmul(q, b.permute(k, {0, 1, 3, 2})));
  EXPECT_EQ(check_call(both), "") << print(both.graph);
  EXPECT_EQ(cublaslt_call(both)->batch, Dim(6));

  GraphBuilder c;  // one matrix for all: one product of all rows
  const NodeId x = c.input(DType::kF32, {4, 5, 8}), w = c.input(DType::kF32, {8, 6});
  const Workload shared = library_workload(c, c.matmul(x, c.broadcast(w, {4, 8, 6})));
  EXPECT_EQ(check_call(shared), "") << print(shared.graph);
  EXPECT_EQ(cublaslt_call(shared)->batch, Dim(1));
  EXPECT_EQ(cublaslt_call(shared)->m, Dim(20));

  GraphBuilder d;  // whose rows lie apart: a batch
  const NodeId heads = d.permute(d.input(DType::kF32, {5, 4, 8}), {1, 0, 2});
  const NodeId table = d.broadcast(d.input(DType::kF32, {8, 6}), {4, 8, 6});
  const Workload apart = library_workload(d, d.matmul(heads, table));
  EXPECT_EQ(check_call(apart), "") << print(apart.graph);
  EXPECT_EQ(cublaslt_call(apart)->batch, Dim(4));
}

TEST(CublasLtMatmul, RefusesWhatTheLibraryLacks) {
  GraphBuilder integers;
  EXPECT_EQ(
      refusal(library_workload(integers, product(integers, DType::kI32, 4, 5, 6, false, false))),
      "cuBLASLt has no product of i32 operands");
  GraphBuilder b;
  const NodeId y = product(b, DType::kF32, 4, 5, 6, false, false);
  EXPECT_EQ(refusal(library_workload(b, b.unary(Op::kTanh, y))),
            "cuBLASLt has no product followed by tanh");
  GraphBuilder narrow;
  const NodeId z = product(narrow, DType::kF32, 4, 5, 6, false, false);
  EXPECT_EQ(refusal(library_workload(narrow, narrow.cast(z, DType::kBF16))),
            "cuBLASLt has no product of f32 that gives bf16");
  GraphBuilder strided;
  const NodeId x = strided.slice(strided.input(DType::kF32, {8, 12}), 1, 0, 6, 2);
  EXPECT_EQ(
      refusal(library_workload(strided, strided.matmul(x, strided.input(DType::kF32, {6, 5})))),
      "cuBLASLt has no product of a matrix without a contiguous axis, or whose lines "
      "overlap");
  GraphBuilder rows;  // a bias of rows is no bias of columns
  const NodeId p = product(rows, DType::kF32, 4, 5, 6, false, false);
  const NodeId column = rows.broadcast(rows.input(DType::kF32, {4, 1}), {4, 5});
  EXPECT_EQ(refusal(library_workload(rows, rows.binary(Op::kAdd, p, column))),
            "cuBLASLt has no product followed by view");
}

TEST(CublasLtMatmul, CandidatesAreTheRanksOfTheHeuristics) {
  GraphBuilder b;
  const Workload workload = library_workload(b, product(b, DType::kBF16, 64, 64, 64, false, false));
  const KernelTemplate& made = cublaslt_matmul();
  ASSERT_TRUE(made.covers(workload, kHopper));
  EXPECT_FALSE(made.covers(workload, *Target::parse("cpu:x86-64-v3")));
  const auto space = made.candidates(workload, kHopper);
  ASSERT_TRUE(space);
  ASSERT_EQ(space->size(), static_cast<size_t>(kLibraryRanks));
  EXPECT_EQ((*space)[3].to_string(), "cublaslt.matmul rank=3");
  Schedule schedule = (*space)[3];
  schedule.decisions.push_back({std::string(kVersionDecision), 130100});
  const auto buildable = made.instantiate(workload, schedule, kHopper);
  ASSERT_TRUE(buildable) << buildable.error().message;
  const Artifact& artifact = std::get<Artifact>(*buildable);
  EXPECT_EQ(artifact.recipe.phases[0].call->rank, 3);
  EXPECT_EQ(artifact.recipe.phases[0].call->version, "130100");
  EXPECT_EQ(*recipe_from_json(recipe_to_json(artifact.recipe)), artifact.recipe);
  for (const char* wrong : {"cublaslt.matmul rank=8", "cublaslt.matmul rank=-1",
                            "cublaslt.matmul rank=0 version=-5", "cuda.matmul rank=0"})
    EXPECT_EQ(made.instantiate(workload, *Schedule::parse(wrong), kHopper).error().code,
              Code::kInvalidArgument)
        << wrong;
}

TEST(CublasLtMatmul, SymbolicSizesHaveTheLibrarysFirstChoiceAlone) {
  GraphBuilder b;
  const Dim rows = Dim::symbol(b.symbol({1, 4096}, 512));
  const NodeId x = b.input(DType::kBF16, {rows, 64}), w = b.input(DType::kBF16, {48, 64});
  const Workload workload = library_workload(b, b.matmul(x, b.permute(w, {1, 0})));
  const auto space = cublaslt_matmul().candidates(workload, kHopper);
  ASSERT_TRUE(space) << space.error().message;
  EXPECT_EQ(space->size(), 1u);
  EXPECT_FALSE(
      cublaslt_matmul().instantiate(workload, *Schedule::parse("cublaslt.matmul rank=1"), kHopper));
}

TEST(CublasLtMatmul, JoinsTheSearchSpaceWhereLibrariesAreTaken) {
  GraphBuilder b;
  const Workload workload = library_workload(
      b, b.cast(product(b, DType::kBF16, 512, 512, 512, false, false), DType::kBF16));
  const auto own = search_space(workload, kHopper);
  const auto all = search_space(workload, kHopper, Libraries::kTake);
  ASSERT_TRUE(own && all);
  EXPECT_EQ(all->size(), own->size() + kLibraryRanks);
  EXPECT_EQ(library_of(all->front()), "") << "of wgmma, which is expected to be as fast";
  const auto ampere = search_space(workload, *Target::parse("cuda:sm_80"), Libraries::kTake);
  ASSERT_TRUE(ampere);
  EXPECT_EQ(library_of(ampere->front()), "cublaslt") << "expected to be the fastest for halves";
  std::vector<Schedule> rest;
  for (const Schedule& schedule : *all)
    if (library_of(schedule).empty()) rest.push_back(schedule);
  EXPECT_EQ(rest, *own) << "in their own order";
  EXPECT_EQ(*all, *search_space(workload, kHopper, Libraries::kTake));

  // mma.sync is expected to reach little more than half of wgmma, but for few rows.
  const SearchSpace ranked = *ranked_space(workload, kHopper, Libraries::kTake);
  EXPECT_EQ(ranked.schedules, *all);
  EXPECT_EQ(ranked.far, std::set<std::string>{"cuda.matmul"});
  EXPECT_TRUE(ranked_space(workload, *Target::parse("cuda:sm_80"))->far.empty());
  for (const auto& [m, n] : {std::pair(16, 512), {512, 16}}) {
    GraphBuilder few;
    const Workload thin = library_workload(
        few, few.cast(product(few, DType::kBF16, m, n, 512, false, false), DType::kBF16));
    EXPECT_TRUE(ranked_space(thin, kHopper)->far.empty()) << m << " x " << n;
  }

  GraphBuilder c;
  const Workload full = library_workload(c, product(c, DType::kF32, 512, 512, 512, false, false));
  EXPECT_EQ(library_of(search_space(full, kHopper, Libraries::kTake)->front()), "")
      << "f32 is expected to take as long, and a kernel of Kiln's own comes first then";
}

}  // namespace
}  // namespace kiln
