// Every schedule of scans, sorts, scatters and random values through the real NVRTC: what no GPU is
// needed to notice. Skipped where there is no NVRTC.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/plan/workload.h"
#include "tests/compiler_core/compile/in_registers.h"

namespace kiln {
namespace {

Graph scan(DType dtype, Shape shape, int axis) {
  GraphBuilder b;
  return *b.finish({b.scan_sum(b.input(dtype, std::move(shape)), axis)});
}
Graph sort(DType dtype, Shape shape) {
  GraphBuilder b;
  return *b.finish({b.argsort(b.input(dtype, std::move(shape)), size_of(dtype) > 2)});
}
Graph scatter(DType dtype, Combine combine, int64_t rows, int64_t row, int64_t count) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, {rows, row}), index = b.input(DType::kI64, {count});
  return *b.finish({b.scatter(x, index, b.input(dtype, {count, row}), combine)});
}
Graph dropout(DType dtype) {
  GraphBuilder b;
  const Shape shape = {4096, 768};
  const NodeId seed = b.input(DType::kI64, {}), x = b.input(dtype, shape);
  const NodeId uniform = b.cast(b.philox(seed, shape, 1), DType::kF32);
  const NodeId keeps =
      b.binary(Op::kLe, b.broadcast(b.constant(DType::kF32, 0x1p30), shape), uniform);
  const NodeId kept = b.binary(Op::kMul, b.cast(x, DType::kF32), b.cast(keeps, DType::kF32));
  return *b.finish({b.cast(kept, dtype), keeps});
}

std::vector<Graph> graphs() {
  std::vector<Graph> all;
  all.push_back(scan(DType::kF32, {3, 100003}, 1));
  all.push_back(scan(DType::kI64, {64, 128}, 1));
  all.push_back(scan(DType::kF64, {2000, 70}, 0));
  all.push_back(scan(DType::kI8, {7, 301, 33}, 1));
  for (const DType dtype : {DType::kF32, DType::kF64, DType::kBF16, DType::kBool}) {
    all.push_back(sort(dtype, {100000}));
    all.push_back(sort(dtype, {300, 50}));
  }
  all.push_back(scatter(DType::kF32, Combine::kAdd, 50257, 768, 8192));
  all.push_back(scatter(DType::kBF16, Combine::kMul, 1000, 130, 5000));
  all.push_back(scatter(DType::kF16, Combine::kSet, 1000, 64, 100));
  all.push_back(scatter(DType::kI8, Combine::kMax, 100000, 1, 70000));
  all.push_back(scatter(DType::kF64, Combine::kMin, 10, 3, 5));
  all.push_back(scatter(DType::kBool, Combine::kSet, 10, 16, 500));
  all.push_back(dropout(DType::kF32));
  all.push_back(dropout(DType::kBF16));
  return all;
}

class AloneCandidates : public ::testing::TestWithParam<const char*> {};

TEST_P(AloneCandidates, CompileAndStayInRegisters) {
  const auto nvrtc = Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  Target target = *Target::parse(GetParam());
  target.units = target.isa == "sm_80" ? 108 : 132;
  for (const Graph& graph : graphs()) {
    const auto made = make_workload(graph);
    ASSERT_TRUE(made.has_value()) << made.error().message;
    const auto space = search_space(made->workload, target);
    ASSERT_TRUE(space.has_value()) << space.error().message;
    for (const Schedule& schedule : *space) {
      const std::string name = print(made->workload.graph) + schedule.to_string() + ": ";
      const auto source = lower_to_source(made->workload, schedule, target);
      ASSERT_TRUE(source.has_value()) << name << source.error().message;
      testing::expect_in_registers(*nvrtc, *source, target, name);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Targets, AloneCandidates, ::testing::Values("cuda:sm_80", "cuda:sm_90a"),
                         [](const auto& test) { return std::string(test.param).substr(5); });

}  // namespace
}  // namespace kiln
