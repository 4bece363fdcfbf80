// LibraryCall: a phase that a library of the machine does instead of a kernel of ours. A value. The
// runtime opens the library when the program is loaded and refuses, by name, one that is missing or
// has another version than the call was tuned with (runtime/library_call.h).
//
// The one function so far, "matmul" of "cublaslt":
//
//   d[batch][m, n] = epilogue(a[batch][m, k] b[batch][k, n] + c[batch][m, n])
//
// Matrices are row-major in memory. A transposed one is stored as its transpose: a as [k, m], b as
// [n, k]. The call uses the launch's workspace.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "compiler_core/base/dim.h"
#include "compiler_core/base/dtype.h"

namespace kiln {

// A library of a machine, and its version as it says it.
struct LibraryVersion {
  std::string name;     // "cublaslt"
  std::string version;  // "130100"
  bool operator==(const LibraryVersion&) const = default;
};

struct LibraryCall {
  std::string library;              // "cublaslt"
  std::string version;              // as the library says it: "130100"; empty: any
  std::string function = "matmul";  // the only one

  Dim m, n, k, batch = 1;
  struct Matrix {
    int buffer = 0;  // among the kernel's inputs, then outputs
    DType dtype = DType::kF32;
    bool transposed = false;  // not of d
    Dim ld;                   // elements from one row in memory to the next
    Dim batch_stride = 0;     // elements from one matrix to the next
    Dim offset = 0;           // elements before the first matrix
    bool operator==(const Matrix&) const = default;
  };
  Matrix a, b, d;
  int c = -1;                     // buffer of the addend, laid out as d; -1: none
  std::string compute = "f32";    // of products and sums: "f32", "tf32", "f64"
  std::string epilogue = "none";  // kEpilogues
  int bias = -1;  // buffer of n elements of d's dtype, where the epilogue has a bias

  // Which of the library's algorithms: the `rank`th that its heuristics name for this problem,
  // resolved once when sizes are known (see runtime/library_call.h); or, where `algorithm` is not
  // empty, the one of these opaque bytes in hexadecimal.
  int rank = 0;
  std::string algorithm;

  bool operator==(const LibraryCall&) const = default;
  bool has_bias() const { return epilogue.ends_with("bias"); }

  // kInvalidArgument: a symbol is unbound, a size is not positive or a leading dimension too small,
  // or an operand ends behind `elements` (one number a buffer of the kernel).
  Status check(std::span<const int64_t> symbols, std::span<const int64_t> elements) const;
};

// GELU is the approximation by tanh.
inline constexpr const char* kEpilogues[] = {"none",      "bias",      "relu",
                                             "relu_bias", "gelu_tanh", "gelu_tanh_bias"};
// How many algorithms the heuristics are asked for: ranks 0 to 7.
inline constexpr int kLibraryRanks = 8;
// The most workspace, in bytes, that an algorithm given by its rank may use.
inline constexpr int64_t kLibraryWorkspaceBytes = int64_t{32} << 20;

// Every size of the call, to look for symbols in.
std::vector<Dim> sizes_of(const LibraryCall& call);

}  // namespace kiln
