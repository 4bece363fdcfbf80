#include "tests/compiler_core/kernels/open_workloads.h"

#include "compiler_core/ir/text.h"

namespace kiln::testing {

const char* to_string(OpenSize open) {
  return open == OpenSize::kBatch ? "batch" : "length";
}

const std::vector<OpenWorkload>& open_workloads() {
  using enum Family;
  constexpr OpenSize kBatch = OpenSize::kBatch, kLength = OpenSize::kLength;
  static const std::vector<OpenWorkload> kAll = {
      {"gelu of a batch", kPointwise, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : bf16[s0,96]
%1 = cast %0 : f32[s0,96]
%2 = erf %1 : f32[s0,96]
%3 = mul %1 %2 : f32[s0,96]
%4 = cast %3 : bf16[s0,96]
return %4
)"},
      {"embedding of tokens", kPointwise, kLength, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : f32[50,40]
%1 = input 1 : i64[2,s0]
%2 = gather %0 %1 : f32[2,s0,40]
return %2
)"},
      {"channels of three, joined", kPointwise, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : bf16[s0,32]
%1 = input 1 : bf16[s0,16]
%2 = input 2 : bf16[s0,16]
%3 = concat %0 %1 %2 axis=1 : bf16[s0,64]
return %3
)"},
      {"tokens behind a cache's", kPointwise, kLength, R"(kiln.graph 1
s0 = symbol 1..300 hint 24
%0 = input 0 : f32[3,7,40]
%1 = input 1 : f32[3,s0,40]
%2 = concat %0 %1 axis=1 : f32[3,s0 + 7,40]
return %2
)"},
      {"norm of a batch", kRowReduction, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : bf16[s0,96]
%1 = cast %0 : f32[s0,96]
%2 = mul %1 %1 : f32[s0,96]
%3 = reduce_sum %2 axes=[1] : f32[s0]
%4 = view %3 strides=[1,0] offset=[0] : f32[s0,96]
%5 = rsqrt %4 : f32[s0,96]
%6 = mul %1 %5 : f32[s0,96]
%7 = cast %6 : bf16[s0,96]
return %7
)"},
      {"softmax over the length", kRowReduction, kLength, R"(kiln.graph 1
s0 = symbol 0..3000 hint 70
%0 = input 0 : f32[9,s0]
%1 = reduce_max %0 axes=[1] : f32[9]
%2 = view %1 strides=[1,0] offset=[0] : f32[9,s0]
%3 = sub %0 %2 : f32[9,s0]
%4 = exp %3 : f32[9,s0]
%5 = reduce_sum %4 axes=[1] : f32[9]
%6 = view %5 strides=[1,0] offset=[0] : f32[9,s0]
%7 = div %4 %6 : f32[9,s0]
return %7
)"},
      {"mean over the channels", kColumnReduction, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 8
%0 = input 0 : f32[s0,12,35]
%1 = reduce_sum %0 axes=[1] : f32[s0,35]
return %1
)"},
      {"sum over the length", kColumnReduction, kLength, R"(kiln.graph 1
s0 = symbol 0..3000 hint 200
%0 = input 0 : f32[3,s0,40]
%1 = reduce_sum %0 axes=[1] : f32[3,40]
return %1
)"},
      {"projection of a batch", kMatmul, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 40
%0 = input 0 : bf16[s0,64]
%1 = input 1 : bf16[48,64]
%2 = view %1 strides=[1,64] offset=[0] : bf16[64,48]
%3 = matmul %0 %2 : f32[s0,48]
%4 = cast %3 : bf16[s0,48]
return %4
)"},
      {"scores of queries and keys", kMatmul, kLength, R"(kiln.graph 1
s0 = symbol 0..300 hint 40
%0 = input 0 : f32[s0,3,16]
%1 = view %0 strides=[16,48,1] offset=[0] : f32[3,s0,16]
%2 = input 1 : f32[s0,3,16]
%3 = view %2 strides=[16,1,48] offset=[0] : f32[3,16,s0]
%4 = matmul %1 %3 : f32[3,s0,s0]
return %4
)"},
      {"values weighted", kMatmul, kLength, R"(kiln.graph 1
s0 = symbol 0..300 hint 40
%0 = input 0 : bf16[3,s0,s0]
%1 = input 1 : bf16[s0,3,16]
%2 = view %1 strides=[16,48,1] offset=[0] : bf16[3,s0,16]
%3 = matmul %0 %2 : f32[3,s0,16]
return %3
)"},
      {"convolution of a batch", kConvolution, kBatch, R"(kiln.graph 1
s0 = symbol 0..40 hint 8
%0 = input 0 : f32[s0,6,9,11]
%1 = input 1 : f32[10,6,3,3]
%2 = convolution %0 %1 stride=[1,1] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : f32[s0,10,9,11]
return %2
)"},
      {"convolution of images of any size", kConvolution, kLength, R"(kiln.graph 1
s0 = symbol 1..150 hint 12
s1 = symbol 1..150 hint 10
%0 = input 0 : bf16[2,8,2*s0,2*s1]
%1 = input 1 : bf16[16,8,3,3]
%2 = convolution %0 %1 stride=[2,2] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : f32[2,16,s0,s1]
%3 = cast %2 : bf16[2,16,s0,s1]
return %3
)"},
      {"running sum of a batch", kScan, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : f32[s0,50]
%1 = scan_sum %0 axis=1 : f32[s0,50]
return %1
)"},
      {"running sum over the length", kScan, kLength, R"(kiln.graph 1
s0 = symbol 0..9000 hint 3000
%0 = input 0 : f32[2,s0]
%1 = scan_sum %0 axis=1 : f32[2,s0]
return %1
)"},
      {"order of a batch", kSort, kBatch, R"(kiln.graph 1
s0 = symbol 0..300 hint 24
%0 = input 0 : f32[s0,50]
%1 = argsort %0 descending=1 : i64[s0,50]
return %1
)"},
      {"order of a length", kSort, kLength, R"(kiln.graph 1
s0 = symbol 0..9000 hint 300
%0 = input 0 : f32[2,s0]
%1 = argsort %0 descending=0 : i64[2,s0]
return %1
)"},
      {"cache of a batch", kScatter, kBatch, R"(kiln.graph 1
s0 = symbol 0..3000 hint 300
%0 = input 0 : f32[70,24]
%1 = input 1 : i64[s0]
%2 = input 2 : f32[s0,24]
%3 = scatter %0 %1 %2 combine=add : f32[70,24]
return %3
)"},
      {"cache of a length", kScatter, kLength, R"(kiln.graph 1
s0 = symbol 1..9000 hint 300
%0 = input 0 : f32[s0,24]
%1 = input 1 : i64[40]
%2 = input 2 : f32[40,24]
%3 = scatter %0 %1 %2 combine=set : f32[s0,24]
return %3
)"},
      {"attention of a batch", kAttention, kBatch, R"(kiln.graph 1
s0 = symbol 0..40 hint 4
%0 = input 0 : bf16[s0,33,32]
%1 = input 1 : bf16[s0,33,32]
%2 = view %1 strides=[1056,1,32] offset=[0] : bf16[s0,32,33]
%3 = matmul %0 %2 : f32[s0,33,33]
%4 = reduce_max %3 axes=[2] : f32[s0,33]
%5 = view %4 strides=[33,1,0] offset=[0] : f32[s0,33,33]
%6 = sub %3 %5 : f32[s0,33,33]
%7 = exp %6 : f32[s0,33,33]
%8 = reduce_sum %7 axes=[2] : f32[s0,33]
%9 = view %8 strides=[33,1,0] offset=[0] : f32[s0,33,33]
%10 = div %7 %9 : f32[s0,33,33]
%11 = cast %10 : bf16[s0,33,33]
%12 = input 2 : bf16[s0,33,32]
%13 = matmul %11 %12 : f32[s0,33,32]
%14 = cast %13 : bf16[s0,33,32]
return %14
)"},
      {"causal attention of a length", kAttention, kLength, R"(kiln.graph 1
s0 = symbol 1..500 hint 70
%0 = input 0 : f32[2,s0,32]
%1 = input 1 : f32[2,s0,32]
%2 = view %1 strides=[32*s0,1,32] offset=[0] : f32[2,32,s0]
%3 = matmul %0 %2 : f32[2,s0,s0]
%4 = iota : i64[s0]
%5 = view %4 strides=[0,0,1] offset=[0] : i64[2,s0,s0]
%6 = view %4 strides=[0,1,0] offset=[0] : i64[2,s0,s0]
%7 = le %5 %6 : bool[2,s0,s0]
%8 = constant -inf : f32[]
%9 = view %8 strides=[0,0,0] offset=[0] : f32[2,s0,s0]
%10 = select %7 %3 %9 : f32[2,s0,s0]
%11 = reduce_max %10 axes=[2] : f32[2,s0]
%12 = view %11 strides=[s0,1,0] offset=[0] : f32[2,s0,s0]
%13 = sub %10 %12 : f32[2,s0,s0]
%14 = exp %13 : f32[2,s0,s0]
%15 = reduce_sum %14 axes=[2] : f32[2,s0]
%16 = view %15 strides=[s0,1,0] offset=[0] : f32[2,s0,s0]
%17 = div %14 %16 : f32[2,s0,s0]
%18 = input 2 : f32[2,s0,32]
%19 = matmul %17 %18 : f32[2,s0,32]
return %19
)"},
      {"causal attention of halves of a length", kAttention, kLength, R"(kiln.graph 1
s0 = symbol 0..2000 hint 150
%0 = input 0 : bf16[s0,2,64]
%1 = view %0 strides=[64,128,1] offset=[0] : bf16[2,s0,64]
%2 = input 1 : bf16[s0,2,64]
%3 = view %2 strides=[64,1,128] offset=[0] : bf16[2,64,s0]
%4 = matmul %1 %3 : f32[2,s0,s0]
%5 = constant 0.125 : f32[]
%6 = view %5 strides=[0,0,0] offset=[0] : f32[2,s0,s0]
%7 = mul %4 %6 : f32[2,s0,s0]
%8 = iota : i64[s0]
%9 = view %8 strides=[0,0,1] offset=[0] : i64[2,s0,s0]
%10 = view %8 strides=[0,1,0] offset=[0] : i64[2,s0,s0]
%11 = le %9 %10 : bool[2,s0,s0]
%12 = constant -inf : f32[]
%13 = view %12 strides=[0,0,0] offset=[0] : f32[2,s0,s0]
%14 = select %11 %7 %13 : f32[2,s0,s0]
%15 = reduce_max %14 axes=[2] : f32[2,s0]
%16 = view %15 strides=[s0,1,0] offset=[0] : f32[2,s0,s0]
%17 = sub %14 %16 : f32[2,s0,s0]
%18 = exp %17 : f32[2,s0,s0]
%19 = reduce_sum %18 axes=[2] : f32[2,s0]
%20 = view %19 strides=[s0,1,0] offset=[0] : f32[2,s0,s0]
%21 = div %18 %20 : f32[2,s0,s0]
%22 = cast %21 : bf16[2,s0,s0]
%23 = input 2 : bf16[s0,2,64]
%24 = view %23 strides=[64,128,1] offset=[0] : bf16[2,s0,64]
%25 = matmul %22 %24 : f32[2,s0,64]
%26 = cast %25 : bf16[2,s0,64]
return %26
)"},
      {"gates of a batch", kProducts, kBatch, R"(kiln.graph 1
s0 = symbol 0..3000 hint 200
%0 = input 0 : bf16[s0,72]
%1 = input 1 : bf16[160,72]
%2 = view %1 strides=[1,72] offset=[0] : bf16[72,160]
%3 = matmul %0 %2 : f32[s0,160]
%4 = tanh %3 : f32[s0,160]
%5 = input 2 : bf16[160,72]
%6 = view %5 strides=[1,72] offset=[0] : bf16[72,160]
%7 = matmul %0 %6 : f32[s0,160]
%8 = mul %4 %7 : f32[s0,160]
%9 = cast %8 : bf16[s0,160]
return %9
)"},
  };
  return kAll;
}

Result<Workload> workload_of(const OpenWorkload& open) {
  TRY(const Graph graph, parse_graph(open.graph));
  TRY(WorkloadBinding made, make_workload(graph));
  return std::move(made.workload);
}

}  // namespace kiln::testing
