// The fake device's primitives, and that it notices what a kernel does wrong.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <bit>
#include <chrono>
#include <cmath>

#include "compiler_core/base/half.h"
#include "tests/support/fake_cuda/host_launch.h"

namespace kiln::testing {
namespace {

// One phase, from f32 inputs to f32 outputs.
struct Kernel {
  std::string text;
  std::vector<int64_t> inputs, outputs;  // elements of each
  int64_t grid = 1;
  int threads = 32, cluster = 1, shared_bytes = 0;
  int64_t workspace_bytes = 0;
  DependentLaunch dependent = DependentLaunch::kNo;
  std::vector<KernelArgument> arguments = {};

  Source source() const {
    Source source;
    source.text = text;
    for (int64_t n : inputs) source.recipe.inputs.push_back({DType::kF32, {n}});
    for (int64_t n : outputs) source.recipe.outputs.push_back({DType::kF32, {n}});
    source.recipe.phases = {{"k", grid, threads, cluster, shared_bytes, dependent, arguments}};
    source.recipe.workspace_bytes = workspace_bytes;
    return source;
  }
};

std::vector<Tensor> iota(const Kernel& kernel) {
  std::vector<Tensor> tensors;
  for (int64_t n : kernel.inputs) {
    tensors.emplace_back(DType::kF32, std::vector<int64_t>{n});
    for (int64_t i = 0; i < n; ++i) tensors.back().set(i, static_cast<double>(i % 251));
  }
  return tensors;
}
std::vector<float> run(const Kernel& kernel, const std::vector<Tensor>& inputs) {
  auto outputs = run_on_fake_gpu(kernel.source(), inputs);
  EXPECT_TRUE(outputs.has_value()) << outputs.error().message;
  if (!outputs) return {};
  const auto values = outputs->front().as<float>();
  return {values.begin(), values.end()};
}
std::vector<float> run(const Kernel& kernel) {
  return run(kernel, iota(kernel));
}
std::string error_of(const Kernel& kernel) {
  const auto outputs = run_on_fake_gpu(kernel.source(), iota(kernel));
  return outputs ? "" : outputs.error().message;
}
::testing::AssertionResult says(const std::string& message, std::string_view part) {
  if (message.find(part) != std::string::npos) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "\"" << message << "\" does not say \"" << part << "\"";
}

TEST(FakeGpu, EveryThreadOfEveryBlockRuns) {
  const Kernel kernel{R"(KILN_KERNEL(96, 1) k(const float* in, float* out, char*) {
    const int i = block_index() * 96 + thread_index();
    if (i < 1000) out[i] = 2 * in[i] + 1;
  })",
                      {1000},
                      {1000},
                      11,
                      96};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 1000u);
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], 2.0f * static_cast<float>(i % 251) + 1);
}

constexpr char kBlockReverse[] = R"(
KILN_KERNEL(256, 1) k(const float* in, float* out, char*) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  const int t = thread_index(), base = block_index() * 256;
  shared[t] = in[base + t];
  BARRIER
  out[base + t] = shared[255 - t];
})";
std::string replaced(std::string text, std::string_view what, std::string_view by) {
  return text.replace(text.find(what), what.size(), by);
}

TEST(FakeGpu, ABlockMeetsAtItsBarrier) {
  const Kernel kernel{
      replaced(kBlockReverse, "BARRIER", "block_barrier();"), {1024}, {1024}, 4, 256, 1, 1024};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 1024u);
  for (size_t i = 0; i < 1024; ++i)
    EXPECT_EQ(out[i], static_cast<float>((i / 256 * 256 + 255 - i % 256) % 251));
}

TEST(FakeGpu, AMissingBarrierShowsInTheOtherOrder) {
  const Kernel none{replaced(kBlockReverse, "BARRIER", ""), {1024}, {1024}, 4, 256, 1, 1024};
  EXPECT_TRUE(says(error_of(none), "a barrier is missing"));
}

TEST(FakeGpu, ABarrierThatSomeThreadsMissIsReported) {
  const Kernel ended{replaced(kBlockReverse, "BARRIER", "if (t == 70) return; block_barrier();"),
                     {1024},
                     {1024},
                     4,
                     256,
                     1,
                     1024};
  EXPECT_TRUE(says(error_of(ended), "a block barrier that never completes: thread 70"));
  EXPECT_TRUE(says(error_of(ended), "has ended"));
  const Kernel shuffling{replaced(kBlockReverse, "BARRIER",
                                  "if (t % 32 == 5) shuffle_xor(t, 1); else block_barrier();"),
                         {1024},
                         {1024},
                         4,
                         256,
                         1,
                         1024};
  EXPECT_TRUE(says(error_of(shuffling), "waits at a shuffle that never completes"));
}

TEST(FakeGpu, ShufflesOfFourAndEightBytes) {
  const Kernel kernel{R"(KILN_KERNEL(64, 1) k(const float* in, float* out, char*) {
    float sum = in[thread_index()];
    for (int mask = 16; mask > 0; mask /= 2) sum += shuffle_xor(sum, mask);
    double wide = thread_index() + 0.5;
    wide = shuffle_xor(wide, 3);
    out[thread_index()] = sum + static_cast<float>(wide) + shuffle(thread_index(), 7);
  })",
                      {64},
                      {64},
                      1,
                      64};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 64u);
  for (int i = 0; i < 64; ++i) {
    const int sum = i < 32 ? 31 * 16 : 31 * 16 + 32 * 32;
    EXPECT_EQ(out[static_cast<size_t>(i)],
              static_cast<float>(sum + (i ^ 3) + (i < 32 ? 7 : 39)) + 0.5f);
  }
}

constexpr char kClusterSum[] = R"(
KILN_KERNEL(64, 1) k(const float* in, float* out, char*) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  const int i = block_index() * 64 + thread_index();
  shared[thread_index()] = in[i];
  cluster_barrier();
  float sum = 0;
  for (int rank = 0; rank < 4; ++rank)
    sum += as_float(cluster_load(reinterpret_cast<const unsigned*>(shared + thread_index()), rank));
  LAST
  out[i] = sum + 1000.0f * cluster_rank();
})";

TEST(FakeGpu, AClusterReadsItsBlocksSharedMemory) {
  const Kernel kernel{
      replaced(kClusterSum, "LAST", "cluster_barrier();"), {512}, {512}, 8, 64, 4, 256};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 512u);
  for (size_t i = 0; i < 512; ++i) {
    const size_t first = i / 256 * 256 + i % 64;
    float sum = 0;
    for (size_t rank = 0; rank < 4; ++rank) sum += static_cast<float>((first + 64 * rank) % 251);
    EXPECT_EQ(out[i], sum + 1000.0f * static_cast<float>(i / 64 % 4));
  }
}

TEST(FakeGpu, ABlockThatLeavesBeforeItsClusterReadsIsReported) {
  const Kernel kernel{replaced(kClusterSum, "LAST", ""), {512}, {512}, 8, 64, 4, 256};
  EXPECT_TRUE(says(error_of(kernel), "a cluster barrier is missing"));
}

constexpr char kClusterGift[] = R"(
KILN_KERNEL(64, 1) k(const float* in, float* out, char*) {
  float* shared = reinterpret_cast<float*>(shared_memory());
  cluster_has_begun();
  WAIT
  cluster_store(shared + thread_index(), (cluster_rank() + 1) % 4, in[block_index() * 64 + thread_index()]);
  cluster_barrier();
  out[block_index() * 64 + thread_index()] = shared[thread_index()];
})";

TEST(FakeGpu, ABlockStoresToOthersOfItsCluster) {
  const Kernel kernel{
      replaced(kClusterGift, "WAIT", "wait_for_cluster();"), {512}, {512}, 8, 64, 4, 256};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 512u);
  for (size_t i = 0; i < 512; ++i) {
    const size_t from = i / 256 * 256 + (i + 192) % 256;
    EXPECT_EQ(out[i], static_cast<float>(from % 251));
  }
}

TEST(FakeGpu, AStoreToABlockThatMayNotHaveBegunIsReported) {
  const Kernel kernel{replaced(kClusterGift, "WAIT", ""), {512}, {512}, 8, 64, 4, 256};
  EXPECT_TRUE(says(error_of(kernel), "may not have begun"));
}

// A kernel that may begin before the one in front of it has ended.
TEST(FakeGpu, OnlyWhatIsReadyIsReadBeforeTheWait) {
  const auto early = [](const char* body) {
    Kernel kernel{
        fmt::format("namespace {{\nKILN_INLINE float value(const float* p) {{\n"
                    "  Bits<4> x;\n  load_input(p, x);\n  return as_float(x.word[0]);\n}}\n}}\n"
                    "KILN_KERNEL(32, 1) k(const float* in0, const float* in1, float* out, char*, "
                    "long ready1) {{\n  const int i = thread_index();\n  {}\n}}\n",
                    body),
        {32, 32},
        {32}};
    kernel.dependent = DependentLaunch::kAtOnce;
    using enum KernelArgument::Kind;
    kernel.arguments = {{kBuffer, 0}, {kBuffer, 1}, {kBuffer, 2}, {kWorkspace}, {kReady, 1}};
    return kernel;
  };
  EXPECT_EQ(run(early("wait_for_kernel_before(); out[i] = value(in0 + i) + value(in1 + i);"))[3],
            6);
  EXPECT_EQ(run(early("float y = 0; if (ready1) y = value(in1 + i); wait_for_kernel_before(); "
                      "if (!ready1) y = value(in1 + i); out[i] = value(in0 + i) + y;"))[3],
            6);
  EXPECT_TRUE(says(error_of(early("const float y = value(in1 + i); wait_for_kernel_before(); "
                                  "out[i] = value(in0 + i) + y;")),
                   "does not wait for the kernel in front: byte 0 of input 1"));
  EXPECT_TRUE(says(error_of(early("float x = 0; if (ready1) x = value(in0 + i); "
                                  "wait_for_kernel_before(); out[i] = x + value(in1 + i);")),
                   "input 0"))
      << "another input than the one that is ready";
}

TEST(FakeGpu, AccessesOutsideABufferNameIt) {
  const auto reading = [](int64_t at) {
    return Kernel{
        "KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {\n"
        "  out[thread_index()] = in[thread_index() + " +
            std::to_string(at) + "];\n}",
        {64},
        {32}};
  };
  EXPECT_EQ(error_of(reading(32)), "");
  EXPECT_TRUE(says(error_of(reading(5000)), "past the end of input 0 (256 bytes)"));
  EXPECT_TRUE(says(error_of(reading(-3000)), "before input 0 (256 bytes)"));
  EXPECT_TRUE(says(error_of(reading(10 << 20)), "past the end of input 0 (256 bytes)"));
  const Kernel writing{R"(KILN_KERNEL(32, 1) k(const float*, float* out, char*) {
    out[thread_index()] = 1;
    if (thread_index() == 3) out[32] = 1;
  })",
                       {1},
                       {32}};
  EXPECT_TRUE(says(error_of(writing), "wrote outside output 0"));
  const Kernel input{R"(KILN_KERNEL(32, 1) k(float* in, float* out, char*) {
    out[thread_index()] = in[0] = 7;
  })",
                     {1},
                     {32}};
  EXPECT_TRUE(says(error_of(input), "wrote into input 0"));
}

TEST(FakeGpu, WhatNobodyWroteIsNoticed) {
  const Kernel unwritten{R"(KILN_KERNEL(32, 1) k(const float*, float* out, char*) {
    if (thread_index() != 9) out[thread_index()] = 1;
  })",
                         {1},
                         {32}};
  EXPECT_TRUE(says(error_of(unwritten), "output 0 depends on memory that nobody wrote"));
  const Kernel shared{R"(KILN_KERNEL(32, 1) k(const float*, float* out, char*) {
    out[thread_index()] = reinterpret_cast<float*>(shared_memory())[thread_index()];
  })", {1}, {32}, 1, 32, 1, 128};
  EXPECT_TRUE(says(error_of(shared), "output 0 depends on memory that nobody wrote"));
  const Kernel behind{R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
    out[thread_index()] = in[thread_index()];
  })",
                      {31},
                      {32}};
  EXPECT_TRUE(says(error_of(behind), "output 0 depends on memory that nobody wrote"));
}

TEST(FakeGpu, SharedMemoryEndsWhereItsSizeSays) {
  const Kernel kernel{R"(KILN_KERNEL(32, 1) k(const float*, float* out, char*) {
    reinterpret_cast<float*>(shared_memory())[thread_index() + 2] = 1;
    out[thread_index()] = 0;
  })", {1}, {32}, 1, 32, 1, 128};
  EXPECT_TRUE(says(error_of(kernel), "wrote outside its shared memory"));
}

TEST(FakeGpu, MisalignedAccessesAreErrors) {
  const auto loading = [](const char* how) {
    return Kernel{std::string(R"(
struct alignas(16) Four { float x[4]; };
KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
  float x = 0;
  )") + how + "\n  out[thread_index()] = x;\n}",
                  {64},
                  {32}};
  };
  EXPECT_EQ(error_of(loading("Bits<16> b; load_input(in + 4, b); x = as_float(b.word[0]);")), "");
  EXPECT_TRUE(says(error_of(loading("Bits<16> b; load_input(in + 2, b); x = as_float(b.word[0]);")),
                   "misaligned access of 16 bytes"));
  EXPECT_TRUE(says(error_of(loading("Bits<8> b; load_input(in + 1, b); x = as_float(b.word[0]);")),
                   "misaligned access of 8 bytes"));
  EXPECT_TRUE(says(error_of(loading("x = reinterpret_cast<const Four*>(in + 1)->x[0];")),
                   "misaligned access, line 5"));
  // More than the 16 bytes that a kernel may assume.
  EXPECT_TRUE(says(error_of(loading("struct alignas(32) Eight { float x[8]; };\n"
                                    "x = reinterpret_cast<const Eight*>(in)->x[0];")),
                   "misaligned access"));
}

TEST(FakeGpu, IndexesBeyondLocalArraysAreErrors) {
  const Kernel kernel{R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
    float x[4] = {1, 2, 3, 4};
    out[thread_index()] = x[static_cast<int>(in[thread_index()])];
  })",
                      {32},
                      {32}};
  EXPECT_TRUE(says(error_of(kernel), "an index beyond a local array"));
}

TEST(FakeGpu, HalvesRoundToNearestEvenAndKeepNan) {
  const Kernel kernel{R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
    const int i = block_index() * 32 + thread_index();
    out[2 * i] = as_float(pack_bf16(in[i], -in[i]));
    out[2 * i + 1] = as_float(pack_f16(in[i], -in[i]));
  })",
                      {1024},
                      {2048},
                      32};
  std::vector<Tensor> inputs;
  inputs.emplace_back(DType::kF32, std::vector<int64_t>{1024});
  const std::span<float> x = inputs[0].as<float>();
  uint32_t bits = 1;
  for (float& value : x) value = std::bit_cast<float>(bits = bits * 1664525 + 1013904223);
  x[0] = NAN, x[1] = INFINITY, x[2] = 65519.99f, x[3] = 65520.0f, x[4] = 1.00390625f, x[5] = 6e-8f;
  const std::vector<float> out = run(kernel, inputs);
  ASSERT_EQ(out.size(), 2048u);
  for (size_t i = 0; i < 1024; ++i) {
    const auto b = std::bit_cast<uint32_t>(out[2 * i]), h = std::bit_cast<uint32_t>(out[2 * i + 1]);
    if (std::isnan(x[i])) {
      EXPECT_EQ(b, 0x7fff7fffu);
      EXPECT_EQ(h, 0x7fff7fffu);
      continue;
    }
    EXPECT_EQ(b & 0xffff, f32_to_bf16(x[i])) << x[i];
    EXPECT_EQ(b >> 16, f32_to_bf16(-x[i])) << x[i];
    EXPECT_EQ(h & 0xffff, f32_to_f16(x[i])) << x[i];
    EXPECT_EQ(h >> 16, f32_to_f16(-x[i])) << x[i];
  }
}

// 16 x depth times depth x 8, fragments gathered by hand from row-major matrices.
std::string matrix_kernel(const char* name, int depth) {
  const bool wide = depth == 8;
  std::string text =
      "KILN_KERNEL(32, 1) k(const float* a, const float* b, float* d, char*) {\n"
      "  const int group = thread_index() / 4, t = thread_index() % 4;\n"
      "  unsigned fa[4], fb[2]; float fd[4] = {100, 200, 300, 400};\n"
      "  for (int i = 0; i < 4; ++i) {\n";
  if (wide)
    text +=
        "    fa[i] = as_bits(a[(group + i % 2 * 8) * 8 + t + i / 2 * 4]);\n"
        "    if (i < 2) fb[i] = as_bits(b[(t + i * 4) * 8 + group]);\n";
  else
    text +=
        "    const float* p = a + (group + i % 2 * 8) * 16 + 2 * t + i / 2 * 8;\n"
        "    fa[i] = PACK(p[0], p[1]);\n"
        "    const float* q = b + (2 * t + i * 8) * 8 + group;\n"
        "    if (i < 2) fb[i] = PACK(q[0], q[8]);\n";
  text += std::string("  }\n  mma_") + name + "(fd, fa, fb);\n" +
          "  for (int i = 0; i < 4; ++i) d[(group + i / 2 * 8) * 8 + 2 * t + i % 2] = fd[i];\n}";
  return "#define PACK pack_" + std::string(name) + "\n" + text;
}

TEST(FakeGpu, TensorCoresMultiply) {
  for (const char* name : {"bf16", "f16", "tf32"}) {
    const int depth = name == std::string("tf32") ? 8 : 16;
    const Kernel kernel{matrix_kernel(name, depth), {16 * depth, depth * 8}, {128}};
    std::vector<Tensor> inputs = iota(kernel);
    for (int64_t i = 0; i < 16 * depth; ++i) inputs[0].set(i, static_cast<double>(i * 7 % 31 - 15));
    for (int64_t i = 0; i < depth * 8; ++i) inputs[1].set(i, static_cast<double>(i * 5 % 23 - 11));
    const std::vector<float> out = run(kernel, inputs);
    ASSERT_EQ(out.size(), 128u);
    for (int row = 0; row < 16; ++row)
      for (int column = 0; column < 8; ++column) {
        double sum = 100 * (1 + column % 2 + row / 8 * 2);
        for (int k = 0; k < depth; ++k)
          sum += inputs[0].get(row * depth + k) * inputs[1].get(k * 8 + column);
        EXPECT_EQ(out[static_cast<size_t>(row * 8 + column)], sum) << name << row << "," << column;
      }
  }
}

TEST(FakeGpu, LdmatrixHandsOutRowsOrColumns) {
  const auto text = [](const char* suffix) {
    return std::string(R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
      unsigned short* shared = reinterpret_cast<unsigned short*>(shared_memory());
      for (int i = thread_index(); i < 256; i += 32) shared[i] = static_cast<unsigned short>(in[i]);
      warp_barrier();
      unsigned x[4];
      ldmatrix_x4)") +
           suffix + R"((x, shared + thread_index() * 8);
      for (int i = 0; i < 4; ++i) {
        out[(i * 32 + thread_index()) * 2] = x[i] & 0xffff;
        out[(i * 32 + thread_index()) * 2 + 1] = x[i] >> 16;
      }
    })";
  };
  const std::vector<float> rows = run({text(""), {256}, {256}, 1, 32, 1, 512});
  const std::vector<float> columns = run({text("_trans"), {256}, {256}, 1, 32, 1, 512});
  ASSERT_EQ(rows.size(), 256u);
  ASSERT_EQ(columns.size(), 256u);
  for (int i = 0; i < 256; ++i) {
    const int matrix = i / 64, lane = i / 2 % 32, group = lane / 4, pair = 2 * (lane % 4) + i % 2;
    EXPECT_EQ(rows[static_cast<size_t>(i)],
              static_cast<float>((matrix * 64 + group * 8 + pair) % 251));
    EXPECT_EQ(columns[static_cast<size_t>(i)],
              static_cast<float>((matrix * 64 + pair * 8 + group) % 251));
  }
}

constexpr char kCopying[] = R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
  char* shared = shared_memory() + thread_index() * 32;
  cp_async_16(shared, in + thread_index() * 4);
  cp_async_commit();
  cp_async_16(shared + 16, in + thread_index() * 4, 8);
  cp_async_commit();
  cp_async_wait<WAIT>();
  warp_barrier();
  for (int i = 0; i < 8; ++i)
    out[thread_index() * 8 + i] = reinterpret_cast<float*>(shared)[i];
})";

TEST(FakeGpu, AsynchronousCopiesAppearAtTheWait) {
  const std::vector<float> all =
      run({replaced(kCopying, "WAIT", "0"), {128}, {256}, 1, 32, 1, 1024});
  ASSERT_EQ(all.size(), 256u);
  for (size_t i = 0; i < 256; ++i)
    EXPECT_EQ(all[i], i % 8 < 6 ? static_cast<float>(i / 8 * 4 + i % 4) : 0) << i;
  const Kernel early{replaced(kCopying, "WAIT", "1"), {128}, {256}, 1, 32, 1, 1024};
  EXPECT_TRUE(says(error_of(early), "depends on memory that nobody wrote"));
  const Kernel simple{R"(KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {
    float* shared = reinterpret_cast<float*>(shared_memory());
    copy_input<4>(in + thread_index(), shared + thread_index());
    ARRIVED
    out[thread_index()] = shared[thread_index()];
  })", {32}, {32}, 1, 32, 1, 128};
  Kernel arrived = simple, forgotten = simple;
  arrived.text = replaced(simple.text, "ARRIVED", "copies_arrived();");
  forgotten.text = replaced(simple.text, "ARRIVED", "");
  EXPECT_EQ(error_of(arrived), "");
  EXPECT_TRUE(says(error_of(forgotten), "depends on memory that nobody wrote"));
  arrived.shared_bytes = 64;
  EXPECT_TRUE(says(error_of(arrived), "an access outside shared memory"));
}

// 64 K registers in multiples of 8: 3 x 168 for a thread of each warpgroup.
TEST(FakeGpu, WarpgroupsHandOnWhatTheirBlockBeganWith) {
  const Kernel most{R"(KILN_KERNEL(384, 1) k(const float*, float* out, char*) {
    if (thread_index() < 128)
      keep_registers<80>();
    else
      take_registers<208>();
    out[block_index() * 384 + thread_index()] = 1;
  })",
                    {1},
                    {768},
                    2,
                    384};
  Kernel more = most;
  more.text = replaced(most.text, "208", "216");
  EXPECT_EQ(error_of(most), "");
  EXPECT_TRUE(says(error_of(more), "more registers than it has"));
}

TEST(FakeGpu, CudasOwnWordsForIndexes) {
  const Kernel kernel{R"(extern "C" __global__ void k(const float* in, float* out, char*) {
    __shared__ float last;
    const unsigned i = blockIdx.x * blockDim.x + threadIdx.x;
    if (threadIdx.x == blockDim.x - 1) last = in[i];
    __syncthreads();
    out[i] = last + gridDim.x;
  })",
                      {64},
                      {64},
                      2};
  const std::vector<float> out = run(kernel);
  ASSERT_EQ(out.size(), 64u);
  for (size_t i = 0; i < 64; ++i) EXPECT_EQ(out[i], i < 32 ? 33.0f : 65.0f);
}

TEST(FakeGpu, CompileErrorsCarryTheCompilersWords) {
  const std::string error = error_of(
      {"KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {\n  out[0] = nothing;\n}",
       {1},
       {1}});
  EXPECT_TRUE(says(error, "kernel.cu:2"));
  EXPECT_TRUE(says(error, "nothing"));
  EXPECT_TRUE(says(error_of({"int x;", {1}, {1}}), "no kernel"));
}

TEST(FakeGpu, LaunchesThatNoDeviceTakesAreRefused) {
  const std::string text = "KILN_KERNEL(32, 1) k(const float* in, float* out, char*) {}";
  EXPECT_TRUE(says(error_of({text, {1}, {1}, 1, 64}), "bounded to 32 threads"));
  EXPECT_TRUE(says(error_of({text, {1}, {1}, 3, 32, 2}), "no device launches"));
  EXPECT_TRUE(says(error_of({text, {1, 1}, {1}}), "takes 3 parameters, the launch model 4"));
}

}  // namespace
}  // namespace kiln::testing
