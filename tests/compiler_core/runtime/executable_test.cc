#include "compiler_core/runtime/executable.h"

#include <gtest/gtest.h>

#include "compiler_core/base/tensor.h"
#include "compiler_core/runtime/cpu_device.h"
#include "tests/compiler_core/runtime/test_artifact.h"
#include "tests/support/fake_nvtx/fake_nvtx.h"

namespace kiln {
namespace {

// in0 i64[s0] -> t i64[1] (twice its sum) -> out0 i64[1] (twice that); out1 is out0, out2 is in0.
class ExecutableTest : public ::testing::Test {
 protected:
  void SetUp() override {
    artifacts_ = {running_sum_artifact(1), running_sum_artifact(1)};
    Artifact& second = artifacts_[1];
    second.recipe.inputs[0].shape = {Dim(1)};
    for (const Artifact& artifact : artifacts_) {
      ProgramKernel kernel;
      kernel.blob = artifact.digest;
      kernel.recipe = artifact.recipe;
      program_.kernels.push_back(kernel);
    }
    program_.buffers = {
        {Buffer::Kind::kInput, 0, {DType::kI64, {Dim::symbol(0)}}, Dim(0)},
        {Buffer::Kind::kTemporary, 0, {DType::kI64, {Dim(1)}}, Dim(64)},
        {Buffer::Kind::kOutput, 0, {DType::kI64, {Dim(1)}}, Dim(0)},
    };
    program_.launches = {{0, {0, 1}, {Dim::symbol(0)}}, {1, {1, 2}, {1}}};
    program_.output_buffers = {2, 2, 0};
    program_.arena_bytes = Dim(128);
    program_.symbols = {{0, 1 << 20, 1}};
  }

  Result<Executable> load(int threads = 1) const {
    return Executable::load(CpuDevice::make(threads), program_, artifacts_);
  }
  static Status run(const Executable& executable, std::span<void* const> inputs,
                    std::span<void* const> outputs, std::span<const int64_t> dims) {
    return executable.launch(device_ptrs(inputs), device_ptrs(outputs), nullptr, dims);
  }
  Code load_error() const {
    const auto loaded = load();
    EXPECT_FALSE(loaded);
    return loaded ? Code::kInternal : loaded.error().code;
  }

  std::vector<Artifact> artifacts_;
  Program program_;
};

TEST_F(ExecutableTest, RunsLaunchesInOrderAndFillsSharedOutputs) {
  auto executable = load(2);
  ASSERT_TRUE(executable) << executable.error().message;
  Tensor in(DType::kI64, {1}), out0(DType::kI64, {1}), out1(DType::kI64, {1}),
      out2(DType::kI64, {1});
  for (const int64_t value : {5, -7}) {
    in.set_int(0, value);
    void* const inputs[] = {in.data()};
    void* const outputs[] = {out0.data(), out1.data(), out2.data()};
    const auto status = run(*executable, inputs, outputs, std::vector<int64_t>{1});
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(out0.get_int(0), 4 * value);
    EXPECT_EQ(out1.get_int(0), 4 * value);
    EXPECT_EQ(out2.get_int(0), value);
  }
}

// The element of in1 at in0 is -1; the others stay. Where out0 is in1 itself, they are not touched.
TEST_F(ExecutableTest, AnOutputThatKeepsElementsOfAnInputMayLieInItOrApart) {
  Artifact artifact = compiled_artifact(R"(
extern "C" void update(void* const* args, const long*, long, long, void*, void*) {
  ((long*)args[2])[*(const long*)args[0]] = -1;
})");
  artifact.recipe.inputs = {{DType::kI64, {Dim(1)}}, {DType::kI64, {Dim(5)}}};
  artifact.recipe.outputs = {artifact.recipe.inputs[1]};
  artifact.recipe.phases = {{"update", Dim(1)}};
  artifact.recipe.kept = {{0, 1}};
  artifacts_ = {artifact};
  program_ = {};
  program_.kernels.resize(1);
  program_.kernels[0].blob = artifact.digest;
  program_.kernels[0].recipe = artifact.recipe;
  program_.buffers = {{Buffer::Kind::kInput, 0, artifact.recipe.inputs[0], Dim(0)},
                      {Buffer::Kind::kInput, 1, artifact.recipe.inputs[1], Dim(0)},
                      {Buffer::Kind::kOutput, 0, artifact.recipe.outputs[0], Dim(0)}};
  program_.launches = {{0, {0, 1, 2}}};
  program_.output_buffers = {2};
  auto executable = load();
  ASSERT_TRUE(executable) << executable.error().message;
  Tensor place(DType::kI64, {1}), cache(DType::kI64, {5}), apart(DType::kI64, {5});
  for (int64_t i = 0; i < 5; ++i) cache.set_int(i, 10 + i);
  place.set_int(0, 3);
  const auto values = [](const Tensor& tensor) {
    std::vector<int64_t> all;
    for (int64_t i = 0; i < tensor.numel(); ++i) all.push_back(tensor.get_int(i));
    return all;
  };
  void* const inputs[] = {place.data(), cache.data()};
  void* const others[] = {apart.data()};
  ASSERT_TRUE(run(*executable, inputs, others, {}));
  EXPECT_EQ(values(apart), (std::vector<int64_t>{10, 11, 12, -1, 14}));
  EXPECT_EQ(values(cache), (std::vector<int64_t>{10, 11, 12, 13, 14}));
  void* const same[] = {cache.data()};
  ASSERT_TRUE(run(*executable, inputs, same, {}));
  EXPECT_EQ(values(cache), (std::vector<int64_t>{10, 11, 12, -1, 14}));
}

TEST_F(ExecutableTest, AProfileHasEveryLaunchOnceAndInOrder) {
  auto executable = load(2);
  ASSERT_TRUE(executable) << executable.error().message;
  Tensor in(DType::kI64, {1}), out0(DType::kI64, {1}), out1(DType::kI64, {1}),
      out2(DType::kI64, {1});
  in.set_int(0, 3);
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out0.data(), out1.data(), out2.data()};
  const auto times = executable->profile(device_ptrs(inputs), device_ptrs(outputs), nullptr,
                                         std::vector<int64_t>{1});
  ASSERT_TRUE(times) << times.error().message;
  EXPECT_EQ(out0.get_int(0), 12);
  ASSERT_EQ(times->size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ((*times)[i].launches, std::vector<size_t>{i});
    EXPECT_LE((*times)[i].begin_us, (*times)[i].end_us);
  }
  EXPECT_EQ((*times)[0].end_us, (*times)[1].begin_us);
}

TEST_F(ExecutableTest, AProfileNamesEachLaunchToNvidiasProfilersAndALaunchDoesNot) {
  for (ProgramKernel& kernel : program_.kernels) {
    kernel.family = "pointwise";
    kernel.schedule = "cpu.pointwise lanes=4";
  }
  auto executable = load(2);
  ASSERT_TRUE(executable) << executable.error().message;
  Tensor in(DType::kI64, {1}), out0(DType::kI64, {1}), out1(DType::kI64, {1}),
      out2(DType::kI64, {1});
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out0.data(), out1.data(), out2.data()};
  const std::vector<int64_t> sizes{1};
  take_nvtx_calls();  // of other tests
  ASSERT_TRUE(run(*executable, inputs, outputs, sizes));
  EXPECT_EQ(take_nvtx_calls(), std::vector<std::string>{});
  ASSERT_TRUE(executable->profile(device_ptrs(inputs), device_ptrs(outputs), nullptr, sizes));
  const std::string name = "push pointwise: cpu.pointwise lanes=4";
  EXPECT_EQ(take_nvtx_calls(), (std::vector<std::string>{name, "pop", name, "pop"}));
}

TEST_F(ExecutableTest, TheArenaGrowsWithTheSizesOfACall) {
  program_.buffers[1].arena_offset = Dim::symbol(0) * 64;
  program_.arena_bytes = Dim::symbol(0) * 64 + Dim(64);
  auto executable = load(2);
  ASSERT_TRUE(executable) << executable.error().message;
  for (const int64_t size : {1, 3, 5000, 2, 0, 5001}) {
    Tensor in(DType::kI64, {size}), out0(DType::kI64, {1}), out1(DType::kI64, {1}),
        out2(DType::kI64, {size});
    for (int64_t i = 0; i < size; ++i) in.set_int(i, i);
    void* const inputs[] = {in.data()};
    void* const outputs[] = {out0.data(), out1.data(), out2.data()};
    const auto status = run(*executable, inputs, outputs, std::vector<int64_t>{size});
    ASSERT_TRUE(status) << status.error().message;
    EXPECT_EQ(out0.get_int(0), 2 * size * (size - 1));
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(out2.get_int(i), i);
  }
}

// in -> 2, 3 and 5 times it, which are one step, each of a size of its own -> what reads them.
TEST_F(ExecutableTest, LaunchesSideBySideAreEachDoneWhole) {
  artifacts_ = {scale_artifact(2), scale_artifact(3), scale_artifact(5)};
  program_ = {};
  for (const Artifact& artifact : artifacts_)
    program_.kernels.push_back({{}, {}, {}, {}, artifact.digest, artifact.recipe, {}});
  const TensorSpec spec{DType::kI64, {Dim::symbol(0)}};
  program_.buffers.push_back({Buffer::Kind::kInput, 0, spec, Dim(0)});
  for (int i = 0; i < 3; ++i) {
    program_.buffers.push_back(
        {Buffer::Kind::kTemporary, 0, spec, Dim::symbol(0) * Dim(int64_t{64} * i)});
    program_.launches.push_back({i, {0, 1 + i}, {Dim::symbol(0)}});
  }
  for (int i = 0; i < 3; ++i) {
    program_.buffers.push_back({Buffer::Kind::kOutput, i, spec, Dim(0)});
    program_.launches.push_back({2 - i, {1 + i, 4 + i}, {Dim::symbol(0)}});
  }
  program_.output_buffers = {4, 5, 6};
  program_.arena_bytes = Dim::symbol(0) * Dim(192);
  program_.symbols = {{1, 1 << 20, 1}};
  for (const int threads : {1, 2, 3}) {
    const auto executable = load(threads);
    ASSERT_TRUE(executable) << executable.error().message;
    for (const int64_t size : {1, 2, 7, 7, 333, 1000}) {
      Tensor in(DType::kI64, {size}), out0(DType::kI64, {size}), out1(DType::kI64, {size}),
          out2(DType::kI64, {size});
      for (int64_t i = 0; i < size; ++i) in.set_int(i, i + 1);
      void* const inputs[] = {in.data()};
      void* const outputs[] = {out0.data(), out1.data(), out2.data()};
      const auto status = run(*executable, inputs, outputs, std::vector<int64_t>{size});
      ASSERT_TRUE(status) << status.error().message;
      for (int64_t i = 0; i < size; ++i) {
        ASSERT_EQ(out0.get_int(i), 2 * 5 * (i + 1)) << threads << " threads, size " << size;
        ASSERT_EQ(out1.get_int(i), 3 * 3 * (i + 1));
        ASSERT_EQ(out2.get_int(i), 5 * 2 * (i + 1));
      }
    }
  }
}

TEST_F(ExecutableTest, RefusesSizesThatTheProgramDoesNotServe) {
  auto executable = load(2);
  ASSERT_TRUE(executable);
  Tensor a(DType::kI64, {64});
  void* const pointers[] = {a.data(), a.data(), a.data()};
  for (const int64_t size : {int64_t{-1}, int64_t{1} << 21, INT64_MAX}) {
    const auto status = run(*executable, {pointers, 1}, pointers, std::vector<int64_t>{size});
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
  }
}

TEST_F(ExecutableTest, RefusesBuffersItCannotUse) {
  auto executable = load(2);
  ASSERT_TRUE(executable);
  Tensor a(DType::kI64, {64});
  void* const good[] = {a.data(), a.data(), a.data()};
  void* const null[] = {nullptr, a.data(), a.data()};
  void* const crooked[] = {static_cast<char*>(a.data()) + 8, a.data(), a.data()};
  const std::vector<int64_t> one{1};
  const auto code = [&](std::span<void* const> in, std::span<void* const> out,
                        std::span<const int64_t> dims) {
    const Status status = run(*executable, in, out, dims);
    return status ? Code::kInternal : status.error().code;
  };
  EXPECT_EQ(code({}, good, one), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, {good, 2}, one), Code::kInvalidArgument);
  EXPECT_EQ(code({null, 1}, good, one), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, crooked, one), Code::kInvalidArgument);
  EXPECT_EQ(code({good, 1}, good, {}), Code::kInvalidArgument);
}

TEST_F(ExecutableTest, RefusesSizesThatNoMachineHas) {
  program_.arena_bytes = Dim(int64_t{1} << 60);
  program_.symbols.clear();  // all is known when it is loaded
  program_.buffers[0].spec.shape = {1};
  program_.launches[0].dims = {1};
  const auto loaded = load(2);
  ASSERT_FALSE(loaded);
  EXPECT_EQ(loaded.error().code, Code::kOverloaded);
  const std::string& message = loaded.error().message;
  EXPECT_NE(message.find("1152921504606846976 for its arena"), std::string::npos) << message;
  EXPECT_NE(message.find("available on this machine"), std::string::npos) << message;
}

// A program that has run goes on running the sizes that fit.
TEST_F(ExecutableTest, SizesThatTheMachineHasNoRoomForAreRefusedBeforeAnythingIsAllocated) {
  program_.arena_bytes = Dim::symbol(0) * Dim(int64_t{1} << 42) + Dim(128);
  auto executable = load(2);
  ASSERT_TRUE(executable) << executable.error().message;
  Tensor in(DType::kI64, {64}), out(DType::kI64, {64});
  void* const inputs[] = {in.data()};
  void* const outputs[] = {out.data(), out.data(), out.data()};
  const auto run_at = [&](int64_t size) {
    return run(*executable, inputs, outputs, std::vector<int64_t>{size});
  };
  ASSERT_TRUE(run_at(0));
  const Status refused = run_at(64);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOverloaded);
  EXPECT_NE(refused.error().message.find("281474976710784 for its arena"), std::string::npos)
      << refused.error().message;
  EXPECT_TRUE(run_at(0));
}

TEST_F(ExecutableTest, RefusesAnArtifactOfAnotherKernel) {
  program_.kernels[1].blob = Digest::of("another");
  EXPECT_EQ(load_error(), Code::kCorruption);
}

TEST_F(ExecutableTest, RefusesAMissingArtifact) {
  artifacts_.pop_back();
  EXPECT_EQ(load_error(), Code::kInvalidArgument);
}

TEST_F(ExecutableTest, RefusesABufferThatIsNotWhatTheKernelTakes) {
  program_.buffers[1].spec.dtype = DType::kI32;
  EXPECT_EQ(load_error(), Code::kCorruption);
}

TEST_F(ExecutableTest, RefusesIndicesOutOfRange) {
  program_.launches[0].args[1] = 3;
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_.launches[0].args[1] = 1;
  program_.launches[1].kernel = -1;
  EXPECT_EQ(load_error(), Code::kCorruption);
  program_.launches[1].kernel = 1;
  program_.output_buffers[0] = 9;
  EXPECT_EQ(load_error(), Code::kCorruption);
}

}  // namespace
}  // namespace kiln
