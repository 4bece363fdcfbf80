#include "compiler_core/compile/compiler.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Target v3() {
  Target target;
  target.isa = "x86-64-v3";
  return target;
}

HostCompiler host() {
  auto compiler = HostCompiler::find();
  EXPECT_TRUE(compiler) << compiler.error().message;
  return *compiler;
}

constexpr int64_t kTimeoutMs = 60'000;

Source source(std::string text) {
  Source made;
  made.text = std::move(text);
  made.recipe.phases = {{"run", Dim(3)}};
  return made;
}

TEST(HostCompiler, MakesASharedObjectWithTheSourcesRecipe) {
  const Source text = source("extern \"C\" float run(float x) { return __builtin_sinf(x); }");
  const auto artifact = host().compile(text, v3(), kTimeoutMs);
  ASSERT_TRUE(artifact) << artifact.error().message;
  EXPECT_EQ(artifact->binary.substr(0, 4),
            "\x7f"
            "ELF");
  EXPECT_EQ(artifact->digest, Digest::of(artifact->binary));
  EXPECT_EQ(artifact->recipe, text.recipe);
}

TEST(HostCompiler, GivesTheSameBytesForTheSameSource) {
  const Source text = source(
      "static int hidden(int x) { return x * 3; }\n"
      "extern \"C\" int run(int x) { return hidden(x) + __COUNTER__; }");
  const auto first = host().compile(text, v3(), kTimeoutMs);
  const auto second = host().compile(text, v3(), kTimeoutMs);
  ASSERT_TRUE(first && second);
  EXPECT_EQ(first->digest, second->digest);
  EXPECT_EQ(first->binary.find("/tmp"), std::string::npos);
}

TEST(HostCompiler, RefusedSourceIsAVerdictWithTheCompilersWords) {
  const auto artifact =
      host().compile(source("extern \"C\" int run() { return nothing; }"), v3(), kTimeoutMs);
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code, Code::kInvalidArgument);
  EXPECT_NE(artifact.error().message.find("nothing"), std::string::npos);
}

// g++ answers 1 for a source that is wrong and for a full disk alike.
TEST(HostCompiler, WhatTheMachineDidIsNotHeldAgainstTheSource) {
  const TempDir dir = TempDir::create().value();
  const Path script = dir.path() / "g++";
  for (const auto& [words, code] : std::initializer_list<std::pair<const char*, Code>>{
           {"fatal error: Killed signal terminated program cc1plus", Code::kUnavailable},
           {"/tmp/ccX.s: No space left on device", Code::kUnavailable},
           {"error: expected ; before return", Code::kInvalidArgument}}) {
    ASSERT_TRUE(write_file(script, std::string("#!/bin/sh\n[ \"$1\" = --version ] && exit 0\n") +
                                       "echo \"" + words + "\" >&2\nexit 1\n"));
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    const auto compiler = HostCompiler::find(script.string());
    ASSERT_TRUE(compiler) << compiler.error().message;
    const auto artifact = compiler->compile(source("whatever"), v3(), kTimeoutMs);
    ASSERT_FALSE(artifact);
    EXPECT_EQ(artifact.error().code, code) << artifact.error().message;
    EXPECT_NE(artifact.error().message.find(words), std::string::npos);
  }
}

TEST(HostCompiler, KillsACompileThatTakesTooLong) {
  const Source endless = source(
      "template <int N, long P> struct Tree {\n"
      "  static constexpr long size = Tree<N - 1, 2 * P>::size + Tree<N - 1, 2 * P + 1>::size;\n"
      "};\n"
      "template <long P> struct Tree<0, P> { static constexpr long size = 1; };\n"
      "extern \"C\" long run() { return Tree<50, 1>::size; }");
  const auto artifact = host().compile(endless, v3(), 300);
  ASSERT_FALSE(artifact);
  EXPECT_EQ(artifact.error().code, Code::kDeadlineExceeded);
}

TEST(HostCompiler, RefusesTargetsItDoesNotMakeCodeFor) {
  Target cuda;
  cuda.backend = Backend::kCuda;
  cuda.isa = "sm_90a";
  for (const Target& target : {cuda, Target{}}) {
    const auto artifact = host().compile(source("extern \"C\" void run() {}"), target, kTimeoutMs);
    ASSERT_FALSE(artifact);
    EXPECT_EQ(artifact.error().code, Code::kUnsupported);
  }
}

TEST(HostCompiler, NamesWhatCannotBeFound) {
  const auto compiler = HostCompiler::find("no-such-compiler-here");
  ASSERT_FALSE(compiler);
  EXPECT_EQ(compiler.error().code, Code::kNotFound);
  EXPECT_NE(compiler.error().message.find("no-such-compiler-here"), std::string::npos);
  EXPECT_FALSE(HostCompiler::find("/bin/false"));
}

TEST(HostCompiler, CandidateKeySeesTextAndIsaAndNothingSoft) {
  const HostCompiler compiler = host();
  const Source text = source("a");
  const Digest key = compiler.candidate_key(text, v3());
  EXPECT_EQ(compiler.candidate_key(text, v3()), key);
  EXPECT_NE(compiler.candidate_key(source("b"), v3()), key);
  Target other = v3();
  other.device_model = "another";
  other.units = 64;
  EXPECT_EQ(compiler.candidate_key(text, other), key);
  other.isa = "x86-64-v4";
  EXPECT_NE(compiler.candidate_key(text, other), key);
}

}  // namespace
}  // namespace kiln
