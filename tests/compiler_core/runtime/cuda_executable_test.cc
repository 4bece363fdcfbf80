#include "compiler_core/runtime/executable.h"

#include "compiler_core/runtime/cuda_graph.h"
#include "tests/compiler_core/runtime/fake_gpu.h"

namespace kiln {
namespace {

// in0 f32[64] -> t (times 2) -> out0 (times 3); out1 is out0, out2 is in0.
class CudaExecutableTest : public FakeGpuTest {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (gpu_ == nullptr) return;
    artifacts_ = {scale_artifact("2"), scale_artifact("3")};
    for (const Artifact& artifact : artifacts_) {
      ProgramKernel kernel;
      kernel.blob = artifact.digest;
      kernel.recipe = artifact.recipe;
      program_.kernels.push_back(kernel);
    }
    const TensorSpec spec = artifacts_[0].recipe.inputs[0];
    program_.buffers = {{Buffer::Kind::kInput, 0, spec, Dim(0)},
                        {Buffer::Kind::kTemporary, 0, spec, Dim(64)},
                        {Buffer::Kind::kOutput, 0, spec, Dim(0)}};
    program_.launches = {{0, {0, 1}}, {1, {1, 2}}};
    program_.output_buffers = {2, 2, 0};
    program_.arena_bytes = Dim(64 + 256);
  }
  Executable load(bool reduce_overhead) const {
    auto loaded = Executable::load(gpu_, program_, artifacts_, {reduce_overhead});
    EXPECT_TRUE(loaded) << loaded.error().message;
    return *std::move(loaded);
  }
  Code load_error() const {
    const auto loaded = Executable::load(gpu_, program_, artifacts_, {});
    EXPECT_FALSE(loaded);
    return loaded ? Code::kInternal : loaded.error().code;
  }

  std::vector<Artifact> artifacts_;
  Program program_;
};

TEST_F(CudaExecutableTest, LaunchesInOrderAndFillsSharedOutputsOnAnyStream) {
  const auto own = gpu_->create_stream();
  ASSERT_TRUE(own);
  for (const bool reduce_overhead : {false, true}) {
    const Executable executable = load(reduce_overhead);
    for (CudaStream stream : {CudaStream{nullptr}, *own}) {
      const DeviceBuffer in = upload(ramp(1)), a = memory(256), b = memory(256), c = memory(256);
      const DevicePtr inputs[] = {in.data()}, outputs[] = {a.data(), b.data(), c.data()};
      const Status launched = executable.launch(inputs, outputs, stream);
      ASSERT_TRUE(launched) << launched.error().message;
      ASSERT_TRUE(gpu_->synchronize(stream));
      EXPECT_EQ(download(a), ramp(6)) << reduce_overhead;
      EXPECT_EQ(download(b), ramp(6)) << reduce_overhead;
      EXPECT_EQ(download(c), ramp(1)) << reduce_overhead;
    }
  }
  gpu_->destroy_stream(*own);
}

TEST_F(CudaExecutableTest, AReplayReadsWhatIsThereNowAndFollowsTheCallersPointers) {
  const Executable executable = load(true);
  const DeviceBuffer in = upload(ramp(1)), other = upload(ramp(10)), a = memory(256),
                     b = memory(256), c = memory(256);
  const auto run = [&](const DeviceBuffer& input, const DeviceBuffer& output) {
    const DevicePtr inputs[] = {input.data()}, outputs[] = {output.data(), b.data(), c.data()};
    const Status launched = executable.launch(inputs, outputs, nullptr);
    EXPECT_TRUE(launched) << launched.error().message;
    return download(output);
  };
  EXPECT_EQ(run(in, a), ramp(6));
  ASSERT_TRUE(gpu_->copy_on_device(in.data(), other.data(), 256, nullptr));
  EXPECT_EQ(run(in, a), ramp(60)) << "the same pointers, other values";
  ASSERT_TRUE(gpu_->fill(in.data(), 0, 256, nullptr));
  EXPECT_EQ(run(other, a), ramp(60)) << "another input";
  const DeviceBuffer d = memory(256);
  EXPECT_EQ(run(other, d), ramp(60)) << "another output";
  EXPECT_EQ(run(in, a), ramp(0)) << "and back";
}

// Element 5 of the input is -1 in the output; the others are the input's, copied where the two lie apart.
TEST_F(CudaExecutableTest, AnOutputThatKeepsElementsOfAnInputMayLieInItOrApart) {
  Recipe recipe;
  recipe.inputs = recipe.outputs = {{DType::kF32, {64}}};
  recipe.phases = {{"update", 1, 32, 1, 0}};
  recipe.kept = {{0, 0}};
  artifacts_ = {gpu_artifact(
      "KILN_KERNEL(32, 1) update(const float*, float* out, char*) { out[5] = -1; }", recipe)};
  program_.kernels.resize(1);
  program_.kernels[0].blob = artifacts_[0].digest;
  program_.kernels[0].recipe = recipe;
  program_.buffers = {{Buffer::Kind::kInput, 0, recipe.inputs[0], Dim(0)},
                      {Buffer::Kind::kOutput, 0, recipe.inputs[0], Dim(0)}};
  program_.launches = {{0, {0, 1}}};
  program_.output_buffers = {1};
  program_.arena_bytes = 0;
  std::vector<float> updated = ramp(1);
  updated[5] = -1;
  for (const bool reduce_overhead : {false, true}) {
    const Executable executable = load(reduce_overhead);
    const DeviceBuffer in = upload(ramp(1)), same = upload(ramp(1)), out = memory(256);
    const auto run = [&](const DeviceBuffer& input, const DeviceBuffer& output) {
      const DevicePtr inputs[] = {input.data()}, outputs[] = {output.data()};
      EXPECT_TRUE(executable.launch(inputs, outputs, nullptr));
      EXPECT_TRUE(gpu_->synchronize(nullptr));
      return download(output);
    };
    EXPECT_EQ(run(in, out), updated) << reduce_overhead;
    EXPECT_EQ(run(same, same), updated) << reduce_overhead;
    EXPECT_EQ(download(in), ramp(1)) << "what lies apart stays";
    ASSERT_TRUE(gpu_->fill(out.data(), 0, 256, nullptr));
    EXPECT_EQ(run(in, out), updated) << "and apart again";
  }
}

// out = a + b, and 1000 more where b may be read before the kernel in front has ended.
class EarlyReadTest : public FakeGpuTest {
 protected:
  // x, w -> t = x + w; `last` -> out. Buffers: 0 x, 1 w, 2 t, 3 out.
  std::vector<float> run(std::vector<int> last, const DeviceBuffer& x, const DeviceBuffer& w,
                         const DeviceBuffer& out, bool reduce_overhead) {
    const TensorSpec spec{DType::kF32, {64}};
    Recipe recipe;
    recipe.inputs = {spec, spec};
    recipe.outputs = {spec};
    using enum KernelArgument::Kind;
    Phase phase{"add", 2, 32, 1, 0};
    phase.dependent_launch = DependentLaunch::kAtOnce;
    phase.arguments = {{kBuffer, 0}, {kBuffer, 1}, {kBuffer, 2}, {kWorkspace}, {kReady, 1}};
    recipe.phases = {phase};
    const Artifact artifact = gpu_artifact(R"(
KILN_KERNEL(32, 1) add(const float* a, const float* b, float* out, char*, long ready) {
  wait_for_kernel_before();
  const int i = block_index() * 32 + thread_index();
  out[i] = a[i] + b[i] + 1000.0f * ready;
})",
                                           recipe);
    Program program;
    ProgramKernel kernel;
    kernel.blob = artifact.digest;
    kernel.recipe = recipe;
    program.kernels = {kernel};
    program.buffers = {{Buffer::Kind::kInput, 0, spec, Dim(0)},
                       {Buffer::Kind::kInput, 1, spec, Dim(0)},
                       {Buffer::Kind::kTemporary, 0, spec, Dim(64)},
                       {Buffer::Kind::kOutput, 0, spec, Dim(0)}};
    program.launches = {{0, {0, 1, 2}}, {0, std::move(last)}};
    program.output_buffers = {3};
    program.arena_bytes = Dim(64 + 256);
    const Artifact artifacts[] = {artifact};
    const auto executable = Executable::load(gpu_, program, artifacts, {reduce_overhead});
    EXPECT_TRUE(executable) << executable.error().message;
    const DevicePtr inputs[] = {x.data(), w.data()}, outputs[] = {out.data()};
    EXPECT_TRUE(executable->launch(inputs, outputs, nullptr));
    EXPECT_TRUE(gpu_->synchronize(nullptr));
    return download(out);
  }
};

TEST_F(EarlyReadTest, InputsThatNobodyWritesAreReadyFromTheSecondLaunchOn) {
  for (const bool reduce_overhead : {false, true}) {
    const DeviceBuffer x = upload(ramp(1)), w = upload(ramp(10)), out = memory(256);
    std::vector<float> early = ramp(21), late = ramp(12);
    for (float& value : early) value += 1000;
    EXPECT_EQ(run({2, 1, 3}, x, w, out, reduce_overhead), early) << "t + w";
    EXPECT_EQ(run({0, 2, 3}, x, w, out, reduce_overhead), late) << "x + t: t has just been written";
    EXPECT_EQ(run({2, 1, 3}, x, w, w, reduce_overhead), ramp(21)) << "the result lies where w does";
  }
}

// A kernel in front of the program may write the inputs that its second launch reads early.
TEST_F(EarlyReadTest, TheFirstLaunchOfAProgramIsBehindAllInFrontOfIt) {
  const DeviceBuffer x = upload(ramp(1)), w = upload(ramp(10)), out = memory(256);
  const int before = fake_count("kiln_fake_early_launches");
  run({2, 1, 3}, x, w, out, false);
  EXPECT_EQ(fake_count("kiln_fake_early_launches") - before, 1);
}

// in f32[s0] -> t (times 2) -> out (times 3).
class SizedCudaExecutableTest : public CudaExecutableTest {
 protected:
  void SetUp() override {
    FakeGpuTest::SetUp();
    if (gpu_ == nullptr) return;
    const TensorSpec spec{DType::kF32, {Dim::symbol(0)}};
    for (const char* factor : {"2", "3"}) {
      Recipe recipe;
      recipe.inputs = recipe.outputs = {spec};
      recipe.phases = {{"scale", Grid({{Dim::symbol(0), 32}}), 32}};
      artifacts_.push_back(gpu_artifact(std::string(R"(
KILN_KERNEL(32, 1) scale(const float* in, float* out, char*, long size) {
  const long i = block_index() * 32 + thread_index();
  if (i < size) out[i] = in[i] * )") + factor +
                                            ";\n}",
                                        std::move(recipe)));
      ProgramKernel kernel;
      kernel.blob = artifacts_.back().digest;
      kernel.recipe = artifacts_.back().recipe;
      program_.kernels.push_back(kernel);
    }
    program_.buffers = {{Buffer::Kind::kInput, 0, spec, Dim(0)},
                        {Buffer::Kind::kTemporary, 0, spec, Dim(64)},
                        {Buffer::Kind::kOutput, 0, spec, Dim(0)}};
    program_.launches = {{0, {0, 1}, {Dim::symbol(0)}}, {1, {1, 2}, {Dim::symbol(0)}}};
    program_.output_buffers = {2};
    program_.arena_bytes = Dim::symbol(0) * 64 + Dim(64);
    program_.symbols = {{0, 4096, 64}};
  }
};

TEST_F(SizedCudaExecutableTest, OneProgramRunsEverySize) {
  for (const bool reduce_overhead : {false, true}) {
    const Executable executable = load(reduce_overhead);
    // More sizes than are kept captured, and back to the first.
    for (const int size :
         {1, 33, 64, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 4096, 1, 33, 0}) {
      const std::vector<float> values = ramp(1, static_cast<size_t>(size));
      const DeviceBuffer in = upload(values), out = memory(size * 4);
      const DevicePtr inputs[] = {in.data()}, outputs[] = {out.data()};
      const Status launched =
          executable.launch(inputs, outputs, nullptr, std::vector<int64_t>{size});
      ASSERT_TRUE(launched) << launched.error().message;
      ASSERT_TRUE(gpu_->synchronize(nullptr));
      EXPECT_EQ(download(out), ramp(6, static_cast<size_t>(size))) << size;
    }
  }
}

TEST_F(SizedCudaExecutableTest, MemoryIsNotAllocatedWhileTheStreamIsCaptured) {
  const Executable executable = load(false);
  const DeviceBuffer in = upload(ramp(1)), out = memory(256);
  const DevicePtr inputs[] = {in.data()}, outputs[] = {out.data()};
  const auto launch = [&](CudaStream stream) {
    return executable.launch(inputs, outputs, stream, std::vector<int64_t>{64});
  };
  const auto captured = CudaGraph::capture(gpu_, launch);
  ASSERT_FALSE(captured);
  EXPECT_EQ(captured.error().code, Code::kInvalidArgument);
  ASSERT_TRUE(launch(nullptr));
  const auto warm = CudaGraph::capture(gpu_, launch);
  ASSERT_TRUE(warm) << warm.error().message;
  ASSERT_TRUE(gpu_->fill(out.data(), 0, 256, nullptr));
  ASSERT_TRUE(warm->replay(nullptr));
  ASSERT_TRUE(gpu_->synchronize(nullptr));
  EXPECT_EQ(download(out), ramp(6));
}

TEST_F(CudaExecutableTest, RefusesBuffersItCannotUse) {
  const Executable executable = load(false);
  const DeviceBuffer memory_of_test = memory(4096);
  const DevicePtr p = memory_of_test.data();
  const DevicePtr good[] = {p, p + 256, p + 512}, null[] = {0}, crooked[] = {p + 8, p, p};
  const auto code = [&](std::span<const DevicePtr> in, std::span<const DevicePtr> out) {
    const Status status = executable.launch(in, out, nullptr);
    return status ? Code::kInternal : status.error().code;
  };
  EXPECT_EQ(code({}, good), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, {good, 2}), Code::kInvalidArgument);
  EXPECT_EQ(code(null, good), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, crooked), Code::kInvalidArgument);
  EXPECT_EQ(code({crooked, 1}, good), Code::kInvalidArgument);
}

TEST_F(CudaExecutableTest, RefusesAProgramThatIsNotSound) {
  const Program good = program_;
  program_.kernels[1].blob = Digest::of("another");
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_ = good;
  program_.buffers[1].spec.dtype = DType::kI32;
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_ = good;
  program_.arena_bytes = Dim(int64_t{1} << 50);
  EXPECT_EQ(load_error(), Code::kOverloaded);
  program_ = good;
  artifacts_.pop_back();
  EXPECT_EQ(load_error(), Code::kInvalidArgument);
}

// The fake GPU has 2 GiB.
TEST_F(SizedCudaExecutableTest, SizesThatTheGpuHasNoRoomForAreRefusedBeforeAnythingIsAllocated) {
  program_.arena_bytes = Dim::symbol(0) * Dim(int64_t{1} << 24) + Dim(64);
  const Executable executable = load(false);
  const DeviceBuffer in = upload(ramp(1)), out = memory(256);
  const DevicePtr inputs[] = {in.data()}, outputs[] = {out.data()};
  const auto launch = [&](int64_t size) {
    return executable.launch(inputs, outputs, nullptr, std::vector<int64_t>{size});
  };
  const auto before = gpu_->free_bytes();
  ASSERT_TRUE(before);
  const Status refused = launch(2048);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOverloaded);
  for (const std::string& part : {std::string("needs 34359738432 bytes"),
                                  std::to_string(*before) + " are available on the GPU"})
    EXPECT_NE(refused.error().message.find(part), std::string::npos) << refused.error().message;
  EXPECT_EQ(gpu_->free_bytes().value_or(0), *before);
  const Status fits = launch(8);
  EXPECT_TRUE(fits) << fits.error().message;
}

}  // namespace
}  // namespace kiln
