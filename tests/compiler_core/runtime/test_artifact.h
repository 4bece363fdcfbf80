// A small real kernel for the tests of this folder, compiled once a call with the host compiler.
#pragma once

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "compiler_core/base/file.h"
#include "compiler_core/program/artifact.h"
#include "compiler_core/runtime/aligned_buffer.h"

namespace kiln {

// The recipe is the caller's to fill in.
inline Artifact compiled_artifact(const std::string& source) {
  const auto dir = TempDir::create();
  EXPECT_TRUE(dir);
  EXPECT_TRUE(write_file(dir->path() / "kernel.cc", source));
  const std::string command =
      fmt::format("g++ -O1 -shared -fPIC -o {0}/kernel.so {0}/kernel.cc", dir->path().string());
  EXPECT_EQ(std::system(command.c_str()), 0);
  Artifact artifact;
  artifact.binary = *read_file(dir->path() / "kernel.so");
  artifact.digest = Digest::of(artifact.binary);
  return artifact;
}

// Two phases: i64 in[s0] times 2 * `factor` into the workspace, using scratch on the way; then
// their sum into out[1], which is right only when the first phase was complete.
inline Artifact running_sum_artifact(int factor) {
  const std::string source = fmt::format(R"(
extern "C" void scale(void* const* args, const long*, long begin, long end, void* workspace,
                      void* scratch) {{
  for (long i = begin; i < end; ++i) {{
    *(volatile long*)scratch = ((const long*)args[0])[i];
    ((long*)workspace)[i] = *(volatile long*)scratch * 2 * {};
  }}
}}
extern "C" void sum(void* const* args, const long* dims, long, long, void* workspace, void*) {{
  long total = 0;
  for (long i = 0; i < dims[0]; ++i) total += ((const long*)workspace)[i];
  *(long*)args[1] = total;
}})",
                                         factor);
  Artifact artifact = compiled_artifact(source);
  artifact.recipe.inputs = {{DType::kI64, {Dim::symbol(0)}}};
  artifact.recipe.outputs = {{DType::kI64, {Dim(1)}}};
  artifact.recipe.phases = {{"scale", Dim::symbol(0)}, {"sum", Dim(1)}};
  artifact.recipe.workspace_bytes = Dim::symbol(0) * Dim(8);
  artifact.recipe.scratch_bytes = 64;
  return artifact;
}

// One phase, a block an element: i64 out[s0] = in[s0] * `factor`, by way of scratch.
inline Artifact scale_artifact(int factor) {
  Artifact artifact = compiled_artifact(fmt::format(R"(
extern "C" void scale(void* const* args, const long*, long begin, long end, void*, void* scratch) {{
  for (long i = begin; i < end; ++i) {{
    *(volatile long*)scratch = ((const long*)args[0])[i];
    ((long*)args[1])[i] = *(volatile long*)scratch * {};
  }}
}})",
                                                    factor));
  artifact.recipe.inputs = {{DType::kI64, {Dim::symbol(0)}}};
  artifact.recipe.outputs = artifact.recipe.inputs;
  artifact.recipe.phases = {{"scale", Dim::symbol(0)}};
  artifact.recipe.scratch_bytes = 64;
  return artifact;
}

}  // namespace kiln
