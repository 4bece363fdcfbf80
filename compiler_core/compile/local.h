// compile_locally: the whole of `default` mode in one process.
#pragma once

#include <vector>

#include "compiler_core/compile/kernel_compiler.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/program/program.h"

namespace kiln {

// Plans, lowers the first schedule of every kernel and compiles it here, without timing: what
// `default` mode gives with no service at hand. Up to `jobs` compiles at once.
struct LocalCompilation {
  Program program;
  std::vector<Artifact> artifacts;  // one per program.kernels
};
Result<LocalCompilation> compile_locally(const Graph& canonical, const Digest& graph_digest,
                                         const Target& target, const KernelCompiler& compiler,
                                         int jobs);
// The same for a plan that is made already.
Result<LocalCompilation> compile_locally(Plan planned, const Digest& graph_digest,
                                         const Target& target, const KernelCompiler& compiler,
                                         int jobs);

}  // namespace kiln
