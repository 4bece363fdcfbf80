// Graphs of which every candidate is compiled, beside the archived programs (every_candidate_test.cc).
#pragma once

#include <vector>

#include "compiler_core/ir/builder.h"
#include "tests/compiler_core/kernels/attention_graphs.h"
#include "tests/compiler_core/plan/rms_norm_graphs.h"

namespace kiln::testing {

// Workloads that no archived program happens to have.
inline constexpr const char* kOddGraphs[] = {
    R"(kiln.graph 1
%0 = input 0 : f32[3000,129]
%1 = reduce_prod %0 axes=[1] : f32[3000]
%2 = input 1 : f64[3000,129]
%3 = reduce_prod %2 axes=[0] : f64[129]
return %1 %3
)",
    R"(kiln.graph 1
%0 = input 0 : f64[500,5003]
%1 = reduce_max %0 axes=[1] : f64[500]
%2 = view %1 strides=[1,0] offset=[0] : f64[500,5003]
%3 = sub %0 %2 : f64[500,5003]
%4 = exp %3 : f64[500,5003]
%5 = reduce_sum %4 axes=[1] : f64[500]
%6 = view %5 strides=[1,0] offset=[0] : f64[500,5003]
%7 = div %4 %6 : f64[500,5003]
return %7
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[1000,4100]
%1 = view %0 strides=[1,4100] offset=[0] : bf16[4100,1000]
%2 = cast %1 : f32[4100,1000]
%3 = tanh %2 : f32[4100,1000]
%4 = reduce_sum %3 axes=[1] : f32[4100]
%5 = view %4 strides=[1,0] offset=[0] : f32[4100,1000]
%6 = div %3 %5 : f32[4100,1000]
%7 = cast %6 : f16[4100,1000]
return %7 %4
)",
    R"(kiln.graph 1
%0 = input 0 : i64[3000,129]
%1 = reduce_sum %0 axes=[1] : i64[3000]
%2 = reduce_min %0 axes=[1] : i64[3000]
%3 = input 1 : i64[3000]
%4 = view %0 strides=[1] offset=[0] : i64[387000]
%5 = gather %4 %3 : i64[3000]
%6 = add %5 %1 : i64[3000]
return %6 %2
)",
    R"(kiln.graph 1
%0 = input 0 : f32[4099,1021]
%1 = view %0 strides=[1,1021] offset=[0] : f32[1021,4099]
%2 = tan %1 : f32[1021,4099]
return %2
)",
    R"(kiln.graph 1
%0 = input 0 : f64[3000,1001]
%1 = input 1 : f64[1001]
%2 = view %1 strides=[0,1] offset=[0] : f64[3000,1001]
%3 = pow %0 %2 : f64[3000,1001]
%4 = sin %0 : f64[3000,1001]
%5 = atan2 %3 %4 : f64[3000,1001]
return %5
)",
    R"(kiln.graph 1
%0 = input 0 : i64[77,130]
%1 = input 1 : i64[77,130]
%2 = div %0 %1 : i64[77,130]
%3 = rem %2 %1 : i64[77,130]
return %3
)",
    R"(kiln.graph 1
%0 = input 0 : u8[1048577]
%1 = cast %0 : f32[1048577]
%2 = erf %1 : f32[1048577]
%3 = cast %2 : f16[1048577]
return %3
)",
    R"(kiln.graph 1
%0 = input 0 : f32[8192,1024]
%1 = constant 0x1p-13 : f32[]
%2 = view %1 strides=[0] offset=[0] : f32[1024]
%3 = reduce_sum %0 axes=[0] : f32[1024]
%4 = mul %3 %2 : f32[1024]
%5 = view %4 strides=[0,1] offset=[0] : f32[8192,1024]
%6 = sub %0 %5 : f32[8192,1024]
%7 = mul %6 %6 : f32[8192,1024]
%8 = reduce_sum %7 axes=[0] : f32[1024]
%9 = mul %8 %2 : f32[1024]
%10 = sqrt %9 : f32[1024]
%11 = view %10 strides=[0,1] offset=[0] : f32[8192,1024]
%12 = div %6 %11 : f32[8192,1024]
return %12 %4 %9
)",
    R"(kiln.graph 1
%0 = input 0 : f64[5000,514]
%1 = sin %0 : f64[5000,514]
%2 = reduce_sum %1 axes=[0] : f64[514]
%3 = reduce_max %0 axes=[0] : f64[514]
return %2 %3
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[64,200,768]
%1 = cast %0 : f32[64,200,768]
%2 = reduce_sum %1 axes=[1] : f32[64,768]
%3 = view %2 strides=[768,0,1] offset=[0] : f32[64,200,768]
%4 = sub %1 %3 : f32[64,200,768]
%5 = exp %4 : f32[64,200,768]
%6 = reduce_sum %5 axes=[1] : f32[64,768]
%7 = view %6 strides=[768,0,1] offset=[0] : f32[64,200,768]
%8 = div %5 %7 : f32[64,200,768]
%9 = cast %8 : bf16[64,200,768]
return %9
)",
    R"(kiln.graph 1
%0 = input 0 : f32[2043,2047]
%1 = input 1 : f32[2043,2045]
%2 = view %0 strides=[1,2047] offset=[0] : f32[2047,2043]
%3 = matmul %2 %1 : f32[2047,2045]
return %3
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[4099,40001]
%1 = input 1 : bf16[33333,4099]
%2 = view %0 strides=[1,40001] offset=[0] : bf16[40001,4099]
%3 = view %1 strides=[1,4099] offset=[0] : bf16[4099,33333]
%4 = matmul %2 %3 : f32[40001,33333]
%5 = cast %4 : bf16[40001,33333]
return %5
)",
    R"(kiln.graph 1
s0 = symbol 0..9223372036854775807 hint 2000
s1 = symbol 0..100000 hint 300
%0 = input 0 : bf16[s0,s1,64]
%1 = cast %0 : f32[s0,s1,64]
%2 = reduce_sum %1 axes=[1] : f32[s0,64]
%3 = reduce_max %0 axes=[2] : bf16[s0,s1]
%4 = tanh %1 : f32[s0,s1,64]
return %2 %3 %4
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[32,96,28,28]
%1 = input 1 : bf16[256,96,3,3]
%2 = convolution %0 %1 stride=[2,2] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : f32[32,256,14,14]
%3 = cast %2 : bf16[32,256,14,14]
%4 = input 2 : bf16[512,256,3,3]
%5 = convolution %3 %4 stride=[2,2] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : f32[32,512,7,7]
%6 = cast %5 : bf16[32,512,7,7]
%7 = input 3 : bf16[512,512,3,3]
%8 = convolution %6 %7 stride=[1,1] dilation=[1,1] low=[1,1] high=[1,1] groups=1 : f32[32,512,7,7]
%9 = cast %8 : bf16[32,512,7,7]
return %9
)",
    R"(kiln.graph 1
%0 = input 0 : i64[77,1000]
%1 = input 1 : i64[1000,99]
%2 = matmul %0 %1 : i64[77,99]
return %2
)"};

// Products of halves with weights that are read as they are stored, in 8 bits (plan/dequantised.h).
inline constexpr const char* kWeightGraphs[] = {
    R"(kiln.graph 1
%0 = input 0 : bf16[1,4096]
%1 = input 1 : bf16[14336]
%2 = view %1 strides=[0,1] offset=[0] : bf16[4096,14336]
%3 = cast %2 : f32[4096,14336]
%4 = input 2 : i8[58720256]
%5 = view %4 strides=[1,4096] offset=[0] : i8[4096,14336]
%6 = cast %5 : f32[4096,14336]
%7 = mul %3 %6 : f32[4096,14336]
%8 = cast %7 : bf16[4096,14336]
%9 = matmul %0 %8 : f32[1,14336]
%10 = cast %9 : bf16[1,14336]
return %10
)",
    R"(kiln.graph 1
%0 = input 0 : f16[64,4096]
%1 = input 1 : f16[14336,128,1]
%2 = view %1 strides=[128,1,0] offset=[0] : f16[14336,128,32]
%3 = view %2 strides=[1,4096] offset=[0] : f16[4096,14336]
%4 = cast %3 : f32[4096,14336]
%5 = input 2 : u8[14336,4096]
%6 = view %5 strides=[1,4096] offset=[0] : u8[4096,14336]
%7 = cast %6 : f32[4096,14336]
%8 = input 3 : u8[14336,128,1]
%9 = view %8 strides=[128,1,0] offset=[0] : u8[14336,128,32]
%10 = view %9 strides=[1,4096] offset=[0] : u8[4096,14336]
%11 = cast %10 : f32[4096,14336]
%12 = sub %7 %11 : f32[4096,14336]
%13 = mul %4 %12 : f32[4096,14336]
%14 = cast %13 : f16[4096,14336]
%15 = matmul %0 %14 : f32[64,14336]
%16 = cast %15 : f16[64,14336]
return %16
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[2048,4096]
%1 = input 1 : i8[4096,4096]
%2 = view %1 strides=[1,4096] offset=[0] : i8[4096,4096]
%3 = cast %2 : f32[4096,4096]
%4 = input 2 : i8[4096,64,1]
%5 = view %4 strides=[64,1,0] offset=[0] : i8[4096,64,64]
%6 = view %5 strides=[1,4096] offset=[0] : i8[4096,4096]
%7 = cast %6 : f32[4096,4096]
%8 = sub %3 %7 : f32[4096,4096]
%9 = input 3 : bf16[4096,64,1]
%10 = view %9 strides=[64,1,0] offset=[0] : bf16[4096,64,64]
%11 = view %10 strides=[1,4096] offset=[0] : bf16[4096,4096]
%12 = cast %11 : f32[4096,4096]
%13 = mul %8 %12 : f32[4096,4096]
%14 = cast %13 : bf16[4096,4096]
%15 = matmul %0 %14 : f32[2048,4096]
%16 = cast %15 : bf16[2048,4096]
return %16
)",
    // In the words of ATen's kernels.
    R"(kiln.graph 1
%0 = input 0 : bf16[16,4096]
%1 = input 1 : bf16[32,14336,2]
%2 = view %1 strides=[2,28672,0] offset=[0] : bf16[14336,32,128]
%3 = view %2 strides=[1,4096] offset=[0] : bf16[4096,14336]
%4 = cast %3 : f32[4096,14336]
%5 = view %1 strides=[2,28672,0] offset=[1] : bf16[14336,32,128]
%6 = view %5 strides=[1,4096] offset=[0] : bf16[4096,14336]
%7 = cast %6 : f32[4096,14336]
%8 = input 2 : i32[1792,32,32,4]
%9 = view %8 strides=[4096,16,128,1,0,4,0] offset=[0] : i32[1792,8,32,4,4,4,2]
%10 = view %9 strides=[1,4096] offset=[0] : i32[4096,14336]
%11 = cast %10 : i64[4096,14336]
%12 = constant 4294967295 : i64[]
%13 = view %12 strides=[0,0] offset=[0] : i64[4096,14336]
%14 = and %11 %13 : i64[4096,14336]
%15 = constant 16 : i64[]
%16 = view %15 strides=[0,0] offset=[0] : i64[4096,14336]
%17 = iota : i64[8]
%18 = view %17 strides=[0,0,0,0,1,0,4] offset=[0] : i64[1792,8,32,4,4,4,2]
%19 = view %18 strides=[1,4096] offset=[0] : i64[4096,14336]
%20 = pow %16 %19 : i64[4096,14336]
%21 = div %14 %20 : i64[4096,14336]
%22 = constant 15 : i64[]
%23 = view %22 strides=[0,0] offset=[0] : i64[4096,14336]
%24 = and %21 %23 : i64[4096,14336]
%25 = cast %24 : u8[4096,14336]
%26 = cast %25 : f32[4096,14336]
%27 = constant -0x1p+3 : f32[]
%28 = view %27 strides=[0,0] offset=[0] : f32[4096,14336]
%29 = add %26 %28 : f32[4096,14336]
%30 = mul %4 %29 : f32[4096,14336]
%31 = add %7 %30 : f32[4096,14336]
%32 = cast %31 : bf16[4096,14336]
%33 = matmul %0 %32 : f32[16,14336]
%34 = cast %33 : bf16[16,14336]
return %34
)",
    // Two in a byte: zeros subtracted, and something added behind the scale.
    R"(kiln.graph 1
%0 = input 0 : bf16[1,4096]
%1 = input 1 : u8[14336,2048]
%2 = view %1 strides=[2048,1,0] offset=[0] : u8[14336,2048,1]
%3 = constant 15 : u8[]
%4 = view %3 strides=[0,0,0] offset=[0] : u8[14336,2048,1]
%5 = and %2 %4 : u8[14336,2048,1]
%6 = constant 16 : u8[]
%7 = view %6 strides=[0,0,0] offset=[0] : u8[14336,2048,1]
%8 = div %2 %7 : u8[14336,2048,1]
%9 = concat %5 %8 axis=2 : u8[14336,2048,2]
%10 = view %9 strides=[1,4096] offset=[0] : u8[4096,14336]
%11 = cast %10 : f32[4096,14336]
%12 = input 2 : u8[14336,32,1]
%13 = view %12 strides=[32,1,0] offset=[0] : u8[14336,32,128]
%14 = view %13 strides=[1,4096] offset=[0] : u8[4096,14336]
%15 = cast %14 : f32[4096,14336]
%16 = input 3 : bf16[14336,32,1]
%17 = view %16 strides=[32,1,0] offset=[0] : bf16[14336,32,128]
%18 = view %17 strides=[1,4096] offset=[0] : bf16[4096,14336]
%19 = cast %18 : f32[4096,14336]
%20 = sub %11 %15 : f32[4096,14336]
%21 = mul %20 %19 : f32[4096,14336]
%22 = cast %21 : bf16[4096,14336]
%23 = matmul %0 %22 : f32[1,14336]
%24 = cast %23 : bf16[1,14336]
return %24
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[64,4096]
%1 = input 1 : u8[4096,2048]
%2 = view %1 strides=[2048,1,0] offset=[0] : u8[4096,2048,1]
%3 = constant 15 : u8[]
%4 = view %3 strides=[0,0,0] offset=[0] : u8[4096,2048,1]
%5 = and %2 %4 : u8[4096,2048,1]
%6 = constant 16 : u8[]
%7 = view %6 strides=[0,0,0] offset=[0] : u8[4096,2048,1]
%8 = div %2 %7 : u8[4096,2048,1]
%9 = concat %5 %8 axis=2 : u8[4096,2048,2]
%10 = view %9 strides=[1,4096] offset=[0] : u8[4096,4096]
%11 = cast %10 : f32[4096,4096]
%12 = input 2 : bf16[4096,128,1]
%13 = view %12 strides=[128,1,0] offset=[0] : bf16[4096,128,32]
%14 = view %13 strides=[1,4096] offset=[0] : bf16[4096,4096]
%15 = cast %14 : f32[4096,4096]
%16 = input 3 : bf16[4096,128,1]
%17 = view %16 strides=[128,1,0] offset=[0] : bf16[4096,128,32]
%18 = view %17 strides=[1,4096] offset=[0] : bf16[4096,4096]
%19 = cast %18 : f32[4096,4096]
%20 = mul %11 %19 : f32[4096,4096]
%21 = add %20 %15 : f32[4096,4096]
%22 = cast %21 : bf16[4096,4096]
%23 = matmul %0 %22 : f32[64,4096]
%24 = cast %23 : bf16[64,4096]
return %24
)"};

// Products that are read so on sm_90a alone: of 8 bits as they are stored (plan/alternatives.h), of
// matrices that an index picks (plan/picked_products.h). And those of one first operand, a gate of many
// rows, queries, keys and values of few (plan/joined_products.h).
inline constexpr const char* kHopperGraphs[] = {
    R"(kiln.graph 1
%0 = input 0 : f32[512,1,16,1]
%1 = view %0 strides=[16,0,1,0] offset=[0] : f32[512,1,16,128]
%2 = view %1 strides=[2048,1] offset=[0] : f32[512,2048]
%3 = input 1 : f8e4m3[512,2048]
%4 = cast %3 : f32[512,2048]
%5 = mul %2 %4 : f32[512,2048]
%6 = input 2 : f32[56,1,16,1]
%7 = view %6 strides=[16,0,1,0] offset=[0] : f32[56,128,16,128]
%8 = view %7 strides=[1,2048] offset=[0] : f32[2048,7168]
%9 = input 3 : f8e4m3[7168,2048]
%10 = view %9 strides=[1,2048] offset=[0] : f8e4m3[2048,7168]
%11 = cast %10 : f32[2048,7168]
%12 = mul %8 %11 : f32[2048,7168]
%13 = matmul %5 %12 : f32[512,7168]
%14 = cast %13 : bf16[512,7168]
return %14
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[8192,1,2048]
%1 = input 1 : bf16[64,1408,2048]
%2 = view %1 strides=[2883584,1,2048] offset=[0] : bf16[64,2048,1408]
%3 = input 2 : i64[8192]
%4 = gather %2 %3 : bf16[8192,2048,1408]
%5 = matmul %0 %4 : f32[8192,1,1408]
%6 = cast %5 : bf16[8192,1,1408]
return %6
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[16,1,4096]
%1 = input 1 : bf16[8,4096,14336]
%2 = input 2 : i64[16]
%3 = gather %1 %2 : bf16[16,4096,14336]
%4 = matmul %0 %3 : f32[16,1,14336]
%5 = cast %4 : bf16[16,1,14336]
return %5
)",
    R"(kiln.graph 1
%0 = input 0 : f8e4m3[4096,4096]
%1 = input 1 : f8e5m2[4096,4096]
%2 = view %1 strides=[1,4096] offset=[0] : f8e5m2[4096,4096]
%3 = cast %0 : f32[4096,4096]
%4 = cast %3 : bf16[4096,4096]
%5 = cast %2 : f32[4096,4096]
%6 = cast %5 : bf16[4096,4096]
%7 = matmul %4 %6 : f32[4096,4096]
%8 = input 2 : f32[4096]
%9 = view %8 strides=[1,0] offset=[0] : f32[4096,4096]
%10 = mul %7 %9 : f32[4096,4096]
%11 = cast %10 : bf16[4096,4096]
return %11
)",
    R"(kiln.graph 1
%0 = input 0 : i8[512,4096]
%1 = input 1 : i8[14336,4096]
%2 = view %1 strides=[1,4096] offset=[0] : i8[4096,14336]
%3 = cast %0 : i32[512,4096]
%4 = cast %2 : i32[4096,14336]
%5 = matmul %3 %4 : i32[512,14336]
return %5
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[512,2048]
%1 = input 1 : bf16[5504,2048]
%2 = view %1 strides=[1,2048] offset=[0] : bf16[2048,5504]
%3 = input 2 : bf16[5504,2048]
%4 = view %3 strides=[1,2048] offset=[0] : bf16[2048,5504]
%5 = matmul %0 %2 : f32[512,5504]
%6 = matmul %0 %4 : f32[512,5504]
%7 = tanh %5 : f32[512,5504]
%8 = mul %6 %7 : f32[512,5504]
%9 = cast %8 : bf16[512,5504]
return %9
)",
    R"(kiln.graph 1
%0 = input 0 : bf16[16,2048]
%1 = input 1 : bf16[2048,2048]
%2 = view %1 strides=[1,2048] offset=[0] : bf16[2048,2048]
%3 = input 2 : bf16[512,2048]
%4 = view %3 strides=[1,2048] offset=[0] : bf16[2048,512]
%5 = input 3 : bf16[512,2048]
%6 = view %5 strides=[1,2048] offset=[0] : bf16[2048,512]
%7 = matmul %0 %2 : f32[16,2048]
%8 = cast %7 : bf16[16,2048]
%9 = matmul %0 %4 : f32[16,512]
%10 = cast %9 : bf16[16,512]
%11 = matmul %0 %6 : f32[16,512]
%12 = cast %11 : bf16[16,512]
return %8 %10 %12
)"};

// One query of 16 x 32 heads, of which four share 4096 keys and values of 128, as a cache has them.
inline Graph step_behind(AttentionGraph::Cache cache) {
  return attention_graph({.dtype = DType::kBF16,
                          .batch = {16, 32},
                          .rows = 1,
                          .keys = 4096,
                          .depth = 128,
                          .columns = 128,
                          .shared_by = 4,
                          .cache = cache});
}

// Behind an RMS norm of 16 rows: queries, keys and values, a gate, and a product alone.
inline std::vector<Graph> products_behind_norms() {
  std::vector<Graph> graphs;
  const auto add = [&](NormWeights weights, int64_t depth, const std::vector<int64_t>& columns,
                       bool is_gate) {
    GraphBuilder b;
    const NodeId x = normed(b, b.input(DType::kBF16, {16, depth}), weights);
    std::vector<NodeId> outputs;
    for (const int64_t n : columns) outputs.push_back(linear_of(b, x, n));
    if (is_gate) outputs = {b.binary(Op::kMul, b.unary(Op::kTanh, outputs[0]), outputs[1])};
    for (NodeId& output : outputs) output = b.cast(output, DType::kBF16);
    graphs.push_back(*b.finish(std::move(outputs)));
  };
  add(NormWeights::kHalves, 2048, {2048, 512, 512}, false);
  add(NormWeights::kOneMore, 2304, {9216, 9216}, true);
  add(NormWeights::kF32, 4096, {12800}, false);
  add(NormWeights::kNone, 1024, {3072}, false);
  return graphs;
}

}  // namespace kiln::testing
