// libfake_cublaslt.so: the few functions of cuBLASLt that Kiln calls, on the fake device: products
// in double precision, column-major as the library has them. It names four algorithms, the ith of
// which needs i MiB of workspace and fills it; from the third on they need operands of 16-byte
// alignment. KILN_FAKE_CUBLASLT_VERSION sets the version.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "compiler_core/base/half.h"
#include "compiler_core/runtime/cublaslt_api.h"
#include "tests/support/fake_cuda/libraries/fake_device.h"

namespace kiln {

extern "C" CUresult kiln_fake_enqueue(CUstream stream, const std::function<::CUresult()>* work);

struct cublasLtContext {};
struct cublasLtMatmulDescOpaque_t {
  int32_t transposed_a = 0, transposed_b = 0;
  uint32_t epilogue = CUBLASLT_EPILOGUE_DEFAULT;
  const void* bias = nullptr;
};
struct cublasLtMatrixLayoutOpaque_t {
  cudaDataType_t type;
  uint64_t rows, columns;
  int64_t ld;
  int32_t batch = 1;
  int64_t batch_stride = 0;
};
struct cublasLtMatmulPreferenceOpaque_t {
  uint64_t workspace = 0;
  uint32_t alignment = 256;  // the least of the operands'
};

namespace {

constexpr uint64_t kAlgorithms = 4, kUnaligned = 2;  // the first ones take any alignment
constexpr uint32_t kAlignment = 16;
constexpr uint64_t kMark = 0x4b696c6e;  // in an algorithm's first word, above its number

// One element, wherever it lies.
struct Element {
  cudaDataType_t type;
  char* at;
  double get() const {
    switch (type) {
      case CUDA_R_64F: {
        double x;
        std::memcpy(&x, at, sizeof x);
        return x;
      }
      case CUDA_R_32F: {
        float x;
        std::memcpy(&x, at, sizeof x);
        return static_cast<double>(x);
      }
      default: {
        uint16_t bits;
        std::memcpy(&bits, at, sizeof bits);
        return static_cast<double>(type == CUDA_R_16F ? f16_to_f32(bits) : bf16_to_f32(bits));
      }
    }
  }
  void set(double value) const {
    const float rounded = static_cast<float>(value);
    const uint16_t bits = type == CUDA_R_16F ? f32_to_f16(rounded) : f32_to_bf16(rounded);
    switch (type) {
      case CUDA_R_64F:
        std::memcpy(at, &value, sizeof value);
        break;
      case CUDA_R_32F:
        std::memcpy(at, &rounded, sizeof rounded);
        break;
      default:
        std::memcpy(at, &bits, sizeof bits);
    }
  }
};

int64_t size_of(cudaDataType_t type) {
  return type == CUDA_R_64F ? 8 : type == CUDA_R_32F ? 4 : 2;
}

struct Matrix {
  cublasLtMatrixLayoutOpaque_t layout;
  char* data;
  Element at(int64_t batch, uint64_t row, uint64_t column) const {
    const int64_t index = batch * layout.batch_stride + static_cast<int64_t>(column) * layout.ld +
                          static_cast<int64_t>(row);
    return {layout.type, data + index * size_of(layout.type)};
  }
};

struct Product {
  cublasLtMatmulDescOpaque_t desc;
  Matrix a, b, c, d;
  double alpha = 1, beta = 0;
  char* workspace = nullptr;
  size_t workspace_bytes = 0;

  double finish(double x, double bias) const {
    const uint32_t kind = desc.epilogue & ~uint32_t{CUBLASLT_EPILOGUE_BIAS};
    x += bias;
    if (kind == CUBLASLT_EPILOGUE_RELU) return std::max(x, 0.0);
    if (kind == CUBLASLT_EPILOGUE_GELU)
      return 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
    return x;
  }

  ::CUresult operator()() const {
    if (workspace_bytes > 0) std::memset(workspace, 0x77, workspace_bytes);
    const uint64_t depth = desc.transposed_a != 0 ? a.layout.rows : a.layout.columns;
    for (int64_t batch = 0; batch < d.layout.batch; ++batch) {
      // Read once: a product is to take less time here than an emulated kernel.
      std::vector<double> rows, columns;
      for (uint64_t row = 0; row < d.layout.rows; ++row)
        for (uint64_t i = 0; i < depth; ++i)
          rows.push_back(
              (desc.transposed_a != 0 ? a.at(batch, i, row) : a.at(batch, row, i)).get());
      for (uint64_t column = 0; column < d.layout.columns; ++column)
        for (uint64_t i = 0; i < depth; ++i)
          columns.push_back(
              (desc.transposed_b != 0 ? b.at(batch, column, i) : b.at(batch, i, column)).get());
      for (uint64_t row = 0; row < d.layout.rows; ++row) {
        double bias = 0;
        if ((desc.epilogue & CUBLASLT_EPILOGUE_BIAS) != 0)
          bias = Element{d.layout.type, static_cast<char*>(const_cast<void*>(desc.bias)) +
                                            static_cast<int64_t>(row) * size_of(d.layout.type)}
                     .get();
        for (uint64_t column = 0; column < d.layout.columns; ++column) {
          double sum = 0;
          for (uint64_t i = 0; i < depth; ++i)
            sum += rows[row * depth + i] * columns[column * depth + i];
          const double added = beta != 0 ? beta * c.at(batch, row, column).get() : 0;
          d.at(batch, row, column).set(finish(alpha * sum + added, bias));
        }
      }
    }
    return ::CUDA_SUCCESS;
  }
};

bool is_known(const cublasLtMatmulAlgo_t& algorithm) {
  return algorithm.data[0] >> 32 == kMark && (algorithm.data[0] & 0xffffffffu) < kAlgorithms;
}
size_t workspace_of(const cublasLtMatmulAlgo_t& algorithm) {
  return (algorithm.data[0] & 0xffffffffu) << 20;
}

}  // namespace

extern "C" {

size_t cublasLtGetVersion() {
  const char* version = std::getenv("KILN_FAKE_CUBLASLT_VERSION");
  return version == nullptr ? 130100 : static_cast<size_t>(std::atol(version));
}
const char* cublasLtGetStatusString(cublasStatus_t status) {
  return status == CUBLAS_STATUS_INVALID_VALUE ? "CUBLAS_STATUS_INVALID_VALUE"
                                               : "CUBLAS_STATUS_NOT_SUPPORTED";
}
cublasStatus_t cublasLtCreate(cublasLtHandle_t* handle) {
  *handle = new cublasLtContext;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle) {
  delete handle;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t* desc, cublasComputeType_t compute,
                                        cudaDataType_t scale) {
  if ((compute == CUBLAS_COMPUTE_64F) != (scale == CUDA_R_64F)) return CUBLAS_STATUS_NOT_SUPPORTED;
  *desc = new cublasLtMatmulDescOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc) {
  delete desc;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc,
                                              cublasLtMatmulDescAttributes_t which,
                                              const void* value, size_t bytes) {
  void* to = nullptr;
  size_t wanted = sizeof(int32_t);
  switch (which) {
    case CUBLASLT_MATMUL_DESC_TRANSA:
      to = &desc->transposed_a;
      break;
    case CUBLASLT_MATMUL_DESC_TRANSB:
      to = &desc->transposed_b;
      break;
    case CUBLASLT_MATMUL_DESC_EPILOGUE:
      to = &desc->epilogue;
      break;
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER:
      to = &desc->bias;
      wanted = sizeof(void*);
      break;
  }
  if (to == nullptr || bytes != wanted) return CUBLAS_STATUS_INVALID_VALUE;
  std::memcpy(to, value, bytes);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t* layout, cudaDataType_t type,
                                          uint64_t rows, uint64_t columns, int64_t ld) {
  if (ld < static_cast<int64_t>(rows)) return CUBLAS_STATUS_INVALID_VALUE;
  *layout = new cublasLtMatrixLayoutOpaque_t{type, rows, columns, ld};
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout) {
  delete layout;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout,
                                                cublasLtMatrixLayoutAttribute_t which,
                                                const void* value, size_t bytes) {
  if (which == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT && bytes == sizeof layout->batch)
    std::memcpy(&layout->batch, value, bytes);
  else if (which == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET &&
           bytes == sizeof layout->batch_stride)
    std::memcpy(&layout->batch_stride, value, bytes);
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t* preference) {
  *preference = new cublasLtMatmulPreferenceOpaque_t;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference) {
  delete preference;
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference,
                                                    cublasLtMatmulPreferenceAttributes_t which,
                                                    const void* value, size_t bytes) {
  if (which == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES && bytes == sizeof(uint64_t))
    std::memcpy(&preference->workspace, value, bytes);
  else if (bytes == sizeof(uint32_t))
    preference->alignment = std::min(preference->alignment, *static_cast<const uint32_t*>(value));
  else
    return CUBLAS_STATUS_INVALID_VALUE;
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                              cublasLtMatmulPreference_t preference, int most,
                                              cublasLtMatmulHeuristicResult_t* results,
                                              int* count) {
  *count = 0;
  for (uint64_t number = 0; number < kAlgorithms && *count < most; ++number) {
    cublasLtMatmulHeuristicResult_t result{};
    result.algo.data[0] = kMark << 32 | number;
    result.workspaceSize = workspace_of(result.algo);
    result.wavesCount = 1.5f;
    const bool is_aligned = number < kUnaligned || preference->alignment >= kAlignment;
    if (result.workspaceSize <= preference->workspace && is_aligned) results[(*count)++] = result;
  }
  return CUBLAS_STATUS_SUCCESS;
}
cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t, cublasLtMatmulDesc_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       cublasLtMatrixLayout_t, cublasLtMatrixLayout_t,
                                       const cublasLtMatmulAlgo_t* algorithm,
                                       cublasLtMatmulHeuristicResult_t* result) {
  if (!is_known(*algorithm)) return CUBLAS_STATUS_INVALID_VALUE;
  result->workspaceSize = workspace_of(*algorithm);
  return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t, cublasLtMatmulDesc_t desc, const void* alpha,
                              const void* a, cublasLtMatrixLayout_t a_layout, const void* b,
                              cublasLtMatrixLayout_t b_layout, const void* beta, const void* c,
                              cublasLtMatrixLayout_t c_layout, void* d,
                              cublasLtMatrixLayout_t d_layout,
                              const cublasLtMatmulAlgo_t* algorithm, void* workspace,
                              size_t workspace_bytes, CUstream stream) {
  const auto is_aligned = [](const void* data) {
    return reinterpret_cast<uintptr_t>(data) % kAlignment == 0;
  };
  if (!is_known(*algorithm) || workspace_bytes < workspace_of(*algorithm))
    return CUBLAS_STATUS_INVALID_VALUE;
  if ((algorithm->data[0] & 0xffffffffu) >= kUnaligned &&
      !(is_aligned(a) && is_aligned(b) && is_aligned(c) && is_aligned(d)))
    return CUBLAS_STATUS_NOT_SUPPORTED;
  const auto matrix = [](cublasLtMatrixLayout_t layout, const void* data) {
    return Matrix{*layout, static_cast<char*>(const_cast<void*>(data))};
  };
  const auto scalar = [&](const void* value) {
    return Element{d_layout->type == CUDA_R_64F ? CUDA_R_64F : CUDA_R_32F,
                   static_cast<char*>(const_cast<void*>(value))}
        .get();
  };
  const std::function<::CUresult()> work = Product{*desc,
                                                   matrix(a_layout, a),
                                                   matrix(b_layout, b),
                                                   matrix(c_layout, c),
                                                   matrix(d_layout, d),
                                                   scalar(alpha),
                                                   scalar(beta),
                                                   static_cast<char*>(workspace),
                                                   workspace_of(*algorithm)};
  return kiln_fake_enqueue(stream, &work) == CUDA_SUCCESS ? CUBLAS_STATUS_SUCCESS
                                                          : CUBLAS_STATUS_NOT_SUPPORTED;
}

}  // extern "C"
}  // namespace kiln
