// Calls into cuBLASLt, on the fake GPU and its fake of the library.
#include "compiler_core/runtime/library_call.h"

#include <cstdlib>
#include <filesystem>

#include "compiler_core/runtime/cuda_graph.h"
#include "compiler_core/runtime/executable.h"
#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

constexpr int64_t kM = 3, kN = 5, kK = 4;

class LibraryCallTest : public FakeGpuTest {
 protected:
  // f32 d[3, 5] = a[3, 4] b[4, 5], all dense.
  static LibraryCall product() {
    LibraryCall call;
    call.library = "cublaslt";
    call.m = kM, call.n = kN, call.k = kK;
    call.a = {0, DType::kF32, false, kK, 0};
    call.b = {1, DType::kF32, false, kN, 0};
    call.d = {2, DType::kF32, false, kN, 0};
    return call;
  }
  static Recipe recipe_of(const LibraryCall& call) {
    Recipe recipe;
    recipe.inputs = {{DType::kF32, {kM * kK}}, {DType::kF32, {kK * kN}}};
    recipe.outputs = {{DType::kF32, {kM * kN}}};
    recipe.phases.resize(1);
    recipe.phases[0].call = call;
    recipe.workspace_bytes = kLibraryWorkspaceBytes;
    return recipe;
  }
  Result<std::unique_ptr<const LoadedKernel>> load(const LibraryCall& call) const {
    return gpu_->load(library_artifact(recipe_of(call)));
  }

  // What `call` makes of its buffers, of which the last is the result.
  std::vector<float> run(const LibraryCall& call, const std::vector<std::vector<float>>& inputs,
                         size_t results) const {
    Recipe recipe = recipe_of(call);
    recipe.inputs.clear();
    for (const auto& input : inputs)
      recipe.inputs.push_back({DType::kF32, {static_cast<int64_t>(input.size())}});
    recipe.outputs[0].shape = {static_cast<int64_t>(results)};
    const auto kernel = gpu_->load(library_artifact(std::move(recipe)));
    EXPECT_TRUE(kernel) << kernel.error().message;
    if (!kernel) return {};
    std::vector<DeviceBuffer> buffers;
    std::vector<DevicePtr> args;
    for (const auto& input : inputs) buffers.push_back(upload(input));
    buffers.push_back(upload(std::vector<float>(results, -1)));
    for (const DeviceBuffer& buffer : buffers) args.push_back(buffer.data());
    const DeviceBuffer workspace = memory(kLibraryWorkspaceBytes);
    const Status launched = (*kernel)->launch(args, workspace.data(), {}, nullptr, {});
    EXPECT_TRUE(launched) << launched.error().message;
    return download(buffers.back());
  }

  // a[m, k] b[k, n], row by row.
  static std::vector<float> expected(const std::vector<float>& a, const std::vector<float>& b) {
    std::vector<float> d;
    for (int64_t row = 0; row < kM; ++row)
      for (int64_t column = 0; column < kN; ++column) {
        float sum = 0;
        for (int64_t i = 0; i < kK; ++i)
          sum += a[static_cast<size_t>(row * kK + i)] * b[static_cast<size_t>(i * kN + column)];
        d.push_back(sum);
      }
    return d;
  }
  static std::vector<float> transposed(const std::vector<float>& matrix, size_t rows) {
    std::vector<float> result;
    for (size_t column = 0; column < matrix.size() / rows; ++column)
      for (size_t row = 0; row < rows; ++row)
        result.push_back(matrix[row * (matrix.size() / rows) + column]);
    return result;
  }

  const std::vector<float> a_ = ramp(1, kM*kK), b_ = ramp(0.5, kK*kN);
};

TEST_F(LibraryCallTest, MultipliesRowMajorMatricesAsStoredAndTransposed) {
  LibraryCall call = product();
  EXPECT_EQ(run(call, {a_, b_}, kM * kN), expected(a_, b_));
  call.a.transposed = true, call.a.ld = kM;
  EXPECT_EQ(run(call, {transposed(a_, kM), b_}, kM * kN), expected(a_, b_));
  call.b.transposed = true, call.b.ld = kK;
  EXPECT_EQ(run(call, {transposed(a_, kM), transposed(b_, kK)}, kM * kN), expected(a_, b_));
}

TEST_F(LibraryCallTest, TakesBatchesPaddedRowsAddendsAndEpilogues) {
  LibraryCall call = product();
  call.batch = 2;
  call.a.batch_stride = kM * kK;  // b is the same for both
  call.d.ld = kN + 3, call.d.batch_stride = kM * (kN + 3);
  std::vector<float> two = a_;
  for (const float x : a_) two.push_back(-x);
  const std::vector<float> padded = run(call, {two, b_}, 2 * kM * (kN + 3));
  const std::vector<float> one = expected(a_, b_);
  ASSERT_EQ(padded.size(), static_cast<size_t>(2 * kM * (kN + 3)));
  for (size_t i = 0; i < one.size(); ++i) {
    const size_t at = i / kN * (kN + 3) + i % kN;
    EXPECT_EQ(padded[at], one[i]);
    EXPECT_EQ(padded[static_cast<size_t>(kM * (kN + 3)) + at], -one[i]);
  }
  EXPECT_EQ(padded[kN], -1) << "between the rows";

  call = product();
  call.c = 2, call.bias = 3, call.d.buffer = 4;
  call.epilogue = "relu_bias";
  const std::vector<float> addend(kM * kN, -200), bias = ramp(40, kN);
  const std::vector<float> got = run(call, {a_, b_, addend, bias}, kM * kN);
  for (size_t i = 0; i < one.size(); ++i)
    EXPECT_EQ(got[i], std::max(0.0f, one[i] - 200 + bias[i % kN])) << i;
}

TEST_F(LibraryCallTest, FollowsPointersAndCanBeCaptured) {
  LibraryCall call = product();
  call.rank = 3;  // needs 3 MiB of workspace
  const auto kernel = load(call);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer workspace = memory(kLibraryWorkspaceBytes);
  const DeviceBuffer a = upload(a_), b = upload(b_), doubled = upload(ramp(2, kM * kK));
  const DeviceBuffer d = memory(kM * kN * 4);
  const auto launch = [&](const DeviceBuffer& from) {
    return [&](Stream stream) {
      const DevicePtr args[] = {from.data(), b.data(), d.data()};
      return (*kernel)->launch(args, workspace.data(), {}, stream, {});
    };
  };
  auto graph = gpu_->capture(launch(a));
  ASSERT_TRUE(graph) << graph.error().message;
  ASSERT_TRUE(gpu_->fill(d.data(), 0, d.bytes(), nullptr));
  EXPECT_EQ(download(d)[1], 0) << "capturing runs nothing";
  ASSERT_TRUE((*graph)->replay(nullptr));
  EXPECT_EQ(download(d), expected(a_, b_));
  ASSERT_TRUE((*graph)->update(launch(doubled)));
  ASSERT_TRUE((*graph)->replay(nullptr));
  EXPECT_EQ(download(d), expected(ramp(2, kM * kK), b_));
}

TEST_F(LibraryCallTest, AlgorithmsAreListedAndRestoredFromTheirBytes) {
  LibraryCall call = product();
  const auto algorithms = library_algorithms(*gpu_, call, {});
  ASSERT_TRUE(algorithms) << algorithms.error().message;
  ASSERT_EQ(algorithms->size(), 4u);
  EXPECT_EQ((*algorithms)[2].workspace_bytes, 2 << 20);
  EXPECT_EQ((*algorithms)[2].bytes.size(), 128u);
  call.algorithm = (*algorithms)[2].bytes;
  EXPECT_EQ(run(call, {a_, b_}, kM * kN), expected(a_, b_));
  call.algorithm = std::string(128, '0');
  EXPECT_EQ(load(call).error().code, Code::kInvalidArgument);
  call.algorithm.clear();
  call.rank = 4;
  const auto none = load(call);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kInvalidArgument);
  EXPECT_NE(none.error().message.find("none of rank 4"), std::string::npos);
}

TEST_F(LibraryCallTest, AsksForTheWorkspaceThatItsAlgorithmNeeds) {
  LibraryCall call = product();
  for (const int rank : {0, 3}) {
    call.rank = rank;
    const auto kernel = load(call);
    ASSERT_TRUE(kernel) << kernel.error().message;
    EXPECT_EQ((*kernel)->recipe().workspace_bytes, Dim(int64_t{rank} << 20));
  }
}

// The library names other algorithms for buffers that are less aligned than those it was timed on.
TEST_F(LibraryCallTest, TakesBuffersOfLessAlignment) {
  LibraryCall call = product();
  call.rank = 3;  // needs 16 bytes
  std::vector<float> shifted = a_;
  shifted.insert(shifted.begin(), 99);
  call.a.offset = 1;
  EXPECT_EQ(run(call, {shifted, b_}, kM * kN), expected(a_, b_));
  call.d.offset = 1;
  std::vector<float> one_on = expected(a_, b_);
  one_on.insert(one_on.begin(), -1);
  EXPECT_EQ(run(call, {shifted, b_}, kM * kN + 1), one_on) << "what is before it stays";
}

TEST_F(LibraryCallTest, AResultWithoutElementsIsNoCall) {
  LibraryCall call = product();
  call.m = Dim::symbol(0);
  Recipe recipe = recipe_of(call);
  recipe.inputs[0].shape = {Dim::symbol(0), kK};
  recipe.outputs[0].shape = {Dim::symbol(0), kN};
  const auto kernel = gpu_->load(library_artifact(recipe));
  ASSERT_TRUE(kernel) << kernel.error().message;
  EXPECT_EQ((*kernel)->recipe().workspace_bytes, Dim(kLibraryWorkspaceBytes)) << "for any size";
  const DeviceBuffer b = upload(b_), workspace = memory(kLibraryWorkspaceBytes);
  const DevicePtr args[] = {0, b.data(), 0};
  const int64_t none[] = {0};
  EXPECT_TRUE((*kernel)->launch(args, workspace.data(), none, nullptr, {}));
}

TEST_F(LibraryCallTest, IsFoundInAFolderAndLeftOutWhereItIsToldTo) {
  const std::string folder = std::filesystem::path(kFakeLibcublaslt).parent_path();
  constexpr int kDriver = 13000;
  using Libraries = std::vector<LibraryVersion>;
  EXPECT_EQ(installed_libraries(folder, "", kDriver), (Libraries{{"cublaslt", "130100"}}));
  EXPECT_EQ(installed_libraries("", kFakeLibcuda, kDriver), (Libraries{{"cublaslt", "130100"}}));
  EXPECT_EQ(installed_libraries("/nowhere/libcublasLt.so.13", "", kDriver), Libraries{});
  EXPECT_EQ(installed_libraries(std::string(kNoLibraries), kFakeLibcuda, kDriver), Libraries{});
  const auto device = CudaDevice::open(0, kFakeLibcuda, std::string(kNoLibraries));
  ASSERT_TRUE(device);
  const auto refused = (*device)->load(library_artifact(recipe_of(product())));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kUnsupported);
  EXPECT_NE(refused.error().message.find("left out"), std::string::npos);
}

TEST_F(LibraryCallTest, AnotherVersionOrNoLibraryIsRefusedByName) {
  LibraryCall call = product();
  call.version = "120900";
  const auto other = load(call);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, Code::kUnsupported);
  EXPECT_EQ(other.error().message, "the program calls cublaslt 120900; the one here is 130100");
  call.version = "130100";
  EXPECT_TRUE(load(call));
  EXPECT_EQ(*library_version(*gpu_, "cublaslt"), "130100");
  const auto untold = CudaDevice::open(0, kFakeLibcuda);
  ASSERT_TRUE(untold);
  EXPECT_TRUE((*untold)->load(library_artifact(recipe_of(call)))) << "it lies beside the driver";

  const auto bare = CudaDevice::open(0, kFakeLibcuda, "/nowhere/libcublasLt.so.13");
  ASSERT_TRUE(bare);
  const auto missing = (*bare)->load(library_artifact(recipe_of(call)));
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, Code::kUnsupported);
  EXPECT_NE(missing.error().message.find("no cuBLASLt here"), std::string::npos)
      << missing.error().message;
}

// in -> 2 in, by the library (in times the identity doubled is not needed: any product does) or by
// the kernel of Kiln's own beside it.
TEST_F(LibraryCallTest, AProgramRunsItsFallbackWhereTheLibraryIsMissing) {
  const Artifact own = gpu_artifact(R"(
KILN_KERNEL(16, 1) own(const float* a, const float* b, float* d, char*) {
  if (thread_index() < 15) d[thread_index()] = 7;
})",
                                    [] {
                                      Recipe recipe = recipe_of(product());
                                      recipe.phases = {{"own", 1, 16}};
                                      recipe.workspace_bytes = 0;
                                      return recipe;
                                    }());
  Program program;
  ProgramKernel kernel;
  kernel.recipe = recipe_of(product());
  kernel.recipe.phases[0].call->version = "130100";
  kernel.fallback = ProgramKernel::Fallback{"own", own.recipe};
  kernel.blob = own.digest;
  program.kernels = {kernel};
  program.buffers = {{Buffer::Kind::kInput, 0, kernel.recipe.inputs[0], 0},
                     {Buffer::Kind::kInput, 1, kernel.recipe.inputs[1], 0},
                     {Buffer::Kind::kOutput, 0, kernel.recipe.outputs[0], 0}};
  program.launches = {{0, {0, 1, 2}}};
  program.output_buffers = {2};
  const Artifact artifact = artifact_of(kernel, own.binary);
  const DeviceBuffer a = upload(a_), b = upload(b_), d = memory(kM * kN * 4);
  const DevicePtr inputs[] = {a.data(), b.data()}, outputs[] = {d.data()};
  for (const bool has_library : {true, false}) {
    const auto device =
        CudaDevice::open(0, kFakeLibcuda, has_library ? kFakeLibcublaslt : "/nowhere/lib.so");
    ASSERT_TRUE(device);
    const auto executable = Executable::load(*device, program, {&artifact, 1});
    ASSERT_TRUE(executable) << executable.error().message;
    EXPECT_EQ(executable->program().kernels[0].recipe.calls_library(), has_library);
    ASSERT_TRUE(executable->launch(inputs, outputs, nullptr));
    ASSERT_TRUE((*device)->synchronize(nullptr));
    EXPECT_EQ(download(d), has_library ? expected(a_, b_) : std::vector<float>(15, 7));
  }
}

}  // namespace
}  // namespace kiln
