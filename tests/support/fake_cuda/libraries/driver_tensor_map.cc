// libfake_cuda.so: tensor maps, which record what they were made of, after the checks of a driver.
#include <algorithm>
#include <atomic>
#include <cstring>

#include "tests/support/fake_cuda/libraries/fake_driver.h"

namespace kiln::testing {
namespace {

std::atomic<int> g_encoded{0};

int bytes_of(CUtensorMapDataType dtype) {
  switch (dtype) {
    case CU_TENSOR_MAP_DATA_TYPE_UINT8:
      return 1;
    case CU_TENSOR_MAP_DATA_TYPE_UINT16:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT16:
    case CU_TENSOR_MAP_DATA_TYPE_BFLOAT16:
      return 2;
    case CU_TENSOR_MAP_DATA_TYPE_UINT64:
    case CU_TENSOR_MAP_DATA_TYPE_INT64:
    case CU_TENSOR_MAP_DATA_TYPE_FLOAT64:
      return 8;
    default:
      return 4;
  }
}

// What both kinds of map have in common. False: a driver refuses it.
bool record(kiln_fake::TensorMap& map, CUtensorMapDataType dtype, cuuint32_t rank, void* address,
            const cuuint64_t* sizes, const cuuint64_t* strides, const cuuint32_t* element_strides,
            CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
            CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  if (rank < 1 || rank > 5 || reinterpret_cast<uintptr_t>(address) % 16 != 0) return false;
  map.address = static_cast<char*>(address);
  map.rank = static_cast<unsigned char>(rank);
  for (cuuint32_t axis = 0; axis < rank; ++axis) {
    if (sizes[axis] < 1 || sizes[axis] > 0xffffffffu || element_strides[axis] < 1 ||
        element_strides[axis] > 8)
      return false;
    map.sizes[axis] = static_cast<unsigned>(sizes[axis]);
    map.element_strides[axis] = static_cast<unsigned char>(element_strides[axis]);
    if (axis + 1 == rank) break;
    if (strides[axis] % 16 != 0 || strides[axis] >= cuuint64_t{1} << 40) return false;
    map.strides[axis] = strides[axis];
  }
  map.dtype = static_cast<unsigned char>(dtype);
  map.interleave = static_cast<unsigned char>(interleave);
  map.swizzle = static_cast<unsigned char>(swizzle);
  map.promotion = static_cast<unsigned char>(promotion);
  map.fill = static_cast<unsigned char>(fill);
  return true;
}

CUresult finish(const kiln_fake::TensorMap& map, CUtensorMap* out) {
  if (reinterpret_cast<uintptr_t>(out) % 64 != 0) return CUDA_ERROR_INVALID_VALUE;
  ++g_encoded;
  std::memcpy(out, &map, sizeof map);
  return CUDA_SUCCESS;
}

}  // namespace
}  // namespace kiln::testing

using namespace kiln::testing;  // NOLINT(google-build-using-namespace)

extern "C" {

// For tests: how many maps were encoded in this process.
int kiln_fake_maps_encoded() {
  return g_encoded;
}

CUresult cuTensorMapEncodeTiled(CUtensorMap* out, CUtensorMapDataType dtype, cuuint32_t rank,
                                void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* element_strides,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  kiln_fake::TensorMap map{};
  if (!record(map, dtype, rank, address, sizes, strides, element_strides, interleave, swizzle,
              promotion, fill))
    return CUDA_ERROR_INVALID_VALUE;
  for (cuuint32_t axis = 0; axis < rank; ++axis) {
    if (box[axis] < 1 || box[axis] > 256) return CUDA_ERROR_INVALID_VALUE;
    map.box[axis] = static_cast<unsigned short>(box[axis]);
  }
  const int inner = map.box[0] * bytes_of(dtype);
  if (interleave == CU_TENSOR_MAP_INTERLEAVE_NONE &&
      (inner % 16 != 0 || (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && inner > 16 << swizzle)))
    return CUDA_ERROR_INVALID_VALUE;
  return finish(map, out);
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* out, CUtensorMapDataType dtype, cuuint32_t rank,
                                 void* address, const cuuint64_t* sizes, const cuuint64_t* strides,
                                 const int* lower, const int* upper, cuuint32_t channels,
                                 cuuint32_t pixels, const cuuint32_t* element_strides,
                                 CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                 CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill) {
  kiln_fake::TensorMap map{};
  if (rank < 3 || channels < 1 || channels > 256 || pixels < 1 || pixels > 1024 ||
      !record(map, dtype, rank, address, sizes, strides, element_strides, interleave, swizzle,
              promotion, fill))
    return CUDA_ERROR_INVALID_VALUE;
  // Corners fit fewer bits the more axes there are.
  const int limit = rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
  const auto is_corner = [&](int x) { return x >= -limit && x < limit; };
  const cuuint32_t span = channels * static_cast<cuuint32_t>(bytes_of(dtype));
  if (!std::all_of(lower, lower + rank - 2, is_corner) ||
      !std::all_of(upper, upper + rank - 2, is_corner) ||
      (swizzle != CU_TENSOR_MAP_SWIZZLE_NONE && span > 16u << swizzle))
    return CUDA_ERROR_INVALID_VALUE;
  map.is_im2col = 1;
  map.channels = static_cast<unsigned short>(channels);
  map.pixels = static_cast<unsigned short>(pixels);
  std::copy_n(lower, rank - 2, map.lower);
  std::copy_n(upper, rank - 2, map.upper);
  return finish(map, out);
}

}  // extern "C"
