#include "worker/build/compile_pool.h"

#include <gtest/gtest.h>

#include "compiler_core/base/file.h"
#include "tests/worker/kernels.h"

namespace kiln {
namespace {

using namespace test;

class CompilePoolTest : public ::testing::Test {
 protected:
  std::optional<ObjectCache> cache() {
    return ObjectCache::open(dir_.path() / "objects", 1 << 20).value();
  }
  TempDir dir_ = TempDir::create().value();
  const Target target_ = host_cpu_target();
};

TEST_F(CompilePoolTest, EqualSourcesAskedForAtOnceAreCompiledOnce) {
  CompilePool pool(host_toolchain(compiler()), 2, std::nullopt);
  std::vector<std::future<Compiled>> compiling;
  for (int i = 0; i < 6; ++i)
    compiling.push_back(pool.compile(kernel_source(i % 2 == 0 ? kRight : ""), target_));
  int ran = 0;
  for (auto& future : compiling) {
    const Compiled compiled = future.get();
    EXPECT_TRUE(compiled.artifact.has_value());
    ran += compiled.ran;
  }
  EXPECT_EQ(ran, 2);
}

// Kernels of one text may be launched in different ways: on tensors of other shapes, for example.
TEST_F(CompilePoolTest, KernelsOfTheSameTextKeepTheirOwnRecipes) {
  CompilePool pool(host_toolchain(compiler()), 1, cache());
  std::vector<Source> sources(4, kernel_source(kRight));
  for (size_t i = 0; i < sources.size(); ++i)
    sources[i].recipe.inputs.at(0).shape = {static_cast<int64_t>(i + 1)};
  for (const char* when : {"at once", "from the cache"}) {
    std::vector<std::future<Compiled>> compiling;
    for (const Source& source : sources) compiling.push_back(pool.compile(source, target_));
    for (size_t i = 0; i < sources.size(); ++i) {
      const Compiled compiled = compiling[i].get();
      ASSERT_TRUE(compiled.artifact.has_value()) << when;
      EXPECT_EQ(compiled.artifact->recipe, sources[i].recipe) << when << " " << i;
    }
  }
}

TEST_F(CompilePoolTest, AKernelThatReadsBeforeItWaitsIsNotLaunchedEarly) {
  Source source = kernel_source(kRight);
  source.recipe.phases[0].entry = "reads";
  source.recipe.phases[0].dependent_launch = DependentLaunch::kAtOnce;
  const auto cubin =
      read_file(Path(KILN_SOURCE_DIR "/tests/compiler_core/program/cubins/waits.sm_90a.cubin"));
  cache()->insert(host_toolchain(compiler()).candidate_key(source, target_),
                  "8 0 0 0\n" + cubin.value());
  CompilePool pool(host_toolchain(compiler()), 1, cache());
  const Compiled found = pool.compile(source, target_).get();
  ASSERT_TRUE(found.artifact.has_value());
  EXPECT_FALSE(found.ran);
  EXPECT_EQ(found.artifact->recipe.phases[0].dependent_launch, DependentLaunch::kNo);
}

TEST_F(CompilePoolTest, ARestartedPoolCompilesNothingAgain) {
  const Source source = kernel_source(kRight);
  std::string binary;
  {
    CompilePool pool(host_toolchain(compiler()), 1, cache());
    const Compiled compiled = pool.compile(source, target_).get();
    ASSERT_TRUE(compiled.artifact.has_value());
    EXPECT_TRUE(compiled.ran);
    binary = compiled.artifact->binary;
  }
  CompilePool pool(host_toolchain(compiler()), 1, cache());
  const Compiled found = pool.compile(source, target_).get();
  ASSERT_TRUE(found.artifact.has_value());
  EXPECT_FALSE(found.ran);
  EXPECT_EQ(found.artifact->binary, binary);
  EXPECT_EQ(found.artifact->digest, Digest::of(binary));
  EXPECT_EQ(found.artifact->recipe, source.recipe);
}

// What the coordinator is told: whoever has an answer finds its compile counted, also when nobody
// waits for it any more; what was found, or is no candidate (no lease asked), is not counted.
TEST_F(CompilePoolTest, CountsWhatACompilerAnsweredForLeases) {
  {
    CompilePool pool(host_toolchain(compiler()), 1, cache());
    EXPECT_TRUE(pool.compile(kernel_source(kRight), target_, 0).get().artifact.has_value());
    EXPECT_EQ(pool.compiled(), 0);
    EXPECT_TRUE(pool.compile(kernel_source(""), target_, 7).get().artifact.has_value());
    EXPECT_EQ(pool.compiled(), 1);
    EXPECT_FALSE(pool.compile(kernel_source("no such;"), target_, 7).get().artifact.has_value());
    EXPECT_EQ(pool.compiled(), 2);
  }
  CompilePool pool(host_toolchain(compiler()), 1, cache());
  EXPECT_TRUE(pool.compile(kernel_source(""), target_, 8).get().artifact.has_value());
  EXPECT_EQ(pool.compiled(), 0);
}

TEST_F(CompilePoolTest, ARefusedSourceIsAnErrorWithTheCompilersWords) {
  CompilePool pool(host_toolchain(compiler()), 1, cache());
  const Compiled compiled = pool.compile(kernel_source("no such thing;"), target_).get();
  ASSERT_FALSE(compiled.artifact.has_value());
  EXPECT_EQ(compiled.artifact.error().code, Code::kInvalidArgument);
  EXPECT_NE(compiled.artifact.error().message.find("such"), std::string::npos);
}

TEST_F(CompilePoolTest, EveryRequestIsAnsweredWhenThePoolStops) {
  std::vector<std::future<Compiled>> compiling;
  {
    CompilePool pool(host_toolchain(compiler()), 1, std::nullopt);
    for (int i = 0; i < 5; ++i)
      compiling.push_back(
          pool.compile(kernel_source("out[0] = " + std::to_string(i) + ";"), target_));
  }
  for (auto& future : compiling) {
    const Compiled compiled = future.get();
    if (compiled.artifact) continue;
    EXPECT_EQ(compiled.artifact.error().code, Code::kUnavailable);
  }
}

}  // namespace
}  // namespace kiln
