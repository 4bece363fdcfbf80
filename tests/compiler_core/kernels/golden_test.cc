// The generated text of a few kernels, as a person would review it: tests/golden/NAME.cc.golden,
// and NAME.cu.golden for CUDA.
// After a deliberate change, KILN_UPDATE_GOLDEN=1 in this test's environment rewrites them; read
// the diff.
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler_core/base/file.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/registry.h"

namespace kiln {
namespace {

struct Golden {
  const char* name;
  const char* schedule;
  const char* graph;
  const char* target = "cpu:x86-64-v4";
};

constexpr Golden kGoldens[] = {
    {"sincos_broadcast", "cpu.pointwise lanes=16 unroll=2 block=4096 stream=0", R"(kiln.graph 1
%0 = input 0 : f32[24]
%1 = view %0 strides=[0,1] offset=[0] : f32[6,24]
%2 = sin %1 : f32[6,24]
%3 = input 1 : f32[6]
%4 = view %3 strides=[1,0] offset=[0] : f32[6,24]
%5 = cos %4 : f32[6,24]
%6 = add %2 %5 : f32[6,24]
return %6
)"},
    {"rotated_halves", "cpu.pointwise lanes=16 unroll=1 block=4096 stream=0", R"(kiln.graph 1
%0 = input 0 : f32[512]
%1 = view %0 strides=[64,1] offset=[32] : f32[8,32]
%2 = neg %1 : f32[8,32]
%3 = view %0 strides=[64,1] offset=[0] : f32[8,32]
%4 = concat %2 %3 axis=1 : f32[8,64]
return %4
)"},
    {"softmax_bf16", "cpu.row_reduction lanes=16 unroll=2 rows=1 keep=1 stream=0 split=1",
     R"(kiln.graph 1
%0 = input 0 : bf16[37,515]
%1 = cast %0 : f32[37,515]
%2 = reduce_max %1 axes=[1] : f32[37]
%3 = view %2 strides=[1,0] offset=[0] : f32[37,515]
%4 = sub %1 %3 : f32[37,515]
%5 = exp %4 : f32[37,515]
%6 = reduce_sum %5 axes=[1] : f32[37]
%7 = view %6 strides=[1,0] offset=[0] : f32[37,515]
%8 = div %5 %7 : f32[37,515]
%9 = cast %8 : bf16[37,515]
return %9
)"},
    {"column_sum_split", "cpu.column_reduction lanes=16 vectors=1 unroll=4 keep=0 split=8",
     R"(kiln.graph 1
%0 = input 0 : f32[1024,512]
%1 = reduce_sum %0 axes=[0] : f32[512]
return %1
)"},
    {"column_max_slabs", "cpu.column_reduction lanes=16 vectors=2 unroll=2 keep=0 split=0",
     R"(kiln.graph 1
%0 = input 0 : f32[129,40]
%1 = reduce_max %0 axes=[0] : f32[40]
return %1
)"},
    // With sizes that are known only at run time.
    {"symbolic_relu", "cpu.pointwise lanes=16 unroll=2 block=4096 stream=0", R"(kiln.graph 1
s0 = symbol 1..4096 hint 24
%0 = input 0 : f32[s0,24]
%1 = input 1 : f32[24]
%2 = view %1 strides=[0,1] offset=[0] : f32[s0,24]
%3 = add %0 %2 : f32[s0,24]
return %3
)"},
    {"symbolic_rows", "cpu.row_reduction lanes=16 unroll=2 rows=4 keep=0 stream=0 split=1",
     R"(kiln.graph 1
s0 = symbol 0..4096 hint 7
s1 = symbol 0..4096 hint 13
%0 = input 0 : f32[s0,s1]
%1 = reduce_max %0 axes=[1] : f32[s0]
%2 = view %1 strides=[1,0] offset=[0] : f32[s0,s1]
%3 = sub %0 %2 : f32[s0,s1]
return %3
)"},
    {"symbolic_column_split", "cpu.column_reduction lanes=16 vectors=1 unroll=4 keep=0 split=8",
     R"(kiln.graph 1
s0 = symbol 1..100000 hint 1024
%0 = input 0 : f32[s0,512]
%1 = reduce_sum %0 axes=[0] : f32[512]
return %1
)"},
    // On CUDA.
    {"cuda_softmax_rows", "cuda.row_reduction lanes=4 threads=64 storage=1 stream=1",
     R"(kiln.graph 1
%0 = input 0 : f32[37,512]
%1 = reduce_max %0 axes=[1] : f32[37]
%2 = view %1 strides=[1,0] offset=[0] : f32[37,512]
%3 = sub %0 %2 : f32[37,512]
%4 = exp %3 : f32[37,512]
%5 = reduce_sum %4 axes=[1] : f32[37]
%6 = view %5 strides=[1,0] offset=[0] : f32[37,512]
%7 = div %4 %6 : f32[37,512]
return %7
)",
     "cuda:sm_90a"},
    {"cuda_bias_rows", "cuda.pointwise lanes=4 threads=256 unroll=2 map=2", R"(kiln.graph 1
%0 = input 0 : f32[4096,1024]
%1 = input 1 : f32[1024]
%2 = view %1 strides=[0,1] offset=[0] : f32[4096,1024]
%3 = add %0 %2 : f32[4096,1024]
return %3
)",
     "cuda:sm_90a"},
    {"cuda_odd_rows", "cuda.pointwise lanes=8 threads=256 unroll=1 map=1", R"(kiln.graph 1
%0 = input 0 : bf16[1000,1021]
%1 = input 1 : bf16[1021]
%2 = view %1 strides=[0,1] offset=[0] : bf16[1000,1021]
%3 = cast %0 : f32[1000,1021]
%4 = cast %2 : f32[1000,1021]
%5 = mul %3 %4 : f32[1000,1021]
%6 = cast %5 : bf16[1000,1021]
return %6
)",
     "cuda:sm_90a"},
    {"cuda_transpose", "cuda.pointwise lanes=4 threads=256 tile=32 stream=1", R"(kiln.graph 1
%0 = input 0 : f32[262144]
%1 = view %0 strides=[1,512] offset=[0] : f32[512,512]
%2 = input 1 : f32[512,512]
%3 = add %1 %2 : f32[512,512]
return %3
)",
     "cuda:sm_90a"},
    {"cuda_column_sum_split",
     "cuda.column_reduction lanes=4 across=32 down=8 unroll=4 split=33 keep=0",
     R"(kiln.graph 1
%0 = input 0 : f32[16384,4096]
%1 = reduce_sum %0 axes=[0] : f32[4096]
return %1
)",
     "cuda:sm_90a"},
    {"cuda_column_softmax_kept",
     "cuda.column_reduction lanes=2 across=8 down=32 unroll=1 split=0 keep=1",
     R"(kiln.graph 1
%0 = input 0 : f32[120,50]
%1 = reduce_max %0 axes=[0] : f32[50]
%2 = view %1 strides=[0,1] offset=[0] : f32[120,50]
%3 = sub %0 %2 : f32[120,50]
%4 = exp %3 : f32[120,50]
%5 = reduce_sum %4 axes=[0] : f32[50]
%6 = view %5 strides=[0,1] offset=[0] : f32[120,50]
%7 = div %4 %6 : f32[120,50]
return %7
)",
     "cuda:sm_90a"},
    {"cuda_peeled_rows",
     "cuda.row_reduction lanes=8 threads=128 rows=1 cluster=1 storage=0 stream=1 blocks=4",
     R"(kiln.graph 1
%0 = input 0 : f16[9,2003]
%1 = input 1 : f16[2003]
%2 = view %1 strides=[0,1] offset=[0] : f16[9,2003]
%3 = cast %0 : f32[9,2003]
%4 = cast %2 : f32[9,2003]
%5 = reduce_max %3 axes=[1] : f32[9]
%6 = view %5 strides=[1,0] offset=[0] : f32[9,2003]
%7 = sub %3 %6 : f32[9,2003]
%8 = mul %7 %4 : f32[9,2003]
%9 = cast %8 : f16[9,2003]
return %9
)",
     "cuda:sm_90a"}};

class GoldenSource : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenSource, IsWhatWasReviewed) {
  const Golden& golden = GetParam();
  const Graph graph = *parse_graph(golden.graph);
  const Schedule schedule = *Schedule::parse(golden.schedule);
  const auto source =
      lower_to_source({graph, *classify(graph), {}}, schedule, *Target::parse(golden.target));
  ASSERT_TRUE(source) << source.error().message;
  // The vocabulary in front of the kernel is the templates themselves.
  const std::string text = source->text.substr(source->text.find("// ---- The kernel."));
  const bool cuda = Target::parse(golden.target)->backend == Backend::kCuda;
  const Path path = Path(KILN_SOURCE_DIR) / "tests/golden" /
                    (golden.name + std::string(cuda ? ".cu.golden" : ".cc.golden"));
  if (std::getenv("KILN_UPDATE_GOLDEN") != nullptr) {
    ASSERT_TRUE(write_file(path, text));
  }
  const auto reviewed = read_file(path);
  ASSERT_TRUE(reviewed) << reviewed.error().message;
  EXPECT_EQ(text, *reviewed) << "KILN_UPDATE_GOLDEN=1 rewrites " << path;
}

INSTANTIATE_TEST_SUITE_P(Kernels, GoldenSource, ::testing::ValuesIn(kGoldens),
                         [](const auto& test) { return std::string(test.param.name); });

TEST(Lower, SameInputsGiveTheSameText) {
  const Graph graph = *parse_graph(kGoldens[0].graph);
  const Schedule schedule = *Schedule::parse(kGoldens[0].schedule);
  const Target target = *Target::parse("cpu:x86-64-v4");
  EXPECT_EQ(lower_to_source({graph, *classify(graph), {}}, schedule, target)->text,
            lower_to_source({graph, *classify(graph), {}}, schedule, target)->text);
}

TEST(Lower, RefusesAnotherFamilysSchedule) {
  const Graph graph = *parse_graph(kGoldens[0].graph);
  const auto source =
      lower_to_source({graph, Family::kPointwise, {}}, *Schedule::parse("cpu.row_reduction"),
                      *Target::parse("cpu:x86-64-v4"));
  ASSERT_FALSE(source);
  EXPECT_EQ(source.error().code, Code::kInvalidArgument);
}

TEST(Lower, RefusesAnIsaItHasNoKernelsFor) {
  const Graph graph = *parse_graph(kGoldens[0].graph);
  for (const char* name : {"cpu:x86-64-v2", "cuda:sm_75"}) {
    const auto source = lower_to_source({graph, Family::kPointwise, {}},
                                        *Schedule::parse("cpu.pointwise"), *Target::parse(name));
    ASSERT_FALSE(source);
    EXPECT_EQ(source.error().code, Code::kUnsupported);
  }
}

TEST(Lower, RefusesDecisionsOutOfRange) {
  const Graph graph = *parse_graph(kGoldens[0].graph);
  for (const char* text :
       {"cpu.pointwise lanes=3", "cpu.pointwise lanes=-8", "cpu.pointwise unroll=0",
        "cpu.pointwise unroll=1000000", "cpu.pointwise block=1"}) {
    const auto source = lower_to_source({graph, Family::kPointwise, {}}, *Schedule::parse(text),
                                        *Target::parse("cpu:x86-64-v3"));
    ASSERT_FALSE(source) << text;
    EXPECT_EQ(source.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kiln
