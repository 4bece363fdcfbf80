// Runs a generated CUDA source on the CPU, without driver and NVRTC: for the tests of code
// generation. One at a time in a process; others wait.
#pragma once

#include <span>
#include <vector>

#include "compiler_core/base/tensor.h"
#include "compiler_core/kernels/registry.h"

namespace kiln::testing {

// The outputs. The source is compiled (once in a process for equal text), every phase launched on
// buffers that are 16-byte aligned and no more and stand between pages that can't be touched;
// all that a kernel must write before it reads starts poisoned. All of it twice, with threads and
// blocks in opposite orders, different poison, and the buffers' other ends close to the pages.
// `dims`: a value for each symbol of the recipe.
//
// kInvalidArgument: the source does not compile, with the compiler's messages, or the inputs are
// not the recipe's. kInternal: what the kernel did wrong: an access outside its buffers (and near
// which one), a misaligned one, a barrier that not all threads reach, or results that depend on
// the order of threads or on memory that nobody wrote.
Result<std::vector<Tensor>> run_on_fake_gpu(const Source& source, std::span<const Tensor> inputs,
                                            std::span<const int64_t> dims = {});

}  // namespace kiln::testing
