#include "compiler_core/program/target.h"

#include <gtest/gtest.h>
#include <sched.h>

namespace kiln {
namespace {

Target target(std::string_view text) {
  const Result<Target> parsed = Target::parse(text);
  EXPECT_TRUE(parsed) << text;
  return parsed.value_or(Target{});
}

Digest digest_of(const Target& target) {
  Hasher hasher("test");
  target.add_to(hasher);
  return hasher.finish();
}

TEST(Target, TextRoundTrips) {
  for (const char* text : {"cpu", "cpu:x86-64", "cpu:x86-64-v2", "cpu:x86-64-v3", "cpu:x86-64-v4",
                           "cuda", "cuda:sm_80", "cuda:sm_90a", "cuda:sm_120f"})
    EXPECT_EQ(target(text).to_string(), text);
}

TEST(Target, RefusesWhatACompilerFlagMustNotHold) {
  for (const char* text :
       {"", "gpu", "cpu:", "cpu:native", "cpu:x86-64-v3 -fplugin=x", "cpu:x86-64-v5", "cuda:sm_",
        "cuda:sm_90b", "cuda:90", "cuda:sm_90aa", "cpu:sm_90"}) {
    const Result<Target> parsed = Target::parse(text);
    ASSERT_FALSE(parsed) << text;
    EXPECT_EQ(parsed.error().code, Code::kInvalidArgument);
  }
}

TEST(Target, RunsCodeOfItsOwnLevelAndBelow) {
  EXPECT_TRUE(target("cpu:x86-64-v4").can_run(target("cpu:x86-64-v3")));
  EXPECT_TRUE(target("cpu:x86-64-v3").can_run(target("cpu:x86-64-v3")));
  EXPECT_FALSE(target("cpu:x86-64-v3").can_run(target("cpu:x86-64-v4")));
  EXPECT_FALSE(target("cpu:x86-64-v4").can_run(target("cuda:sm_80")));
  EXPECT_FALSE(target("cpu:x86-64-v4").can_run(target("cpu"))) << "made for an unknown ISA";
}

TEST(Target, RunsCubinsOfItsMajorVersionUnlessTheyAreTied) {
  EXPECT_TRUE(target("cuda:sm_86").can_run(target("cuda:sm_80")));
  EXPECT_FALSE(target("cuda:sm_80").can_run(target("cuda:sm_86")));
  EXPECT_FALSE(target("cuda:sm_90").can_run(target("cuda:sm_80")));
  EXPECT_TRUE(target("cuda:sm_90a").can_run(target("cuda:sm_90")));
  EXPECT_FALSE(target("cuda:sm_90").can_run(target("cuda:sm_90a")));
}

TEST(Target, EveryFieldEntersTheDigest) {
  Target base = target("cpu:x86-64-v3");
  base.device_model = "model";
  base.units = 2;
  EXPECT_EQ(digest_of(base), digest_of(Target(base)));
  Target other = base;
  other.backend = Backend::kCuda;
  EXPECT_NE(digest_of(base), digest_of(other));
  other = base;
  other.isa = "x86-64-v4";
  EXPECT_NE(digest_of(base), digest_of(other));
  other = base;
  other.device_model = "another";
  EXPECT_NE(digest_of(base), digest_of(other));
  other = base;
  other.units = 3;
  EXPECT_NE(digest_of(base), digest_of(other));
}

TEST(HostCpuTarget, DescribesThisMachine) {
  const Target host = host_cpu_target();
  EXPECT_EQ(host.backend, Backend::kCpu);
  EXPECT_TRUE(Target::parse(host.to_string()));
  EXPECT_FALSE(host.device_model.empty());
  EXPECT_TRUE(host.can_run(target("cpu:x86-64")));
}

TEST(HostCpuTarget, CountsOnlyTheCoresItMayUse) {
  cpu_set_t before, one;
  ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
  int first = 0;
  while (!CPU_ISSET(first, &before)) ++first;
  CPU_ZERO(&one);
  CPU_SET(first, &one);
  ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
  EXPECT_EQ(host_cpu_target().units, 1);
  ::sched_setaffinity(0, sizeof before, &before);
  EXPECT_EQ(host_cpu_target().units, CPU_COUNT(&before));
}

TEST(Mode, TextRoundTrips) {
  for (Mode mode : {Mode::kDefault, Mode::kMaxAutotune})
    EXPECT_EQ(parse_mode(to_string(mode)).value(), mode);
  EXPECT_FALSE(parse_mode("max_autotune"));
}

}  // namespace
}  // namespace kiln
