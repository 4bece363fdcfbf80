// What no GPU is needed to notice of a kernel: that NVRTC compiles it, without spills and without a stack, and
// leaves all that it reads behind its wait for the kernel in front (program/cubin_waits.h).
// What passed is not compiled again on this machine: an empty file of its key is kept (kept_objects.h).
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "compiler_core/compile/nvrtc.h"
#include "tests/support/kept_objects.h"

namespace kiln::testing {

// `name`: of the kernel, in failures.
inline void expect_in_registers(const Nvrtc& nvrtc, const Source& source, const Target& target,
                                const std::string& name) {
  static const Path faultless = kept_folder("faultless_candidates");
  const Path passed = faultless / nvrtc.candidate_key(source, target).hex();
  if (!faultless.empty() && std::filesystem::exists(passed)) return;
  const auto object = nvrtc.compile(source, target);
  ASSERT_TRUE(object) << name << ": " << object.error().message.substr(0, 2000);
  const KernelResources& used = object->resources;
  EXPECT_EQ(used.spill_bytes, 0) << name << ", with " << used.registers << " registers";
  EXPECT_EQ(used.stack_bytes, 0) << name << ", with " << used.registers << " registers";
  const bool waits = object->artifact.recipe == source.recipe;
  EXPECT_TRUE(waits) << name << " reads before it waits";
  if (used.spill_bytes == 0 && used.stack_bytes == 0 && waits && !faultless.empty())
    std::ofstream{passed};
}

}  // namespace kiln::testing
