#include "compiler_core/runtime/tensor_maps.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

namespace kiln {
namespace {

constexpr size_t kMostBuffers = 4096;  // of one map; a benchmark rotates over many

Result<CUtensorMapDataType> map_data_type(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT64;
    case DType::kF32:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
    case DType::kF16:
      return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
    case DType::kBF16:
      return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
    case DType::kI64:
      return CU_TENSOR_MAP_DATA_TYPE_INT64;
    case DType::kI32:
      return CU_TENSOR_MAP_DATA_TYPE_INT32;
    case DType::kI16:
      return CU_TENSOR_MAP_DATA_TYPE_UINT16;
    case DType::kF8E4M3:
    case DType::kF8E5M2:
    case DType::kF8E8M0:
    case DType::kI8:
    case DType::kU8:
    case DType::kBool:
      return CU_TENSOR_MAP_DATA_TYPE_UINT8;
  }
  return fail(Code::kInvalidArgument, "a tensor map of a dtype that no GPU copies");
}

// The driver's enumerators count in powers of two: 0, then `first`, twice that, ...
template <class Enumerator>
Enumerator enumerator(int bytes, int first) {
  int number = 0;
  for (int at = first; bytes >= at; at *= 2) ++number;
  return static_cast<Enumerator>(number);
}

Result<CUtensorMap> encode(const CudaDevice::Impl& device, const TensorMap& map, DevicePtr memory,
                           std::span<const int64_t> symbols) {
  const CudaDriver& driver = device.driver;
  const bool knows = map.im2col ? driver.cuTensorMapEncodeIm2col != nullptr
                                : driver.cuTensorMapEncodeTiled != nullptr;
  if (!knows)
    return fail(Code::kUnsupported,
                fmt::format("the NVIDIA driver here lacks {}: it is too old",
                            map.im2col ? "cuTensorMapEncodeIm2col" : "cuTensorMapEncodeTiled"));
  TRY(const CUtensorMapDataType dtype, map_data_type(map.dtype));
  TRY_STATUS(map.extent(symbols).map([](int64_t) {}));
  TRY(const int64_t offset, map.offset.evaluate(symbols));
  const auto unsigned_value = [&](const Dim& dim) -> Result<uint64_t> {
    return dim.evaluate(symbols).map([](int64_t value) { return static_cast<uint64_t>(value); });
  };
  std::array<uint64_t, 5> sizes{}, strides{};
  std::array<uint32_t, 5> box{}, element_strides{};
  const size_t rank = std::min(map.sizes.size(), sizes.size());
  for (size_t axis = 0; axis < rank; ++axis) {
    TRY(sizes[axis], unsigned_value(map.sizes[axis]));
    if (axis > 0) {
      TRY(strides[axis - 1], unsigned_value(map.strides[axis - 1]));
    }
    if (!map.im2col) box[axis] = static_cast<uint32_t>(map.box[axis]);
    element_strides[axis] = static_cast<uint32_t>(map.element_strides[axis]);
  }
  const auto interleave = enumerator<CUtensorMapInterleave>(map.interleave, 16);
  const auto swizzle = enumerator<CUtensorMapSwizzle>(map.swizzle, 32);
  const auto promotion = enumerator<CUtensorMapL2promotion>(map.l2_promotion, 64);
  const auto fill = static_cast<CUtensorMapFloatOOBfill>(map.fill_nan ? 1 : 0);
  const DevicePtr place = memory + static_cast<DevicePtr>(offset);
  void* const address = reinterpret_cast<void*>(place);  // NOLINT(performance-no-int-to-ptr)
  CUtensorMap bytes{};
  const CUresult made =
      map.im2col
          ? driver.cuTensorMapEncodeIm2col(
                &bytes, dtype, static_cast<uint32_t>(rank), address, sizes.data(), strides.data(),
                map.im2col->lower.data(), map.im2col->upper.data(),
                static_cast<uint32_t>(map.im2col->channels),
                static_cast<uint32_t>(map.im2col->pixels), element_strides.data(), interleave,
                swizzle, promotion, fill)
          : driver.cuTensorMapEncodeTiled(
                &bytes, dtype, static_cast<uint32_t>(rank), address, sizes.data(), strides.data(),
                box.data(), element_strides.data(), interleave, swizzle, promotion, fill);
  TRY_STATUS(device.check(made, "encoding a tensor map", Code::kInvalidArgument));
  return bytes;
}

}  // namespace

Result<CUtensorMap> EncodedMaps::get(const CudaDevice::Impl& device, const TensorMap& map,
                                     DevicePtr memory, std::span<const int64_t> symbols) {
  const std::lock_guard lock(mu_);
  auto& known = encoded_[&map];
  const auto found = known.find(memory);
  if (found != known.end() && std::ranges::equal(found->second.symbols, symbols))
    return found->second.bytes;
  TRY(const CUtensorMap bytes, encode(device, map, memory, symbols));
  if (known.size() == kMostBuffers) known.clear();
  known[memory] = {{symbols.begin(), symbols.end()}, bytes};
  return bytes;
}

}  // namespace kiln
