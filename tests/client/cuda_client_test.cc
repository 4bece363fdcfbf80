// The client library and GPUs: on the fake one, and on a machine without.
#include <gtest/gtest.h>

#include <cstdlib>

#include "client/compiled_program.h"
#include "compiler_core/ir/builder.h"
#include "compiler_core/ir/interpreter.h"
#include "compiler_core/runtime/cuda_device.h"
#include "compiler_core/runtime/cuda_driver.h"

namespace kiln {
namespace {

#ifdef KILN_FAKE_LIBCUDA

constexpr char kNowhere[] = "/nonexistent/lib.so";

// tanh(a) - b: the order of inputs matters.
Graph wide_difference(int64_t rows) {
  GraphBuilder builder;
  const NodeId a = builder.input(DType::kF32, {rows, 64});
  const NodeId b = builder.input(DType::kF32, {rows, 64});
  return *builder.finish({builder.binary(Op::kSub, builder.unary(Op::kTanh, a), b)});
}

Tensor filled_wide(int64_t rows, double first) {
  Tensor tensor(DType::kF32, {rows, 64});
  for (int64_t i = 0; i < tensor.numel(); ++i) tensor.set(i, first + 0.01 * static_cast<double>(i));
  return tensor;
}

ClientOptions with_gpu() {
  ClientOptions options;
  options.libcuda = KILN_FAKE_LIBCUDA;
  options.libnvrtc = KILN_FAKE_LIBNVRTC;
  return options;
}

ClientOptions without_gpu() {
  ClientOptions options = with_gpu();
  options.libcuda = kNowhere;
  return options;
}

CompileOptions compile_for(std::string_view target) {
  CompileOptions options;
  options.target = *Target::parse(target);
  return options;
}

std::unique_ptr<Client> make_gpu_client(ClientOptions options) {
  auto client = Client::create(std::move(options));
  EXPECT_TRUE(client) << client.error().message;
  return *std::move(client);
}

void expect_difference(const Graph& graph, const Tensor& a, const Tensor& b, const Tensor& out) {
  const Tensor* inputs[] = {&a, &b};
  const auto expected = interpret(graph, inputs);
  ASSERT_TRUE(expected);
  for (int64_t i = 0; i < out.numel(); ++i)
    ASSERT_NEAR(out.get(i), (*expected)[0].get(i), 1e-5) << i;
}

TEST(CudaClient, CompilesHereAndRunsTheHostsTensorsOnTheGpu) {
  const Graph graph = wide_difference(3);
  ClientOptions options = with_gpu();
  options.open_gpu = true;
  const auto client = make_gpu_client(options);
  for (const bool reduce_overhead : {false, true}) {
    CompileOptions wanted = compile_for("cuda");
    wanted.reduce_overhead = reduce_overhead;
    const auto program = client->compile(graph, wanted);
    ASSERT_TRUE(program) << program.error().message;
    EXPECT_EQ((*program)->outcome(), reduce_overhead ? Outcome::kHit : Outcome::kLocal)
        << "one program serves both";
    ASSERT_NE(device_of(**program), nullptr);
    EXPECT_EQ((*program)->program().target, device_of(**program)->facts().target());
    for (const double first : {-1.0, 2.0}) {
      const Tensor a = filled_wide(3, first), b = filled_wide(3, 3);
      const Tensor* inputs[] = {&a, &b};
      const auto outputs = (*program)->run(inputs);
      ASSERT_TRUE(outputs) << outputs.error().message;
      expect_difference(graph, a, b, (*outputs)[0]);
    }
  }
}

TEST(CudaClient, LaunchTakesTheCallersPointersInTheCallersOrder) {
  const Graph graph = wide_difference(2);
  const auto program = make_gpu_client(with_gpu())->compile(graph, compile_for("cuda:sm_90a"));
  ASSERT_TRUE(program) << program.error().message;
  const auto gpu = device_of(**program);
  const Tensor a = filled_wide(2, -1), b = filled_wide(2, 3);
  const auto x = DeviceBuffer::allocate(gpu, a.byte_size());
  const auto y = DeviceBuffer::allocate(gpu, b.byte_size());
  const auto z = DeviceBuffer::allocate(gpu, a.byte_size());
  ASSERT_TRUE(x && y && z);
  ASSERT_TRUE(gpu->copy_to_device(x->data(), a.bytes()));
  ASSERT_TRUE(gpu->copy_to_device(y->data(), b.bytes()));
  const DevicePtr inputs[] = {x->data(), y->data()}, outputs[] = {z->data()};
  const auto stream = gpu->create_stream();
  ASSERT_TRUE(stream);
  const Status launched = (*program)->launch(inputs, outputs, *stream);
  ASSERT_TRUE(launched) << launched.error().message;
  ASSERT_TRUE(gpu->synchronize(*stream));
  auto answer = (*program)->make_outputs();
  ASSERT_TRUE(answer);
  ASSERT_TRUE(gpu->copy_to_host((*answer)[0].bytes(), z->data()));
  expect_difference(graph, a, b, (*answer)[0]);
  EXPECT_EQ((*program)->launch({inputs, 1}, outputs, *stream).error().code, Code::kInvalidArgument);
  gpu->destroy_stream(*stream);
}

TEST(CudaClient, WithoutAGpuAProgramIsMadeButNotLoaded) {
  const auto client = make_gpu_client(without_gpu());
  const auto program = client->fetch(wide_difference(2), compile_for("cuda:sm_90a"));
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_EQ((*program)->outcome(), Outcome::kLocal);
  EXPECT_EQ(device_of(**program), nullptr);
  EXPECT_TRUE((*program)->program().target.toolkit.starts_with("cuda-"));
  EXPECT_EQ((*program)->program().target.device_model, "");
  ASSERT_EQ((*program)->artifacts().size(), (*program)->program().kernels.size());
  EXPECT_FALSE((*program)->artifacts()[0].binary.empty());
  const Tensor a = filled_wide(2, 0);
  const Tensor* inputs[] = {&a, &a};
  EXPECT_EQ((*program)->run(inputs).error().code, Code::kUnsupported);
  EXPECT_EQ((*program)->launch({}, {}, nullptr).error().code, Code::kUnsupported);
}

TEST(CudaClient, WhatCannotRunHereIsSaidBeforeAnythingIsMade) {
  const auto nobody = make_gpu_client(without_gpu());
  const auto no_gpu = nobody->compile(wide_difference(2), compile_for("cuda:sm_90a"));
  ASSERT_FALSE(no_gpu);
  EXPECT_EQ(no_gpu.error().code, Code::kUnsupported);
  EXPECT_NE(no_gpu.error().message.find("cuda:sm_90a"), std::string::npos);
  const auto which = nobody->fetch(wide_difference(2), compile_for("cuda"));
  ASSERT_FALSE(which);
  EXPECT_EQ(which.error().code, Code::kUnsupported);
  EXPECT_NE(which.error().message.find("name the one to compile for"), std::string::npos)
      << which.error().message;
  // Another architecture than the GPU's.
  const auto client = make_gpu_client(with_gpu());
  EXPECT_TRUE(client->fetch(wide_difference(2), compile_for("cuda:sm_80")));
  const auto older = client->compile(wide_difference(2), compile_for("cuda:sm_80"));
  ASSERT_FALSE(older);
  EXPECT_EQ(older.error().code, Code::kUnsupported);
  EXPECT_NE(older.error().message.find("sm_90a"), std::string::npos) << older.error().message;
}

TEST(CudaClient, WithoutNvrtcAndServiceItSaysWhatToInstall) {
  ClientOptions options = with_gpu();
  options.libnvrtc = kNowhere;
  const auto program = make_gpu_client(options)->compile(wide_difference(2), compile_for("cuda"));
  ASSERT_FALSE(program);
  EXPECT_EQ(program.error().code, Code::kUnavailable);
  EXPECT_NE(program.error().message.find("KILN_LIBNVRTC"), std::string::npos)
      << program.error().message;
}

TEST(CudaClient, TheLocalTierServesAMachineWithoutNvrtc) {
  const auto dir = TempDir::create();
  ASSERT_TRUE(dir);
  ClientOptions options = with_gpu();
  options.cache_dir = dir->path();
  ASSERT_TRUE(make_gpu_client(options)->compile(wide_difference(2), compile_for("cuda")));
  options.libnvrtc = kNowhere;
  const auto again = make_gpu_client(options)->compile(wide_difference(2), compile_for("cuda"));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->outcome(), Outcome::kHit);
}

// The contexts of the fake machine's GPUs, as a library like PyTorch uses them beside Kiln.
class TwoGpus : public ::testing::Test {
 protected:
  TwoGpus() {
    ::setenv("KILN_FAKE_GPUS", "2", 1);
    driver_ = std::make_unique<CudaDriver>(*CudaDriver::open(KILN_FAKE_LIBCUDA));
    for (int i = 0; i < 2; ++i)
      EXPECT_EQ(driver_->cuDevicePrimaryCtxRetain(&contexts_[i], i), CUDA_SUCCESS);
  }
  ~TwoGpus() override {
    driver_->cuCtxSetCurrent(nullptr);
    for (int i = 0; i < 2; ++i) driver_->cuDevicePrimaryCtxRelease(i);
    ::unsetenv("KILN_FAKE_GPUS");
  }

  CUcontext current() const {
    CUcontext context = nullptr;
    EXPECT_EQ(driver_->cuCtxGetCurrent(&context), CUDA_SUCCESS);
    return context;
  }

  std::unique_ptr<CudaDriver> driver_;
  CUcontext contexts_[2] = {};
};

TEST_F(TwoGpus, AProgramRunsOnItsClientsGpuAndLeavesTheCallersContextCurrent) {
  const Graph graph = wide_difference(2);
  const Tensor a = filled_wide(2, -1), b = filled_wide(2, 3);
  const Tensor* inputs[] = {&a, &b};
  for (const bool reduce_overhead : {false, true})
    for (const int gpu : {0, 1})
      for (const CUcontext callers : {contexts_[0], contexts_[1], CUcontext{nullptr}}) {
        ASSERT_EQ(driver_->cuCtxSetCurrent(callers), CUDA_SUCCESS);
        {
          ClientOptions options = with_gpu();
          options.gpu = gpu;
          CompileOptions wanted = compile_for("cuda");
          wanted.reduce_overhead = reduce_overhead;
          const auto program = make_gpu_client(options)->compile(graph, wanted);
          ASSERT_TRUE(program) << program.error().message;
          EXPECT_EQ(device_of(**program)->ordinal(), gpu);
          EXPECT_EQ(current(), callers);
          for (int i = 0; i < 2; ++i) {
            const auto outputs = (*program)->run(inputs);
            ASSERT_TRUE(outputs) << outputs.error().message;
            expect_difference(graph, a, b, (*outputs)[0]);
            EXPECT_EQ(current(), callers);
          }
        }
        EXPECT_EQ(current(), callers) << "after the program is gone";
      }
}

TEST_F(TwoGpus, AStreamOfTheOtherGpuIsRefused) {
  ASSERT_EQ(driver_->cuCtxSetCurrent(contexts_[0]), CUDA_SUCCESS);
  CUstream others = nullptr;
  ASSERT_EQ(driver_->cuStreamCreate(&others, 0), CUDA_SUCCESS);
  ClientOptions options = with_gpu();
  options.gpu = 1;
  const auto program = make_gpu_client(options)->compile(wide_difference(2), compile_for("cuda"));
  ASSERT_TRUE(program) << program.error().message;
  const auto memory = DeviceBuffer::allocate(device_of(**program), 3 * 512);
  ASSERT_TRUE(memory);
  const DevicePtr inputs[] = {memory->data(), memory->data() + 512},
                  outputs[] = {memory->data() + 1024};
  EXPECT_FALSE((*program)->launch(inputs, outputs, others));
  EXPECT_EQ(current(), contexts_[0]);
  driver_->cuStreamDestroy(others);
}

TEST_F(TwoGpus, AGpuThatIsNotThereIsSaidByItsNumber) {
  ClientOptions options = with_gpu();
  options.gpu = 2;
  const auto program = make_gpu_client(options)->compile(wide_difference(2), compile_for("cuda"));
  ASSERT_FALSE(program);
  EXPECT_NE(program.error().message.find("no GPU 2 here: there are 2"), std::string::npos)
      << program.error().message;
}

#endif  // KILN_FAKE_LIBCUDA

}  // namespace
}  // namespace kiln
