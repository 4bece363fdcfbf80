// Tunes a program's kernels in this process, on this machine, through the real planner, code
// generator, compiler and runtime: what the service does, without the service. For benchmarks.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/compile/compiler.h"
#include "compiler_core/runtime/executable.h"
#include "compiler_core/runtime/thread_pool.h"

namespace kiln::bench {

struct TunedProgram {
  Program program;
  std::vector<Artifact> artifacts;
};

// Screens every schedule of every kernel (median of 3 launches), then times the best few and the
// first guess interleaved; the reports of program.kernels carry both times. `most` bounds the
// schedules a kernel.
Result<TunedProgram> tune_program(const Graph& canonical, const Target& target,
                                  const HostCompiler& compiler, ThreadPool& pool, int most);

// Floats in [-1, 1], integers in [0, 15]; a pattern that repeats after some thousand elements.
void fill_random(Tensor& tensor);

double median(std::vector<double> samples);
double microseconds_of(const std::function<void()>& work);

}  // namespace kiln::bench
