// What Kiln declares of the CUDA driver, beside NVIDIA's own header where there is one.
#include "compiler_core/runtime/cuda_api.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <string_view>
#include <type_traits>

#if __has_include(<cuda.h>)
#include <cuda.h>

namespace {

#define KILN_SAME(name) static_assert(int{kiln::name} == static_cast<int>(::name), #name)
KILN_SAME(CUDA_SUCCESS);
KILN_SAME(CUDA_ERROR_INVALID_VALUE);
KILN_SAME(CUDA_ERROR_NO_DEVICE);
KILN_SAME(CUDA_ERROR_ECC_UNCORRECTABLE);
KILN_SAME(CUDA_ERROR_NOT_READY);
KILN_SAME(CUDA_ERROR_ILLEGAL_ADDRESS);
KILN_SAME(CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES);
KILN_SAME(CUDA_ERROR_LAUNCH_TIMEOUT);
KILN_SAME(CUDA_ERROR_CONTEXT_IS_DESTROYED);
KILN_SAME(CUDA_ERROR_ASSERT);
KILN_SAME(CUDA_ERROR_HARDWARE_STACK_ERROR);
KILN_SAME(CUDA_ERROR_ILLEGAL_INSTRUCTION);
KILN_SAME(CUDA_ERROR_MISALIGNED_ADDRESS);
KILN_SAME(CUDA_ERROR_INVALID_ADDRESS_SPACE);
KILN_SAME(CUDA_ERROR_INVALID_PC);
KILN_SAME(CUDA_ERROR_LAUNCH_FAILED);
KILN_SAME(CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
KILN_SAME(CUDA_ERROR_EXTERNAL_DEVICE);
KILN_SAME(CUDA_ERROR_INVALID_CLUSTER_SIZE);
KILN_SAME(CUDA_ERROR_UNKNOWN);
KILN_SAME(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT);
KILN_SAME(CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE);
KILN_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR);
KILN_SAME(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR);
KILN_SAME(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN);
KILN_SAME(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK);
KILN_SAME(CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES);
KILN_SAME(CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
KILN_SAME(CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED);
KILN_SAME(CU_STREAM_CAPTURE_STATUS_NONE);
KILN_SAME(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
KILN_SAME(CU_STREAM_CAPTURE_MODE_RELAXED);
KILN_SAME(CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION);
KILN_SAME(CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_UINT8);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_UINT16);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_INT32);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_INT64);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT16);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT32);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_FLOAT64);
KILN_SAME(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
static_assert(kiln::CU_STREAM_NON_BLOCKING == ::CU_STREAM_NON_BLOCKING);
static_assert(kiln::CU_EVENT_DEFAULT == ::CU_EVENT_DEFAULT);

#define KILN_SAME_FIELD(type, field) \
  static_assert(offsetof(kiln::type, field) == offsetof(::type, field), #type "::" #field)
static_assert(sizeof(kiln::CUlaunchConfig) == sizeof(::CUlaunchConfig));
KILN_SAME_FIELD(CUlaunchConfig, blockDimX);
KILN_SAME_FIELD(CUlaunchConfig, sharedMemBytes);
KILN_SAME_FIELD(CUlaunchConfig, hStream);
KILN_SAME_FIELD(CUlaunchConfig, attrs);
KILN_SAME_FIELD(CUlaunchConfig, numAttrs);
static_assert(sizeof(kiln::CUlaunchAttribute) == sizeof(::CUlaunchAttribute));
KILN_SAME_FIELD(CUlaunchAttribute, value);
static_assert(sizeof(kiln::CUgraphExecUpdateResultInfo) == sizeof(::CUgraphExecUpdateResultInfo));
static_assert(sizeof(kiln::CUtensorMap) == sizeof(::CUtensorMap));

// A function's parameters as the driver's binary interface has them: integers and addresses.
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
#define KILN_PROTOTYPE(name, symbol, ...) CUresult (*name)(__VA_ARGS__);
struct Prototypes {
  KILN_CUDA_FUNCTIONS(KILN_PROTOTYPE)
  KILN_OPTIONAL_CUDA_FUNCTIONS(KILN_PROTOTYPE)
};
}  // namespace kiln

namespace {

#define KILN_TEXT_OF(name) #name
#define KILN_TEXT(name) KILN_TEXT_OF(name)

TEST(CudaApi, PrototypesAndSymbolsAreThoseOfTheDriversHeader) {
  const auto compare = [](const auto& ours, const auto& theirs, const char* symbol,
                          std::string_view latest) {
    EXPECT_EQ(ours, theirs) << symbol;
    if (latest == "cuEventElapsedTime_v2") return;  // older drivers lack it
    EXPECT_EQ(symbol, latest);
  };
#define KILN_COMPARE(name, symbol, ...)                           \
  compare(Kinds<decltype(kiln::Prototypes::name)>::kOfParameters, \
          Kinds<decltype(&::name)>::kOfParameters, symbol, KILN_TEXT(name));
  KILN_CUDA_FUNCTIONS(KILN_COMPARE)
  KILN_OPTIONAL_CUDA_FUNCTIONS(KILN_COMPARE)
}

}  // namespace
#endif
