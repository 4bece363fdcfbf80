// The part of the CUDA driver API that Kiln calls, declared here so that no CUDA header is needed
// to build: names, values and layouts are those of cuda.h since CUDA 12, where they are ABI.
// tests/compiler_core/runtime/cuda_api_test.cc compares them with cuda.h. Private to this folder.
#pragma once

#include <cstddef>
#include <cstdint>

namespace kiln {

using CUdevice = int;
using CUdeviceptr = uint64_t;
using CUcontext = struct CUctx_st*;
using CUstream = struct CUstream_st*;
using CUevent = struct CUevent_st*;
using CUgraph = struct CUgraph_st*;
using CUgraphExec = struct CUgraphExec_st*;
using CUlibrary = struct CUlib_st*;
using CUkernel = struct CUkern_st*;
using CUfunction = struct CUfunc_st*;

enum CUresult : int {
  CUDA_SUCCESS = 0,
  CUDA_ERROR_INVALID_VALUE = 1,
  CUDA_ERROR_NO_DEVICE = 100,
  CUDA_ERROR_ECC_UNCORRECTABLE = 214,
  CUDA_ERROR_NOT_READY = 600,
  CUDA_ERROR_ILLEGAL_ADDRESS = 700,
  CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES = 701,
  CUDA_ERROR_LAUNCH_TIMEOUT = 702,
  CUDA_ERROR_CONTEXT_IS_DESTROYED = 709,
  CUDA_ERROR_ASSERT = 710,
  CUDA_ERROR_HARDWARE_STACK_ERROR = 714,
  CUDA_ERROR_ILLEGAL_INSTRUCTION = 715,
  CUDA_ERROR_MISALIGNED_ADDRESS = 716,
  CUDA_ERROR_INVALID_ADDRESS_SPACE = 717,
  CUDA_ERROR_INVALID_PC = 718,
  CUDA_ERROR_LAUNCH_FAILED = 719,
  CUDA_ERROR_STREAM_CAPTURE_IMPLICIT = 906,
  CUDA_ERROR_EXTERNAL_DEVICE = 911,
  CUDA_ERROR_INVALID_CLUSTER_SIZE = 912,
  CUDA_ERROR_UNKNOWN = 999,
};

enum CUdevice_attribute : int {
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT = 16,
  CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE = 38,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR = 75,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR = 76,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN = 97,
};

enum CUfunction_attribute : int {
  CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK = 0,
  CU_FUNC_ATTRIBUTE_SHARED_SIZE_BYTES = 1,
  CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES = 8,
  CU_FUNC_ATTRIBUTE_NON_PORTABLE_CLUSTER_SIZE_ALLOWED = 14,
};

enum CUstreamCaptureStatus : int { CU_STREAM_CAPTURE_STATUS_NONE = 0 };
enum CUstreamCaptureMode : int {
  CU_STREAM_CAPTURE_MODE_THREAD_LOCAL = 1,
  CU_STREAM_CAPTURE_MODE_RELAXED = 2,
};
inline constexpr unsigned CU_STREAM_NON_BLOCKING = 1;
inline constexpr unsigned CU_EVENT_DEFAULT = 0;

enum CUlaunchAttributeID : int {
  CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION = 4,
  CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION = 6,
};

union CUlaunchAttributeValue {
  char pad[64];
  struct {
    unsigned x, y, z;
  } clusterDim;
  int programmaticStreamSerializationAllowed;
  void* alignment;  // some values hold handles
};

struct CUlaunchAttribute {
  CUlaunchAttributeID id;
  char pad[4];
  CUlaunchAttributeValue value;
};

struct CUlaunchConfig {
  unsigned gridDimX, gridDimY, gridDimZ;
  unsigned blockDimX, blockDimY, blockDimZ;
  unsigned sharedMemBytes;
  CUstream hStream;
  CUlaunchAttribute* attrs;
  unsigned numAttrs;
};

struct CUgraphExecUpdateResultInfo {
  int result;
  void *errorNode, *errorFromNode;
};

// ---- Tensor maps: what the copy engine of compute capability 9.0 and later reads.

struct alignas(128) CUtensorMap {
  uint64_t opaque[16];
};

enum CUtensorMapDataType : int {
  CU_TENSOR_MAP_DATA_TYPE_UINT8 = 0,
  CU_TENSOR_MAP_DATA_TYPE_UINT16 = 1,
  CU_TENSOR_MAP_DATA_TYPE_INT32 = 3,
  CU_TENSOR_MAP_DATA_TYPE_INT64 = 5,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT16 = 6,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT32 = 7,
  CU_TENSOR_MAP_DATA_TYPE_FLOAT64 = 8,
  CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 = 9,
};
enum CUtensorMapInterleave : int {};    // 0, 16, 32 bytes
enum CUtensorMapSwizzle : int {};       // 0, 32, 64, 128 bytes
enum CUtensorMapL2promotion : int {};   // 0, 64, 128, 256 bytes
enum CUtensorMapFloatOOBfill : int {};  // zeros, NaN

}  // namespace kiln

// FUNCTION(name, symbol, parameters...): what a function is called here, its symbol in libcuda (the
// version that these parameters belong to), its parameters. All of them return a CUresult.
// clang-format off
#define KILN_CUDA_FUNCTIONS(FUNCTION) \
  FUNCTION(cuInit, "cuInit", unsigned flags) \
  FUNCTION(cuDriverGetVersion, "cuDriverGetVersion", int* version) \
  FUNCTION(cuGetErrorName, "cuGetErrorName", CUresult error, const char** name) \
  FUNCTION(cuGetErrorString, "cuGetErrorString", CUresult error, const char** text) \
  FUNCTION(cuDeviceGetCount, "cuDeviceGetCount", int* count) \
  FUNCTION(cuDeviceGet, "cuDeviceGet", CUdevice* device, int ordinal) \
  FUNCTION(cuDeviceGetName, "cuDeviceGetName", char* name, int size, CUdevice device) \
  FUNCTION(cuDeviceGetPCIBusId, "cuDeviceGetPCIBusId", char* id, int size, CUdevice device) \
  FUNCTION(cuDeviceGetAttribute, "cuDeviceGetAttribute", int* value, CUdevice_attribute which, CUdevice device) \
  FUNCTION(cuDeviceTotalMem, "cuDeviceTotalMem_v2", size_t* bytes, CUdevice device) \
  FUNCTION(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", CUcontext* context, CUdevice device) \
  FUNCTION(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease_v2", CUdevice device) \
  FUNCTION(cuCtxSetCurrent, "cuCtxSetCurrent", CUcontext context) \
  FUNCTION(cuCtxGetCurrent, "cuCtxGetCurrent", CUcontext* context) \
  FUNCTION(cuMemAlloc, "cuMemAlloc_v2", CUdeviceptr* memory, size_t bytes) \
  FUNCTION(cuMemFree, "cuMemFree_v2", CUdeviceptr memory) \
  FUNCTION(cuMemGetInfo, "cuMemGetInfo_v2", size_t* free_bytes, size_t* total_bytes) \
  FUNCTION(cuMemcpyHtoD, "cuMemcpyHtoD_v2", CUdeviceptr to, const void* from, size_t bytes) \
  FUNCTION(cuMemcpyDtoH, "cuMemcpyDtoH_v2", void* to, CUdeviceptr from, size_t bytes) \
  FUNCTION(cuMemcpyDtoDAsync, "cuMemcpyDtoDAsync_v2", CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream) \
  FUNCTION(cuMemsetD8Async, "cuMemsetD8Async", CUdeviceptr memory, unsigned char value, size_t bytes, CUstream stream) \
  FUNCTION(cuStreamCreate, "cuStreamCreate", CUstream* stream, unsigned flags) \
  FUNCTION(cuStreamDestroy, "cuStreamDestroy_v2", CUstream stream) \
  FUNCTION(cuStreamSynchronize, "cuStreamSynchronize", CUstream stream) \
  FUNCTION(cuStreamQuery, "cuStreamQuery", CUstream stream) \
  FUNCTION(cuStreamIsCapturing, "cuStreamIsCapturing", CUstream stream, CUstreamCaptureStatus* status) \
  FUNCTION(cuStreamBeginCapture, "cuStreamBeginCapture_v2", CUstream stream, CUstreamCaptureMode mode) \
  FUNCTION(cuStreamEndCapture, "cuStreamEndCapture", CUstream stream, CUgraph* graph) \
  FUNCTION(cuGraphInstantiate, "cuGraphInstantiateWithFlags", CUgraphExec* instance, CUgraph graph, unsigned long long flags) \
  FUNCTION(cuGraphExecUpdate, "cuGraphExecUpdate_v2", CUgraphExec instance, CUgraph graph, CUgraphExecUpdateResultInfo* info) \
  FUNCTION(cuGraphLaunch, "cuGraphLaunch", CUgraphExec instance, CUstream stream) \
  FUNCTION(cuGraphDestroy, "cuGraphDestroy", CUgraph graph) \
  FUNCTION(cuGraphExecDestroy, "cuGraphExecDestroy", CUgraphExec instance) \
  FUNCTION(cuEventCreate, "cuEventCreate", CUevent* event, unsigned flags) \
  FUNCTION(cuEventDestroy, "cuEventDestroy_v2", CUevent event) \
  FUNCTION(cuEventRecord, "cuEventRecord", CUevent event, CUstream stream) \
  FUNCTION(cuEventElapsedTime, "cuEventElapsedTime", float* ms, CUevent start, CUevent end) \
  FUNCTION(cuLibraryLoadData, "cuLibraryLoadData", CUlibrary* library, const void* code, void* jit_options, void** jit_values, unsigned jit_count, void* options, void** values, unsigned count) \
  FUNCTION(cuLibraryUnload, "cuLibraryUnload", CUlibrary library) \
  FUNCTION(cuLibraryGetKernel, "cuLibraryGetKernel", CUkernel* kernel, CUlibrary library, const char* name) \
  FUNCTION(cuKernelGetFunction, "cuKernelGetFunction", CUfunction* function, CUkernel kernel) \
  FUNCTION(cuFuncGetAttribute, "cuFuncGetAttribute", int* value, CUfunction_attribute which, CUfunction function) \
  FUNCTION(cuFuncSetAttribute, "cuFuncSetAttribute", CUfunction function, CUfunction_attribute which, int value) \
  FUNCTION(cuLaunchKernelEx, "cuLaunchKernelEx", const CUlaunchConfig* config, CUfunction function, void** parameters, void** extra)

// As above; a driver may lack them, and what needs them is refused by name then.
#define KILN_OPTIONAL_CUDA_FUNCTIONS(FUNCTION) \
  FUNCTION(cuThreadExchangeStreamCaptureMode, "cuThreadExchangeStreamCaptureMode", CUstreamCaptureMode* mode) \
  FUNCTION(cuOccupancyMaxActiveClusters, "cuOccupancyMaxActiveClusters", int* clusters, CUfunction function, const CUlaunchConfig* config) \
  FUNCTION(cuTensorMapEncodeTiled, "cuTensorMapEncodeTiled", CUtensorMap* map, CUtensorMapDataType dtype, uint32_t rank, void* address, const uint64_t* sizes, const uint64_t* strides, const uint32_t* box, const uint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) \
  FUNCTION(cuTensorMapEncodeIm2col, "cuTensorMapEncodeIm2col", CUtensorMap* map, CUtensorMapDataType dtype, uint32_t rank, void* address, const uint64_t* sizes, const uint64_t* strides, const int* lower_corner, const int* upper_corner, uint32_t channels, uint32_t pixels, const uint32_t* element_strides, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill)
// clang-format on
