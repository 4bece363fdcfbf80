#include "compiler_core/runtime/kernel.h"

#include <gtest/gtest.h>

#include <numeric>

#include "tests/compiler_core/runtime/test_artifact.h"

namespace kiln {
namespace {

class KernelTest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() { artifact_ = new Artifact(running_sum_artifact(1)); }
  static void TearDownTestSuite() { delete artifact_; }
  static const Artifact& artifact() { return *artifact_; }

 private:
  static const Artifact* artifact_;
};
const Artifact* KernelTest::artifact_ = nullptr;

TEST_F(KernelTest, RunsItsPhasesOneAfterTheOther) {
  const auto kernel = Kernel::load(artifact());
  ASSERT_TRUE(kernel) << kernel.error().message;
  ThreadPool pool(3);
  AlignedBuffer in, out, workspace;
  for (const int64_t n : {1, 2, 100, 1000}) {
    ASSERT_TRUE(in.reserve(n * 8) && out.reserve(8) && workspace.reserve(n * 8));
    auto* values = static_cast<int64_t*>(in.data());
    std::iota(values, values + n, 1);
    void* const args[] = {in.data(), out.data()};
    kernel->launch(args, std::vector<int64_t>{n}, workspace.data(), pool);
    EXPECT_EQ(*static_cast<int64_t*>(out.data()), n * (n + 1));  // twice the sum
  }
}

TEST_F(KernelTest, MovesAndOutlivesItsArtifact) {
  auto copy = std::make_unique<Artifact>(artifact());
  auto loaded = Kernel::load(*copy);
  ASSERT_TRUE(loaded);
  copy.reset();
  const Kernel kernel = std::move(*loaded);
  EXPECT_EQ(kernel.recipe(), artifact().recipe);
}

// The loader remembers libraries by path, and descriptors are reused.
TEST_F(KernelTest, KernelsLoadedTogetherStayApart) {
  std::vector<Artifact> artifacts;
  std::vector<Kernel> kernels;
  for (int factor = 2; factor < 5; ++factor) {
    artifacts.push_back(running_sum_artifact(factor));
    auto kernel = Kernel::load(artifacts.back());
    ASSERT_TRUE(kernel) << kernel.error().message;
    kernels.push_back(std::move(*kernel));
  }
  ThreadPool pool(1);
  AlignedBuffer memory;
  ASSERT_TRUE(memory.reserve(192));
  auto* values = static_cast<int64_t*>(memory.data());
  void* const args[] = {values, values + 8};
  for (int factor = 2; factor < 5; ++factor) {
    values[0] = 10;
    kernels[static_cast<size_t>(factor - 2)].launch(args, std::vector<int64_t>{1}, values + 16,
                                                    pool);
    EXPECT_EQ(values[8], 20 * factor);
  }
}

TEST_F(KernelTest, RefusesAFlippedBitBeforeLoadingIt) {
  for (const size_t place :
       {size_t{0}, artifact().binary.size() / 2, artifact().binary.size() - 1}) {
    Artifact damaged = artifact();
    damaged.binary[place] = static_cast<char>(damaged.binary[place] ^ 4);
    const auto kernel = Kernel::load(damaged);
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code, Code::kCorruption);
  }
}

TEST_F(KernelTest, RefusesAMissingEntry) {
  Artifact artifact_without = artifact();
  artifact_without.recipe.phases[1].entry = "no_such_phase";
  const auto kernel = Kernel::load(artifact_without);
  ASSERT_FALSE(kernel);
  EXPECT_EQ(kernel.error().code, Code::kInvalidArgument);
  EXPECT_NE(kernel.error().message.find("no_such_phase"), std::string::npos);
}

TEST_F(KernelTest, RefusesScratchBeyondReason) {
  for (const int64_t bytes : {int64_t{-1}, int64_t{1} << 40}) {
    Artifact greedy = artifact();
    greedy.recipe.scratch_bytes = bytes;
    const auto kernel = Kernel::load(greedy);
    ASSERT_FALSE(kernel);
    EXPECT_EQ(kernel.error().code, Code::kInvalidArgument);
  }
}

TEST_F(KernelTest, RefusesWhatIsNoSharedObject) {
  for (const std::string& binary : {std::string(), std::string("garbage"), std::string(100000, 'x'),
                                    artifact().binary.substr(0, 500)}) {
    Artifact garbage = artifact();
    garbage.binary = binary;
    garbage.digest = Digest::of(binary);
    const auto kernel = Kernel::load(garbage);
    ASSERT_FALSE(kernel) << binary.size() << " bytes";
    EXPECT_EQ(kernel.error().code, Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace kiln
