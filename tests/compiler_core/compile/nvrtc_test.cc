// The real NVRTC of this machine's toolkit; skipped where there is none. Needs no GPU.
#include "compiler_core/compile/nvrtc.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "compiler_core/compile/nvrtc_compiler.h"

namespace kiln {
namespace {

constexpr char kCopy[] = R"(
extern "C" __global__ void __launch_bounds__(256) copy(float* in, float* out, char*) {
  __shared__ float tile[256];
  const int i = blockIdx.x * 256 + threadIdx.x;
  tile[threadIdx.x] = in[i];
  __syncthreads();
  out[i] = tile[255 - threadIdx.x];
}
)";

// A hundred live values in 32 registers.
constexpr char kSpills[] = R"(
extern "C" __global__ void __launch_bounds__(1024, 2) spills(float* in, float* out, char*) {
  float x[100];
#pragma unroll
  for (int i = 0; i < 100; ++i) x[i] = in[i * 1024 + threadIdx.x];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 100; ++i) out[i * 1024 + threadIdx.x] = x[i] * x[99 - i];
}
)";

// Nothing of it has a name outside its module.
constexpr char kOwnNames[] = R"(
namespace {
template <class T> struct Packed { static constexpr int bytes = sizeof(T); };
__device__ const int* where() { return &Packed<float>::bytes; }
extern "C" __global__ void own_names(int* out) { out[0] = *where(); }
}
)";

class NvrtcTest : public ::testing::Test {
 protected:
  void SetUp() override {
    static const Result<Nvrtc> found = Nvrtc::find();
    if (!found) GTEST_SKIP() << found.error().message;
    nvrtc_ = &*found;
  }
  const Nvrtc* nvrtc_ = nullptr;
  const Target hopper_ = *Target::parse("cuda:sm_90a");
};

TEST_F(NvrtcTest, CompilesForEachArchitectureAndSaysWhatAKernelUses) {
  for (const char* name : {"cuda:sm_80", "cuda:sm_90a"}) {
    const auto object = nvrtc_->compile({kCopy, {}}, *Target::parse(name));
    ASSERT_TRUE(object.has_value()) << name << ": " << object.error().message;
    EXPECT_TRUE(object->artifact.binary.starts_with("\177ELF")) << name;
    EXPECT_EQ(object->artifact.digest, Digest::of(object->artifact.binary));
    EXPECT_GT(object->resources.registers, 4) << name;
    EXPECT_EQ(object->resources.shared_bytes, 1024) << name;
    EXPECT_EQ(object->resources.spill_bytes, 0) << name;
  }
}

TEST_F(NvrtcTest, EqualSourcesGiveEqualBytes) {
  const auto first = nvrtc_->compile({kCopy, {}}, hopper_);
  const auto second = nvrtc_->compile({kCopy, {}}, hopper_);
  ASSERT_TRUE(first.has_value() && second.has_value());
  EXPECT_EQ(first->artifact.binary, second->artifact.binary);
}

// NVRTC would name what no other module sees after the process's id, and workers that compare
// binaries would find none equal.
TEST_F(NvrtcTest, EqualSourcesGiveEqualBytesInAnotherProcess) {
  const auto here = nvrtc_->compile({kOwnNames, {}}, hopper_);
  ASSERT_TRUE(here.has_value()) << here.error().message;
  const pid_t other = ::fork();
  if (other == 0) {
    const auto there = nvrtc_->compile({kOwnNames, {}}, hopper_);
    ::_exit(!there ? 2 : there->artifact.binary == here->artifact.binary ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(other, &status, 0), other);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(NvrtcTest, SpillsAreSeenAlsoWhenTheSourceWasCompiledBefore) {
  for (int time = 0; time < 2; ++time) {  // a cache of NVRTC's own would keep ptxas's words back
    const auto object = nvrtc_->compile({kSpills, {}}, hopper_);
    ASSERT_TRUE(object.has_value()) << object.error().message;
    EXPECT_GT(object->resources.spill_bytes, 0);
    EXPECT_LE(object->resources.registers, 32);
  }
}

TEST_F(NvrtcTest, AKernelThatReadsBeforeItWaitsIsNotLaunchedEarly) {
  Source source{R"(
extern "C" __global__ void copy(float* in, float* out, char*) {
  const float x = in[threadIdx.x];
  if (x < 0) return;
  asm volatile("griddepcontrol.wait;" ::: "memory");
  out[threadIdx.x] = x;
}
)",
                {}};
  source.recipe.phases = {{"copy", 1, 32}};
  source.recipe.phases[0].dependent_launch = DependentLaunch::kAtOnce;
  const auto object = nvrtc_->compile(source, hopper_);
  ASSERT_TRUE(object) << object.error().message;
  EXPECT_EQ(object->artifact.recipe.phases[0].dependent_launch, DependentLaunch::kNo);
}

TEST_F(NvrtcTest, ARefusedSourceIsTheCandidatesFaultAndSaysWhy) {
  const auto object = nvrtc_->compile({"no such thing;", {}}, hopper_);
  ASSERT_FALSE(object.has_value());
  EXPECT_EQ(object.error().code, Code::kInvalidArgument);
  EXPECT_NE(object.error().message.find("such"), std::string::npos) << object.error().message;
}

TEST_F(NvrtcTest, SoIsOneThatPtxasRefuses) {
  const auto object = nvrtc_->compile(
      {"extern \"C\" __global__ void k(int* o) { __shared__ int big[99999]; big[threadIdx.x] = "
       "o[0]; __syncthreads(); o[0] = big[threadIdx.x ^ o[1]]; }",
       {}},
      hopper_);
  ASSERT_FALSE(object.has_value());
  EXPECT_EQ(object.error().code, Code::kInvalidArgument) << object.error().message;
}

TEST_F(NvrtcTest, GivesUpWhenAsked) {
  int asked = 0;
  const auto object = nvrtc_->compile({kCopy, {}}, hopper_, [&] { return ++asked == 2; });
  ASSERT_FALSE(object.has_value());
  EXPECT_EQ(object.error().code, Code::kDeadlineExceeded);
  EXPECT_EQ(asked, 2);
}

TEST_F(NvrtcTest, ArchitecturesItDoesNotKnowAreUnsupported) {
  for (const char* name : {"cuda:sm_35", "cuda:sm_999", "cpu:x86-64-v3", "cuda"}) {
    const auto object = nvrtc_->compile({kCopy, {}}, *Target::parse(name));
    ASSERT_FALSE(object.has_value()) << name;
    EXPECT_EQ(object.error().code, Code::kUnsupported) << object.error().message;
  }
}

TEST_F(NvrtcTest, TheCandidateKeyHoldsSourceAndTarget) {
  const Digest key = nvrtc_->candidate_key({kCopy, {}}, hopper_);
  EXPECT_EQ(key, nvrtc_->candidate_key({kCopy, {}}, hopper_));
  EXPECT_NE(key, nvrtc_->candidate_key({kSpills, {}}, hopper_));
  EXPECT_NE(key, nvrtc_->candidate_key({kCopy, {}}, *Target::parse("cuda:sm_80")));
}

TEST_F(NvrtcTest, NamesItsBuildToThePatch) {
  EXPECT_TRUE(nvrtc_->toolkit().starts_with("cuda-")) << nvrtc_->toolkit();
  const std::string major = "nvrtc " + nvrtc_->toolkit().substr(5) + ".";
  EXPECT_TRUE(nvrtc_->build().starts_with(major)) << nvrtc_->build();
  EXPECT_EQ(std::ranges::count(nvrtc_->build(), '.'), 2) << nvrtc_->build();
}

TEST_F(NvrtcTest, AsAKernelCompilerItKeepsTheTime) {
  const NvrtcCompiler compiler(*nvrtc_);
  const Recipe recipe{{}, {}, {{"copy", Dim(4), 256, 1, 0}}, Dim(0), 0};
  const auto artifact = compiler.compile({kCopy, recipe}, hopper_, 60'000);
  ASSERT_TRUE(artifact.has_value()) << artifact.error().message;
  EXPECT_EQ(artifact->recipe, recipe);
  const auto late = compiler.compile({kCopy, recipe}, hopper_, 0);
  ASSERT_FALSE(late.has_value());
  EXPECT_EQ(late.error().code, Code::kDeadlineExceeded);
}

TEST(NvrtcPlaces, AFileThatIsNoneIsNamed) {
  const auto found = Nvrtc::find("/nowhere/libnvrtc.so");
  ASSERT_FALSE(found.has_value());
  if (found.error().code == Code::kUnsupported) GTEST_SKIP() << found.error().message;
  EXPECT_NE(found.error().message.find("/nowhere/libnvrtc.so"), std::string::npos)
      << found.error().message;
}

TEST(NvrtcPlaces, ALibraryOfSomethingElseIsRefused) {
  const auto found = Nvrtc::find("libc.so.6");
  ASSERT_FALSE(found.has_value());
  if (found.error().code == Code::kUnsupported) GTEST_SKIP() << found.error().message;
  EXPECT_NE(found.error().message.find("nvrtc"), std::string::npos) << found.error().message;
}

}  // namespace
}  // namespace kiln
