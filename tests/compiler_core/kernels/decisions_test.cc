// The codec of schedules by field list.
#include "compiler_core/kernels/decisions.h"

#include <gtest/gtest.h>

#include "compiler_core/kernels/column_reduction/cpu_column_reduction.h"
#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"
#include "compiler_core/kernels/matmul/cpu_matmul.h"
#include "compiler_core/kernels/row_reduction/cpu_row_reduction.h"
#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"

namespace kiln {
namespace {

// What a schedule of the template that decides nothing is written as.
template <class Decisions>
std::string usual() {
  return to_schedule(*decisions_of<Decisions>({std::string(Decisions::kTemplate), {}})).to_string();
}

template <class Decisions>
std::string refusal(const char* text) {
  const auto made = decisions_of<Decisions>(*Schedule::parse(text));
  if (made) return "";
  EXPECT_EQ(made.error().code, Code::kInvalidArgument);
  return made.error().message;
}

TEST(Decisions, WhatALackingDecisionMeansIsPersisted) {
  EXPECT_EQ(usual<CpuMatmulSchedule>(),
            "cpu.matmul lanes=8 dot=0 mr=4 nr=16 kc=256 mc=96 nc=256 b_from=1 rows_first=1 "
            "a_packed=1");
  EXPECT_EQ(usual<CpuRowReductionSchedule>(),
            "cpu.row_reduction lanes=8 unroll=1 rows=1 keep=0 stream=0 split=1");
  EXPECT_EQ(usual<CpuColumnReductionSchedule>(),
            "cpu.column_reduction lanes=8 vectors=1 unroll=1 keep=0 split=0");
  EXPECT_EQ(usual<CudaRowReductionSchedule>(),
            "cuda.row_reduction lanes=1 threads=128 rows=1 cluster=1 storage=2 vectors=1 keep=0 "
            "stream=0 blocks=1 split=1 walk=0");
  EXPECT_EQ(usual<CudaColumnReductionSchedule>(),
            "cuda.column_reduction lanes=1 across=32 down=8 unroll=1 split=0 keep=0 cluster=1 "
            "copy=0");
}

TEST(Decisions, ARefusalNamesTheDecisionThatIsOutOfRange) {
  const auto refused = refusal<CpuRowReductionSchedule>;
  EXPECT_EQ(refused("cpu.row_reduction lanes=8 unroll=17"),
            "unroll is out of range: cpu.row_reduction lanes=8 unroll=17");
  EXPECT_EQ(refused("cpu.row_reduction lanes=12"),
            "lanes is out of range: cpu.row_reduction lanes=12");
  EXPECT_EQ(refused("cpu.row_reduction stream=2"),
            "stream is out of range: cpu.row_reduction stream=2");
  EXPECT_EQ(refused("cpu.scan"), "not a schedule of cpu.row_reduction: cpu.scan");
  EXPECT_EQ(refusal<CpuMatmulSchedule>("cpu.matmul nr=20"),
            "decisions that do not go together: cpu.matmul nr=20");
}

}  // namespace
}  // namespace kiln
