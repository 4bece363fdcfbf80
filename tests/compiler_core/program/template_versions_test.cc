#include "compiler_core/program/template_versions.h"

#include <gtest/gtest.h>

#include "compiler_core/program/program.h"

namespace kiln {
namespace {

const TemplateVersions kBefore = {{"cpu.matmul", 1}, {"cpu.pointwise", 2}, {"custom", 1}};
const TemplateVersions kNow = {{"cpu.fast", 1}, {"cpu.matmul", 3}, {"cpu.pointwise", 2}};

TEST(TemplateVersions, AreFoundByName) {
  EXPECT_EQ(find_version(kBefore, "cpu.pointwise"), 2);
  EXPECT_EQ(find_version(kBefore, "cpu"), 0);
  EXPECT_EQ(to_string(kBefore), "cpu.matmul 1, cpu.pointwise 2, custom 1");
}

TEST(TemplateVersions, TheStampHoldsEveryNameAndVersion) {
  const Digest stamp = template_stamp(kBefore);
  EXPECT_EQ(template_stamp(kBefore), stamp);
  for (size_t i = 0; i < kBefore.size(); ++i) {
    TemplateVersions other = kBefore;
    ++other[i].version;
    EXPECT_NE(template_stamp(other), stamp);
    other = kBefore;
    other[i].name += "x";
    EXPECT_NE(template_stamp(other), stamp);
  }
  EXPECT_NE(template_stamp({}), stamp);
}

TEST(TemplateVersions, ChangesNameWhatIsAnotherNow) {
  EXPECT_EQ(changes(kBefore, kNow), "cpu.fast none -> 1, cpu.matmul 1 -> 3, custom 1 -> none");
  EXPECT_EQ(changes(kNow, kNow), "");
}

TEST(TemplateVersions, StandBesideAKernelAndAreReadBack) {
  ProgramKernel kernel;
  kernel.family = "pointwise";
  kernel.schedule = "cpu.pointwise";
  kernel.recipe.phases = {{"kernel", 1}};
  const std::string without = kernel_to_json(kernel);
  EXPECT_EQ(without.find("templates"), std::string::npos) << "as it was before there were lists";
  EXPECT_EQ(kernel_from_json(without).value(), kernel);
  kernel.templates = kBefore;
  const std::string text = kernel_to_json(kernel);
  EXPECT_EQ(kernel_from_json(text).value(), kernel);
  for (const char* bad : {"-1", "0", "\"1\"", "1.5", "4294967296"}) {
    std::string damaged = text;
    const std::string field = "\"custom\":1";
    damaged.replace(damaged.find(field), field.size(), std::string("\"custom\":") + bad);
    EXPECT_FALSE(kernel_from_json(damaged)) << bad;
  }
}

// A template says since which version its binaries are right; older ones are not served.
TEST(TemplateVersions, AKernelIsSoundSinceTheVersionThatItsTemplateNames) {
  ProgramKernel kernel;
  kernel.schedule = "cpu.matmul tile=8";
  kernel.templates = {{"cpu.matmul", 2}};
  EXPECT_TRUE(is_sound(kernel, {{"cpu.matmul", 1}}));
  EXPECT_TRUE(is_sound(kernel, {{"cpu.matmul", 2}}));
  EXPECT_FALSE(is_sound(kernel, {{"cpu.matmul", 3}}));
  EXPECT_FALSE(is_sound(kernel, {{"cpu.other", 1}})) << "nobody knows the template any more";
  kernel.templates = {};
  EXPECT_FALSE(is_sound(kernel, {{"cpu.matmul", 1}})) << "nobody knows what made it";
  ProgramKernel calls;
  calls.schedule = "cuda.cublaslt version=13";
  calls.recipe.phases = {{"", 1}};
  calls.recipe.phases[0].call.emplace();
  calls.fallback = {"cuda.matmul tile=8", {}, 1};
  calls.templates = {{"cuda.matmul", 2}};
  EXPECT_TRUE(is_sound(calls, {{"cuda.cublaslt", 1}, {"cuda.matmul", 2}}));
  EXPECT_FALSE(is_sound(calls, {{"cuda.cublaslt", 1}, {"cuda.matmul", 3}})) << "its fallback";
}

TEST(TemplateVersions, WhatIsNotVerifiedYetSaysSoAndIsReadBack) {
  ProgramKernel kernel;
  kernel.family = "pointwise";
  kernel.schedule = "cpu.pointwise";
  kernel.recipe.phases = {{"kernel", 1}};
  EXPECT_EQ(kernel_to_json(kernel).find("verified"), std::string::npos) << "as it was before";
  kernel.verified = false;
  const std::string text = kernel_to_json(kernel);
  EXPECT_FALSE(kernel_from_json(text).value().verified);
  std::string damaged = text;
  damaged.replace(damaged.find("false"), 5, "7");
  EXPECT_FALSE(kernel_from_json(damaged));
}

}  // namespace
}  // namespace kiln
