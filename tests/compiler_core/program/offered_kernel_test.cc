#include "compiler_core/program/offered_kernel.h"

#include <gtest/gtest.h>

#include "compiler_core/program/program.h"

namespace kiln {
namespace {

OfferedKernel sample() {
  OfferedKernel offered;
  offered.name = "fast";
  offered.workload = Digest::of("a workload");
  offered.target = *Target::parse("cuda:sm_90a");
  offered.recipe.inputs = offered.recipe.outputs = {{DType::kF32, {64}}};
  offered.recipe.workspace_bytes = 0;
  offered.recipe.phases = {{"entry", 2, 32}};
  offered.binary = std::string(
      "\x7f"
      "ELF\n\0 of any bytes\n",
      20);
  return offered;
}

TEST(OfferedKernel, ItsTextIsReadBack) {
  const OfferedKernel offered = sample();
  const auto read = offered_from_text(offered_to_text(offered));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->name, offered.name);
  EXPECT_EQ(read->recipe, offered.recipe);
  EXPECT_EQ(read->binary, offered.binary);
  EXPECT_EQ(read->key(), offered.key());
}

TEST(OfferedKernel, EveryPartOfItIsInItsNameOrPlace) {
  std::set<std::string> keys = {sample().key()};
  const auto changed = [&](auto change) {
    OfferedKernel other = sample();
    change(other);
    EXPECT_TRUE(keys.insert(other.key()).second) << other.key();
  };
  changed([](OfferedKernel& o) { o.name = "faster"; });
  changed([](OfferedKernel& o) { o.workload = Digest::of("another"); });
  changed([](OfferedKernel& o) { o.target.isa = "sm_80"; });
  changed([](OfferedKernel& o) { o.binary += " "; });
  changed([](OfferedKernel& o) { o.recipe.phases[0].threads = 64; });
}

TEST(OfferedKernel, WhatCannotBeTriedIsRefused) {
  const auto refuses = [](auto change, const std::string& word) {
    OfferedKernel other = sample();
    change(other);
    const auto read = offered_from_text(offered_to_text(other));
    ASSERT_FALSE(read) << word;
    EXPECT_EQ(read.error().code, Code::kInvalidArgument);
    EXPECT_NE(read.error().message.find(word), std::string::npos) << read.error().message;
  };
  refuses([](OfferedKernel& o) { o.name = "a.b"; }, "name");
  refuses([](OfferedKernel& o) { o.name = std::string(65, 'a'); }, "name");
  refuses([](OfferedKernel& o) { o.binary.clear(); }, "binary");
  refuses([](OfferedKernel& o) { o.target.isa.clear(); }, "target");
  refuses([](OfferedKernel& o) { o.recipe.phases.clear(); }, "launches");
  refuses([](OfferedKernel& o) { o.recipe.inputs[0].shape[0] = Dim::symbol(0); }, "constant sizes");
  refuses([](OfferedKernel& o) { o.recipe.phases[0].call.emplace().library = "cublaslt"; }, "");
  for (const char* text : {"", "\n", "{}\n", "{\"format\": 2}\n", "[1]\nx", "no json\nx"})
    EXPECT_FALSE(offered_from_text(text)) << text;
  const std::string whole = offered_to_text(sample());
  for (size_t size = 0; size < whole.find('\n'); ++size)
    EXPECT_FALSE(offered_from_text(whole.substr(0, size)));
}

TEST(OfferedKernel, AWinnerOfItIsSoundWhereOfferedKernelsAre) {
  ProgramKernel kernel;
  kernel.schedule = sample().template_name();
  kernel.templates = {{kernel.schedule, 1}};
  EXPECT_TRUE(is_sound(kernel, {{"offered", 1}}));
  EXPECT_FALSE(is_sound(kernel, {{"offered", 2}}));
  EXPECT_FALSE(is_sound(kernel, {{"cpu.pointwise", 1}})) << "a build without them";
}

}  // namespace
}  // namespace kiln
