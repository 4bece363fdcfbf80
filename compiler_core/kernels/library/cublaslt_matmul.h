// Products by cuBLASLt: a matmul workload as one call, where its operands and epilogue are what the
// library can read and do. Pure functions.
//
// Covered are constant and symbolic sizes; bf16, f16, f32 and f64 operands, each stored row by row
// or transposed, cut out of a larger buffer or not, batched at one stride (or the same matrix for
// every batch); as epilogue a bias of the columns and an addend laid out as the result. Sums are
// in full f32 (f64 for f64), as PyTorch's are by default, and rounded once.
//
// A schedule is {"rank": 0 to 7}, or 0 alone where sizes have symbols, and in a coordinator's jobs
// and records also {"version": the library's}, without which any version does.
#pragma once

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/library_call.h"

namespace kiln {

// The call without algorithm and version. kUnsupported: what the library lacks for it.
// REQUIRES: workload.family is kMatmul.
Result<LibraryCall> cublaslt_call(const Workload& workload);

// "cublaslt.matmul".
const KernelTemplate& cublaslt_matmul();

}  // namespace kiln
