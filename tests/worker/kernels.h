// Hand-written kernels, right and wrong, for the tests of the worker. All compute
// out = in0 + in1 over 1000 floats in 10 blocks of 100, or fail to.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "compiler_core/compile/compiler.h"
#include "schema/messages.h"

namespace kiln::test {

inline constexpr int64_t kElements = 1000;
inline constexpr char kAddGraph[] =
    "kiln.graph 1\n"
    "%0 = input 0 : f32[1000]\n"
    "%1 = input 1 : f32[1000]\n"
    "%2 = add %0 %1 : f32[1000]\n"
    "return %2\n";

inline constexpr char kRight[] = "for (long i = first; i < last; ++i) out[i] = a[i] + b[i];";

inline Recipe add_recipe() {
  const TensorSpec spec{DType::kF32, {kElements}};
  return {{spec, spec}, {spec}, {{"kernel", 10}}, 0, 0};
}

// A kernel whose body sees `first`, `last` (its elements), `begin` (its first block), a, b, out,
// workspace. Bodies may declare what they need of libc before it with `prelude`.
inline Source kernel_source(const std::string& body, const std::string& prelude = "") {
  return {
      prelude +
          "\nextern \"C\" void kernel(void* const* args, const long* dims, long begin, long end,"
          " void* workspace, void* scratch) {\n"
          "  const long first = begin * 100, last = end * 100;\n"
          "  float* a = (float*)args[0]; float* b = (float*)args[1];\n"
          "  float* out = (float*)args[2];\n"
          "  (void)first; (void)last; (void)a; (void)b; (void)out;\n"
          "  (void)dims; (void)workspace; (void)scratch;\n" +
          body + "\n}\n",
      add_recipe()};
}

inline const HostCompiler& compiler() {
  static const HostCompiler found = HostCompiler::find().value();
  return found;
}

inline Artifact compile_kernel(const std::string& body, const std::string& prelude = "") {
  auto artifact = compiler().compile(kernel_source(body, prelude), host_cpu_target(), 60'000);
  EXPECT_TRUE(artifact.has_value()) << (artifact ? "" : artifact.error().message);
  return artifact ? *std::move(artifact) : Artifact{};
}

inline Job add_job(Job::Kind kind = Job::Kind::kScreen) {
  Job job;
  job.lease = 1;
  job.epoch = 1;
  job.kind = kind;
  job.kernel_key = Digest::of("a kernel");
  job.target = host_cpu_target();
  job.family = Family::kPointwise;
  job.workload_text = kAddGraph;
  job.seed = 7;
  return job;
}

inline Path runner_path() {
  return Path(KILN_BINARY_DIR) / "bin" / "kiln-runner";
}

}  // namespace kiln::test
