// The fake driver and the fake NVRTC, through their C interfaces.
#include <cuda.h>
#include <dlfcn.h>
#include <gtest/gtest.h>
#include <nvrtc.h>

#include <chrono>
#include <string>
#include <thread>
#include <vector>

#define KILN_TEXT(name) #name
#define KILN_DRIVER(name) look_up<decltype(&::name)>(libcuda(), KILN_TEXT(name))
#define KILN_NVRTC(name) look_up<decltype(&::name)>(libnvrtc(), #name)

namespace {

void* open(const char* path) {
  void* library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  EXPECT_NE(library, nullptr) << dlerror();
  return library;
}
void* libcuda() {
  static void* const library = open(KILN_FAKE_LIBCUDA);
  return library;
}
void* libnvrtc() {
  static void* const library = open(KILN_FAKE_LIBNVRTC);
  return library;
}
template <class F>
F look_up(void* library, const char* name) {
  void* function = dlsym(library, name);
  EXPECT_NE(function, nullptr) << name;
  return reinterpret_cast<F>(function);
}

struct Compiled {
  nvrtcResult result = NVRTC_SUCCESS;
  std::string log, cubin;
};

Compiled compile(const std::string& text, std::vector<const char*> options,
                 int (*give_up)(void*, void*) = nullptr) {
  Compiled compiled;
  nvrtcProgram program = nullptr;
  EXPECT_EQ(KILN_NVRTC(nvrtcCreateProgram)(&program, text.c_str(), "k.cu", 0, nullptr, nullptr),
            NVRTC_SUCCESS);
  if (give_up != nullptr) KILN_NVRTC(nvrtcSetFlowCallback)(program, give_up, nullptr);
  compiled.result =
      KILN_NVRTC(nvrtcCompileProgram)(program, static_cast<int>(options.size()), options.data());
  size_t size = 0;
  KILN_NVRTC(nvrtcGetProgramLogSize)(program, &size);
  compiled.log.resize(size);
  KILN_NVRTC(nvrtcGetProgramLog)(program, compiled.log.data());
  KILN_NVRTC(nvrtcGetCUBINSize)(program, &size);
  compiled.cubin.resize(size);
  KILN_NVRTC(nvrtcGetCUBIN)(program, compiled.cubin.data());
  KILN_NVRTC(nvrtcDestroyProgram)(&program);
  return compiled;
}

constexpr char kKernels[] = R"(
extern "C" __global__ void __launch_bounds__(64) add(const float* in, float* out, long long n) {
  const int i = block_index() * 64 + thread_index();
  if (i < n) out[i] += in[i];
}
KILN_KERNEL(32, 1) shared(float* out, long long n) {
  float* words = reinterpret_cast<float*>(shared_memory());
  words[n - 1 - thread_index()] = 1;
  out[thread_index()] = words[n - 1 - thread_index()];
}
KILN_KERNEL(32, 1) rank(float* out) {
#if __CUDA_ARCH__ >= 900
  out[block_index() * 32 + thread_index()] = cluster_rank();
#endif
}
KILN_KERNEL(32, 1) stray(float* out) { out[1 << 20] = 1; }
KILN_KERNEL(32, 1) misaligned(float* out) {
  Bits<16> x{};
  store_output(out + 1, x);
}
KILN_KERNEL(32, 1) uneven(float*) { if (thread_index() != 4) block_barrier(); }
KILN_KERNEL(32, 1) patient(const float* go) {
  while (*const_cast<const volatile float*>(go) == 0) {}
}
)";

const std::string& cubin() {
  static const std::string bytes = compile(kKernels, {"--gpu-architecture=sm_90a"}).cubin;
  return bytes;
}

// A context, a loaded library, a stream and 256 floats; all gone afterwards, faults included.
class FakeDriver : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(KILN_DRIVER(cuInit)(0), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuDevicePrimaryCtxRetain)(&context_, 0), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuCtxSetCurrent)(context_), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuLibraryLoadData)(&library_, cubin().data(), nullptr, nullptr, 0,
                                             nullptr, nullptr, 0),
              CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuStreamCreate)(&stream_, CU_STREAM_NON_BLOCKING), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuMemAlloc)(&in_, 1024), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuMemAlloc)(&out_, 1024), CUDA_SUCCESS);
    const std::vector<float> ones(256, 1);
    ASSERT_EQ(KILN_DRIVER(cuMemcpyHtoD)(in_, ones.data(), 1024), CUDA_SUCCESS);
    ASSERT_EQ(KILN_DRIVER(cuMemsetD8Async)(out_, 0, 1024, stream_), CUDA_SUCCESS);
  }
  void TearDown() override {
    KILN_DRIVER(cuStreamDestroy)(stream_);
    KILN_DRIVER(cuLibraryUnload)(library_);
    KILN_DRIVER(cuDevicePrimaryCtxRelease)(0);
  }

  CUfunction function(const char* name) {
    CUkernel kernel = nullptr;
    EXPECT_EQ(KILN_DRIVER(cuLibraryGetKernel)(&kernel, library_, name), CUDA_SUCCESS);
    CUfunction found = nullptr;
    EXPECT_EQ(KILN_DRIVER(cuKernelGetFunction)(&found, kernel), CUDA_SUCCESS);
    return found;
  }
  CUresult launch(const char* name, std::vector<uint64_t> values, unsigned blocks = 1,
                  unsigned threads = 32, unsigned shared = 0, unsigned cluster = 1) {
    CUlaunchAttribute attribute{};
    attribute.id = CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION;
    attribute.value.clusterDim = {cluster, 1, 1};
    CUlaunchConfig config{};
    config.gridDimX = blocks, config.gridDimY = config.gridDimZ = 1;
    config.blockDimX = threads, config.blockDimY = config.blockDimZ = 1;
    config.sharedMemBytes = shared;
    config.hStream = stream_;
    config.attrs = &attribute;
    config.numAttrs = 1;
    std::vector<void*> parameters;
    for (uint64_t& value : values) parameters.push_back(&value);
    return KILN_DRIVER(cuLaunchKernelEx)(&config, function(name), parameters.data(), nullptr);
  }
  CUresult add(int64_t n = 256) {
    return launch("add", {in_, out_, static_cast<uint64_t>(n)}, 4, 64);
  }
  CUresult synchronize() { return KILN_DRIVER(cuStreamSynchronize)(stream_); }
  std::vector<float> out() {
    std::vector<float> values(256);
    EXPECT_EQ(synchronize(), CUDA_SUCCESS);
    EXPECT_EQ(KILN_DRIVER(cuMemcpyDtoH)(values.data(), out_, 1024), CUDA_SUCCESS);
    return values;
  }

  CUcontext context_ = nullptr;
  CUlibrary library_ = nullptr;
  CUstream stream_ = nullptr;
  CUdeviceptr in_ = 0, out_ = 0;
};

TEST_F(FakeDriver, LaunchesAreInOrderOnAStream) {
  EXPECT_EQ(add(), CUDA_SUCCESS);
  EXPECT_EQ(KILN_DRIVER(cuMemcpyDtoDAsync)(in_, out_, 512, stream_), CUDA_SUCCESS);
  EXPECT_EQ(add(200), CUDA_SUCCESS);
  const std::vector<float> values = out();
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(values[i], i < 200 ? 2.0f : 1.0f) << i;
}

TEST_F(FakeDriver, TheHostGoesOnWhileAKernelRuns) {
  const float no = 0;
  ASSERT_EQ(KILN_DRIVER(cuMemcpyHtoD)(in_, &no, 4), CUDA_SUCCESS);
  EXPECT_EQ(launch("patient", {in_}), CUDA_SUCCESS);
  EXPECT_EQ(KILN_DRIVER(cuStreamQuery)(stream_), CUDA_ERROR_NOT_READY);
  *reinterpret_cast<volatile float*>(in_) = 1;  // no copy would overtake the kernel
  EXPECT_EQ(synchronize(), CUDA_SUCCESS);
  EXPECT_EQ(KILN_DRIVER(cuStreamQuery)(stream_), CUDA_SUCCESS);
}

TEST_F(FakeDriver, AHangingKernelLeavesTheProcessFreeToEnd) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // the device's thread is no child's
  const auto hang = [this] {
    const float no = 0;
    KILN_DRIVER(cuMemcpyHtoD)(in_, &no, 4);
    launch("patient", {in_});
    std::exit(KILN_DRIVER(cuStreamQuery)(stream_) == CUDA_ERROR_NOT_READY ? 7 : 1);
  };
  EXPECT_EXIT(hang(), ::testing::ExitedWithCode(7), "");
}

TEST_F(FakeDriver, SharedMemoryBeyondTheOrdinaryIsAskedFor) {
  const unsigned bytes = 64 << 10;
  EXPECT_EQ(launch("shared", {out_, bytes / 4}, 1, 32, bytes), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(KILN_DRIVER(cuFuncSetAttribute)(function("shared"),
                                            CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES,
                                            static_cast<int>(bytes)),
            CUDA_SUCCESS);
  EXPECT_EQ(launch("shared", {out_, bytes / 4}, 1, 32, bytes), CUDA_SUCCESS);
  EXPECT_EQ(out()[31], 1.0f);
  EXPECT_EQ(KILN_DRIVER(cuFuncSetAttribute)(
                function("shared"), CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, 228 << 10),
            CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FakeDriver, ClustersDivideTheGridAndLargeOnesAreAskedFor) {
  EXPECT_EQ(launch("rank", {out_}, 8, 32, 0, 4), CUDA_SUCCESS);
  const std::vector<float> ranks = out();
  for (size_t i = 0; i < 256; ++i) EXPECT_EQ(ranks[i], static_cast<float>(i / 32 % 4));
  EXPECT_EQ(launch("rank", {out_}, 6, 32, 0, 4), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(launch("rank", {out_}, 16, 32, 0, 16), CUDA_ERROR_INVALID_CLUSTER_SIZE);
  EXPECT_EQ(launch("add", {in_, out_, 1}, 1, 128), CUDA_ERROR_INVALID_VALUE) << "launch bounds";
}

TEST_F(FakeDriver, AFaultStays) {
  const std::pair<const char*, CUresult> faults[] = {{"stray", CUDA_ERROR_ILLEGAL_ADDRESS},
                                                     {"misaligned", CUDA_ERROR_MISALIGNED_ADDRESS},
                                                     {"uneven", CUDA_ERROR_LAUNCH_FAILED}};
  for (const auto& [name, error] : faults) {
    EXPECT_EQ(launch(name, {out_}), CUDA_SUCCESS) << "it is only found out later";
    EXPECT_EQ(synchronize(), error) << name;
    EXPECT_EQ(KILN_DRIVER(cuMemsetD8Async)(out_, 0, 4, stream_), error);
    CUdeviceptr more = 0;
    EXPECT_EQ(KILN_DRIVER(cuMemAlloc)(&more, 16), error);
    float value = 0;
    EXPECT_EQ(KILN_DRIVER(cuMemcpyDtoH)(&value, out_, 4), error);
    // A new context is as good as new.
    TearDown();
    SetUp();
    EXPECT_EQ(add(), CUDA_SUCCESS);
    EXPECT_EQ(out()[255], 1.0f);
  }
}

TEST_F(FakeDriver, MemoryHasBoundsAndAnEnd) {
  std::vector<char> host(2048);
  EXPECT_EQ(KILN_DRIVER(cuMemcpyHtoD)(out_ + 512, host.data(), 513), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(KILN_DRIVER(cuMemcpyHtoD)(out_ + 512, host.data(), 512), CUDA_SUCCESS);
  EXPECT_EQ(out_ % 256, 0u);
  CUdeviceptr huge = 0;
  EXPECT_EQ(KILN_DRIVER(cuMemAlloc)(&huge, size_t{1} << 40), CUDA_ERROR_OUT_OF_MEMORY);
  EXPECT_EQ(KILN_DRIVER(cuMemFree)(out_ + 16), CUDA_ERROR_INVALID_VALUE);
  EXPECT_EQ(KILN_DRIVER(cuMemFree)(out_), CUDA_SUCCESS);
  EXPECT_EQ(KILN_DRIVER(cuMemFree)(out_), CUDA_ERROR_INVALID_VALUE);
}

TEST_F(FakeDriver, AGraphReplaysWhatWasCaptured) {
  ASSERT_EQ(synchronize(), CUDA_SUCCESS);
  const auto capture = [this](int times) {
    EXPECT_EQ(KILN_DRIVER(cuStreamBeginCapture)(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
              CUDA_SUCCESS);
    for (int i = 0; i < times; ++i) EXPECT_EQ(add(100 * times), CUDA_SUCCESS);
    CUgraph graph = nullptr;
    EXPECT_EQ(KILN_DRIVER(cuStreamEndCapture)(stream_, &graph), CUDA_SUCCESS);
    return graph;
  };
  CUgraph two = capture(2), one = capture(1);
  EXPECT_EQ(out()[0], 0.0f) << "capturing runs nothing";
  CUgraphExec instance = nullptr;
  ASSERT_EQ(KILN_DRIVER(cuGraphInstantiate)(&instance, two, 0), CUDA_SUCCESS);
  for (int i = 0; i < 3; ++i)
    EXPECT_EQ(KILN_DRIVER(cuGraphLaunch)(instance, stream_), CUDA_SUCCESS);
  EXPECT_EQ(out()[0], 6.0f);
  CUgraphExecUpdateResultInfo why{};
  EXPECT_EQ(KILN_DRIVER(cuGraphExecUpdate)(instance, one, &why),
            CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
  KILN_DRIVER(cuGraphDestroy)(one);
  one = capture(1);
  CUgraphExec single = nullptr;
  ASSERT_EQ(KILN_DRIVER(cuGraphInstantiate)(&single, one, 0), CUDA_SUCCESS);
  KILN_DRIVER(cuGraphDestroy)(one);
  EXPECT_EQ(KILN_DRIVER(cuGraphLaunch)(single, stream_), CUDA_SUCCESS);
  EXPECT_EQ(out()[99], 7.0f);
  EXPECT_EQ(out()[100], 6.0f);
  KILN_DRIVER(cuGraphDestroy)(two);
  KILN_DRIVER(cuGraphExecDestroy)(instance);
  KILN_DRIVER(cuGraphExecDestroy)(single);
}

TEST_F(FakeDriver, WaitingSpoilsACapture) {
  ASSERT_EQ(KILN_DRIVER(cuStreamBeginCapture)(stream_, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL),
            CUDA_SUCCESS);
  EXPECT_EQ(synchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  CUgraph graph = nullptr;
  EXPECT_EQ(KILN_DRIVER(cuStreamEndCapture)(stream_, &graph),
            CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  EXPECT_EQ(graph, nullptr);
}

TEST_F(FakeDriver, EventsTimeWhatLiesBetween) {
  CUevent start = nullptr, end = nullptr;
  KILN_DRIVER(cuEventCreate)(&start, CU_EVENT_DEFAULT);
  KILN_DRIVER(cuEventCreate)(&end, CU_EVENT_DEFAULT);
  float ms = -1;
  EXPECT_EQ(KILN_DRIVER(cuEventElapsedTime)(&ms, start, end), CUDA_ERROR_INVALID_HANDLE);
  KILN_DRIVER(cuEventRecord)(start, stream_);
  add();
  KILN_DRIVER(cuEventRecord)(end, stream_);
  EXPECT_EQ(KILN_DRIVER(cuEventSynchronize)(end), CUDA_SUCCESS);
  EXPECT_EQ(KILN_DRIVER(cuEventElapsedTime)(&ms, start, end), CUDA_SUCCESS);
  EXPECT_GT(ms, 0);
  KILN_DRIVER(cuEventDestroy)(start);
  KILN_DRIVER(cuEventDestroy)(end);
}

TEST_F(FakeDriver, OnlyCubinsOfItsOwnArchitectureLoad) {
  const auto load = [](const std::string& bytes) {
    CUlibrary library = nullptr;
    return KILN_DRIVER(cuLibraryLoadData)(&library, bytes.data(), nullptr, nullptr, 0, nullptr,
                                          nullptr, 0);
  };
  EXPECT_EQ(load(compile(kKernels, {"-arch=sm_80"}).cubin), CUDA_ERROR_NO_BINARY_FOR_GPU);
  EXPECT_EQ(load("no cubin at all"), CUDA_ERROR_INVALID_IMAGE);
  CUkernel kernel = nullptr;
  EXPECT_EQ(KILN_DRIVER(cuLibraryGetKernel)(&kernel, library_, "absent"), CUDA_ERROR_NOT_FOUND);
}

TEST(FakeNvrtc, EqualSourcesGiveEqualBytes) {
  EXPECT_EQ(compile(kKernels, {"--gpu-architecture=sm_90a"}).cubin, cubin());
  EXPECT_NE(compile(kKernels, {"-arch=sm_80"}).cubin, cubin());
}

TEST(FakeNvrtc, TheLogSaysWhatPtxasWouldSay) {
  const std::string text = "KILN_KERNEL(32, 1) k(float*) {}\n";
  EXPECT_EQ(compile(text, {"-arch=sm_90a"}).log, std::string(1, '\0'));
  const std::string plain = compile(text, {"-arch=sm_90a", "--ptxas-options=-v"}).log;
  EXPECT_NE(plain.find("Compiling entry function 'k' for 'sm_90a'"), std::string::npos) << plain;
  EXPECT_NE(plain.find("0 bytes stack frame, 0 bytes spill stores"), std::string::npos) << plain;
  const std::string set =
      compile("// fake ptxas: 255 registers, 64 bytes stack, 48 bytes spill\n" + text,
              {"-arch=sm_90a", "--ptxas-options=-v"})
          .log;
  EXPECT_NE(set.find("64 bytes stack frame, 48 bytes spill stores, 48 bytes spill loads"),
            std::string::npos)
      << set;
  EXPECT_NE(set.find("Used 255 registers"), std::string::npos) << set;
}

TEST(FakeNvrtc, RefusalsAreThoseOfNvrtc) {
  const Compiled broken = compile("KILN_KERNEL(32, 1) k(float* x) { x[0] = b; }", {"-arch=sm_90a"});
  EXPECT_EQ(broken.result, NVRTC_ERROR_COMPILATION);
  EXPECT_NE(broken.log.find("kernel.cu:1"), std::string::npos) << broken.log;
  EXPECT_EQ(compile("", {"-arch=sm_91"}).result, NVRTC_ERROR_INVALID_OPTION);
  EXPECT_EQ(compile("", {"--no-such-option"}).result, NVRTC_ERROR_INVALID_OPTION);
  const auto give_up = [](void*, void*) { return 1; };
  EXPECT_EQ(compile(kKernels, {"-arch=sm_90a"}, give_up).result, NVRTC_ERROR_CANCELLED);
}

}  // namespace
