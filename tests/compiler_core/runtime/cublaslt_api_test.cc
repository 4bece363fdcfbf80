// What Kiln declares of cuBLASLt, beside NVIDIA's own header where there is one.
#include "compiler_core/runtime/cublaslt_api.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <type_traits>

#if __has_include(<cublasLt.h>)
#include <cublasLt.h>

namespace {

#define KILN_SAME(name) static_assert(int{kiln::name} == static_cast<int>(::name), #name)
KILN_SAME(CUBLAS_STATUS_SUCCESS);
KILN_SAME(CUBLAS_STATUS_INVALID_VALUE);
KILN_SAME(CUBLAS_STATUS_NOT_SUPPORTED);
KILN_SAME(CUDA_R_32F);
KILN_SAME(CUDA_R_64F);
KILN_SAME(CUDA_R_16F);
KILN_SAME(CUDA_R_16BF);
KILN_SAME(CUBLAS_COMPUTE_32F);
KILN_SAME(CUBLAS_COMPUTE_64F);
KILN_SAME(CUBLAS_COMPUTE_32F_FAST_TF32);
KILN_SAME(CUBLAS_OP_N);
KILN_SAME(CUBLAS_OP_T);
KILN_SAME(CUBLASLT_MATMUL_DESC_TRANSA);
KILN_SAME(CUBLASLT_MATMUL_DESC_TRANSB);
KILN_SAME(CUBLASLT_MATMUL_DESC_EPILOGUE);
KILN_SAME(CUBLASLT_MATMUL_DESC_BIAS_POINTER);
KILN_SAME(CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT);
KILN_SAME(CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET);
KILN_SAME(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES);
KILN_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES);
KILN_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES);
KILN_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES);
KILN_SAME(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES);
KILN_SAME(CUBLASLT_EPILOGUE_DEFAULT);
KILN_SAME(CUBLASLT_EPILOGUE_RELU);
KILN_SAME(CUBLASLT_EPILOGUE_BIAS);
KILN_SAME(CUBLASLT_EPILOGUE_RELU_BIAS);
KILN_SAME(CUBLASLT_EPILOGUE_GELU);
KILN_SAME(CUBLASLT_EPILOGUE_GELU_BIAS);

#define KILN_SAME_FIELD(field)                                            \
  static_assert(offsetof(kiln::cublasLtMatmulHeuristicResult_t, field) == \
                    offsetof(::cublasLtMatmulHeuristicResult_t, field),   \
                #field)
static_assert(sizeof(kiln::cublasLtMatmulAlgo_t) == sizeof(::cublasLtMatmulAlgo_t));
static_assert(sizeof(kiln::cublasLtMatmulHeuristicResult_t) ==
              sizeof(::cublasLtMatmulHeuristicResult_t));
KILN_SAME_FIELD(algo);
KILN_SAME_FIELD(workspaceSize);
KILN_SAME_FIELD(state);
KILN_SAME_FIELD(wavesCount);

// A function's parameters as the binary interface has them: integers and addresses.
template <class T>
constexpr int kind_of() {
  return std::is_pointer_v<T> ? 100 : static_cast<int>(sizeof(T));
}
template <class Function>
struct Kinds;
template <class R, class... P>
struct Kinds<R (*)(P...)> {
  static constexpr std::array<int, sizeof...(P)> kOfParameters = {kind_of<P>()...};
};

}  // namespace

namespace kiln {
#define KILN_PROTOTYPE(name, ...) cublasStatus_t (*name)(__VA_ARGS__);
struct CublasLtPrototypes {
  KILN_CUBLASLT_FUNCTIONS(KILN_PROTOTYPE)
};
}  // namespace kiln

TEST(CublasLtApi, PrototypesAreThoseOfTheLibrarysHeader) {
#define KILN_COMPARE(name, ...)                                             \
  EXPECT_EQ(Kinds<decltype(kiln::CublasLtPrototypes::name)>::kOfParameters, \
            Kinds<decltype(&::name)>::kOfParameters)                        \
      << #name;
  KILN_CUBLASLT_FUNCTIONS(KILN_COMPARE)
}
#endif
