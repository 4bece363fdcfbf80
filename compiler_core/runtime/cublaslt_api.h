// The part of cuBLASLt that Kiln calls, declared here so that no CUDA header is needed to build:
// names, values and layouts are those of cublasLt.h of CUDA 12 and 13, where they are ABI.
// tests/compiler_core/runtime/cuda_api_test.cc compares them with it. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

#include "compiler_core/runtime/cuda_api.h"

namespace kiln {

using cublasLtHandle_t = struct cublasLtContext*;
using cublasLtMatmulDesc_t = struct cublasLtMatmulDescOpaque_t*;
using cublasLtMatrixLayout_t = struct cublasLtMatrixLayoutOpaque_t*;
using cublasLtMatmulPreference_t = struct cublasLtMatmulPreferenceOpaque_t*;

enum cublasStatus_t : int {
  CUBLAS_STATUS_SUCCESS = 0,
  CUBLAS_STATUS_INVALID_VALUE = 7,
  CUBLAS_STATUS_NOT_SUPPORTED = 15,
};
enum cudaDataType_t : int { CUDA_R_32F = 0, CUDA_R_64F = 1, CUDA_R_16F = 2, CUDA_R_16BF = 14 };
enum cublasComputeType_t : int {
  CUBLAS_COMPUTE_32F = 68,
  CUBLAS_COMPUTE_64F = 70,
  CUBLAS_COMPUTE_32F_FAST_TF32 = 77,
};
enum cublasOperation_t : int { CUBLAS_OP_N = 0, CUBLAS_OP_T = 1 };

enum cublasLtMatmulDescAttributes_t : int {
  CUBLASLT_MATMUL_DESC_TRANSA = 3,        // int32_t: cublasOperation_t
  CUBLASLT_MATMUL_DESC_TRANSB = 4,        // likewise
  CUBLASLT_MATMUL_DESC_EPILOGUE = 7,      // uint32_t: cublasLtEpilogue_t
  CUBLASLT_MATMUL_DESC_BIAS_POINTER = 8,  // device pointer
};
enum cublasLtMatrixLayoutAttribute_t : int {
  CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT = 5,           // int32_t
  CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET = 6,  // int64_t, elements
};
enum cublasLtMatmulPreferenceAttributes_t : int {
  CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES = 1,    // uint64_t
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES = 5,  // uint32_t; 256 where nobody says
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES = 6,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES = 7,
  CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES = 8,
};
enum cublasLtEpilogue_t : int {
  CUBLASLT_EPILOGUE_DEFAULT = 1,
  CUBLASLT_EPILOGUE_RELU = 2,
  CUBLASLT_EPILOGUE_BIAS = 4,
  CUBLASLT_EPILOGUE_RELU_BIAS = 6,
  CUBLASLT_EPILOGUE_GELU = 32,
  CUBLASLT_EPILOGUE_GELU_BIAS = 36,
};

struct cublasLtMatmulAlgo_t {
  uint64_t data[8];
};
struct cublasLtMatmulHeuristicResult_t {
  cublasLtMatmulAlgo_t algo;
  size_t workspaceSize;
  cublasStatus_t state;
  float wavesCount;
  int reserved[4];
};

}  // namespace kiln

// FUNCTION(name, parameters...): those that return a cublasStatus_t.
// clang-format off
#define KILN_CUBLASLT_FUNCTIONS(FUNCTION) \
  FUNCTION(cublasLtCreate, cublasLtHandle_t* handle) \
  FUNCTION(cublasLtDestroy, cublasLtHandle_t handle) \
  FUNCTION(cublasLtMatmulDescCreate, cublasLtMatmulDesc_t* desc, cublasComputeType_t compute, cudaDataType_t scale) \
  FUNCTION(cublasLtMatmulDescDestroy, cublasLtMatmulDesc_t desc) \
  FUNCTION(cublasLtMatmulDescSetAttribute, cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t which, const void* value, size_t bytes) \
  FUNCTION(cublasLtMatrixLayoutCreate, cublasLtMatrixLayout_t* layout, cudaDataType_t type, uint64_t rows, uint64_t columns, int64_t ld) \
  FUNCTION(cublasLtMatrixLayoutDestroy, cublasLtMatrixLayout_t layout) \
  FUNCTION(cublasLtMatrixLayoutSetAttribute, cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t which, const void* value, size_t bytes) \
  FUNCTION(cublasLtMatmulPreferenceCreate, cublasLtMatmulPreference_t* preference) \
  FUNCTION(cublasLtMatmulPreferenceDestroy, cublasLtMatmulPreference_t preference) \
  FUNCTION(cublasLtMatmulPreferenceSetAttribute, cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t which, const void* value, size_t bytes) \
  FUNCTION(cublasLtMatmulAlgoGetHeuristic, cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int most, cublasLtMatmulHeuristicResult_t* results, int* count) \
  FUNCTION(cublasLtMatmulAlgoCheck, cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b, cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t* algorithm, cublasLtMatmulHeuristicResult_t* result) \
  FUNCTION(cublasLtMatmul, cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void* alpha, const void* a, cublasLtMatrixLayout_t a_layout, const void* b, cublasLtMatrixLayout_t b_layout, const void* beta, const void* c, cublasLtMatrixLayout_t c_layout, void* d, cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t* algorithm, void* workspace, size_t workspace_bytes, CUstream stream)
// clang-format on
