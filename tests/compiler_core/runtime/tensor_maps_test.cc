// Tensor maps on the fake GPU: what a kernel finds in its 128 bytes, and when they are made anew.
#include "compiler_core/base/file.h"
#include "compiler_core/runtime/executable.h"
#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

int maps_encoded() {
  return fake_count("kiln_fake_maps_encoded");
}

// f32 in[rows, 64] -> f32 out[4, 8]: the box of 4 rows and 8 columns from row 2 and column 3 on.
class TensorMapsTest : public FakeGpuTest {
 protected:
  static Artifact artifact(const Dim& rows) {
    Recipe recipe;
    recipe.inputs = {{DType::kF32, {rows, 64}}};
    recipe.outputs = {{DType::kF32, {4, 8}}};
    TensorMap map;
    map.sizes = {64, rows};
    map.strides = {256};
    map.box = {8, 4};
    map.element_strides = {1, 1};
    Phase phase{"box", 1, 32, 1, 128};
    using enum KernelArgument::Kind;
    phase.arguments = {{kBuffer, 1}, {kTensorMap, 0, map}};
    recipe.phases = {phase};
    return gpu_artifact(R"(
KILN_KERNEL(32, 1) box(float* out, const __grid_constant__ CUtensorMap map) {
  const int at[] = {3, 2};
  if (thread_index() == 0) kiln_fake::load_box(map, 4, shared_memory(), at);
  block_barrier();
  out[thread_index()] = reinterpret_cast<float*>(shared_memory())[thread_index()];
})",
                        std::move(recipe));
  }
  static std::vector<float> box_of(const std::vector<float>& in) {
    std::vector<float> box;
    for (size_t row = 2; row < 6; ++row)
      for (size_t column = 3; column < 11; ++column) {
        const size_t at = row * 64 + column;
        box.push_back(at < in.size() ? in[at] : 0);
      }
    return box;
  }
};

TEST_F(TensorMapsTest, AKernelTakesAMapByValueAndOtherBuffersGetMapsOfTheirOwn) {
  const auto kernel = gpu_->load(artifact(8));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const int before = maps_encoded();
  const DeviceBuffer one = upload(ramp(1, 512)), other = upload(ramp(2, 512)), out = memory(128);
  const auto run = [&](const DeviceBuffer& in) {
    const DevicePtr args[] = {in.data(), out.data()};
    const Status launched = (*kernel)->launch(args, 0, {}, nullptr, {});
    EXPECT_TRUE(launched) << launched.error().message;
    return download(out);
  };
  EXPECT_EQ(run(one), box_of(ramp(1, 512)));
  EXPECT_EQ(run(one), box_of(ramp(1, 512)));
  EXPECT_EQ(maps_encoded() - before, 1) << "once for one pointer";
  EXPECT_EQ(run(other), box_of(ramp(2, 512)));
  EXPECT_EQ(run(one), box_of(ramp(1, 512)));
  EXPECT_EQ(maps_encoded() - before, 2) << "and once for another";
}

TEST_F(TensorMapsTest, OtherSizesMakeAnotherMap) {
  const auto kernel = gpu_->load(artifact(Dim::symbol(0)));
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1, 512)), out = memory(128);
  const DevicePtr args[] = {in.data(), out.data()};
  for (const int64_t rows : {8, 5, 3, 8}) {
    const Status launched = (*kernel)->launch(args, 0, std::vector<int64_t>{rows}, nullptr, {});
    ASSERT_TRUE(launched) << launched.error().message;
    EXPECT_EQ(download(out), box_of(ramp(1, static_cast<size_t>(rows) * 64))) << rows;
  }
}

TEST_F(TensorMapsTest, AProgramFollowsItsCallersPointersAlsoWhenItIsReplayed) {
  Program program;
  const Artifact loaded = artifact(8);
  ProgramKernel kernel;
  kernel.blob = loaded.digest;
  kernel.recipe = loaded.recipe;
  program.kernels = {kernel};
  program.buffers = {{Buffer::Kind::kInput, 0, loaded.recipe.inputs[0], Dim(0)},
                     {Buffer::Kind::kOutput, 0, loaded.recipe.outputs[0], Dim(0)}};
  program.launches = {{0, {0, 1}}};
  program.output_buffers = {1};
  for (const bool reduce_overhead : {false, true}) {
    const auto executable =
        Executable::load(gpu_, program, {&loaded, 1}, {.reduce_overhead = reduce_overhead});
    ASSERT_TRUE(executable) << executable.error().message;
    const DeviceBuffer out = memory(128);
    for (const float step : {1.0f, 2.0f, 3.0f}) {
      const DeviceBuffer in = upload(ramp(step, 512));
      const DevicePtr inputs[] = {in.data()}, outputs[] = {out.data()};
      const Status launched = executable->launch(inputs, outputs, nullptr);
      ASSERT_TRUE(launched) << launched.error().message;
      EXPECT_EQ(download(out), box_of(ramp(step, 512))) << step;
    }
  }
}

// A kernel that writes down what it finds in a map of windows of f32[2, 4, 4, 16].
Artifact windows_artifact() {
  Recipe recipe;
  recipe.inputs = {{DType::kF32, {2, 4, 4, 16}}};  // n, h, w, c
  recipe.outputs = {{DType::kF32, {4, 8}}};
  TensorMap map;
  map.sizes = {16, 4, 4, 2};
  map.strides = {64, 256, 1024};
  map.element_strides = {1, 1, 1, 1};
  map.swizzle = 64;
  map.im2col = TensorMap::Im2col{{-1, -2}, {1, 2}, 16, 32};
  Phase phase{"windows", 1, 32, 1, 128};
  using enum KernelArgument::Kind;
  phase.arguments = {{kBuffer, 1}, {kTensorMap, 0, map}};
  recipe.phases = {phase};
  return gpu_artifact(R"(
KILN_KERNEL(32, 1) windows(float* out, const __grid_constant__ CUtensorMap map) {
  const float words[] = {static_cast<float>(map.is_im2col), static_cast<float>(map.lower[1]),
                         static_cast<float>(map.upper[0]), static_cast<float>(map.channels),
                         static_cast<float>(map.pixels), static_cast<float>(map.swizzle),
                         static_cast<float>(map.strides[2]), static_cast<float>(map.sizes[3])};
  if (thread_index() < 8) out[thread_index()] = words[thread_index()];
})",
                      std::move(recipe));
}

TEST_F(TensorMapsTest, AConvolutionsWindowsAreEncodedAsTheRecipeSays) {
  const auto kernel = gpu_->load(windows_artifact());
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1, 512)), out = memory(128);
  const DevicePtr args[] = {in.data(), out.data()};
  const Status launched = (*kernel)->launch(args, 0, {}, nullptr, {});
  ASSERT_TRUE(launched) << launched.error().message;
  const std::vector<float> words = download(out);
  EXPECT_EQ(std::vector<float>(words.begin(), words.begin() + 8),
            (std::vector<float>{1, -2, 1, 16, 32, 2, 1024, 2}));
}

TEST_F(TensorMapsTest, ADriverThatCannotEncodeWindowsIsRefusedByTheFunctionItLacks) {
  const TempDir dir = *TempDir::create();
  const std::string name = "cuTensorMapEncodeIm2col", library = dir.path() / "libcuda.so";
  std::string bytes = *read_file(kFakeLibcuda);
  for (size_t at = 0; (at = bytes.find(name, at)) != std::string::npos; ++at) bytes[at] = 'x';
  ASSERT_TRUE(write_file(library, bytes));
  const auto old = CudaDevice::open(0, library, kFakeLibcublaslt);
  ASSERT_TRUE(old) << old.error().message;
  const auto launch = [&](const Artifact& artifact) -> Status {
    TRY(const auto kernel, (*old)->load(artifact));
    TRY(const DeviceBuffer in, DeviceBuffer::allocate(*old, 4096));
    TRY(const DeviceBuffer out, DeviceBuffer::allocate(*old, 128));
    const DevicePtr args[] = {in.data(), out.data()};
    return kernel->launch(args, 0, {}, nullptr, {});
  };
  const Status tiled = launch(artifact(8)), windows = launch(windows_artifact());
  EXPECT_TRUE(tiled) << tiled.error().message;
  ASSERT_FALSE(windows);
  EXPECT_EQ(windows.error().code, Code::kUnsupported);
  EXPECT_NE(windows.error().message.find(name), std::string::npos) << windows.error().message;
}

TEST_F(TensorMapsTest, AMapThatTheDriverRefusesFailsTheLaunch) {
  Artifact bad = artifact(8);
  bad.recipe.phases[0].arguments[1].map->swizzle = 32;
  bad.recipe.phases[0].arguments[1].map->box = {16, 4};  // 64 bytes
  const auto kernel = gpu_->load(bad);
  ASSERT_TRUE(kernel) << kernel.error().message;
  const DeviceBuffer in = upload(ramp(1, 512)), out = memory(128);
  const DevicePtr args[] = {in.data(), out.data()};
  const Status launched = (*kernel)->launch(args, 0, {}, nullptr, {});
  ASSERT_FALSE(launched);
  EXPECT_EQ(launched.error().code, Code::kInvalidArgument);
}

}  // namespace
}  // namespace kiln
