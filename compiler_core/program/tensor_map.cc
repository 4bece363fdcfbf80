#include "compiler_core/program/tensor_map.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr size_t kMaxRank = 5;
constexpr int64_t kMaxAxis = int64_t{1} << 32;
constexpr int64_t kMaxStride = int64_t{1} << 40;
constexpr int64_t kMapAlignment = 16;

tl::unexpected<Error> damaged_map(std::string_view why) {
  return fail(Code::kCorruption, fmt::format("a tensor map is damaged: {}", why));
}

Json dims_to_json(const std::vector<Dim>& dims) {
  Json list = Json::array();
  for (const Dim& dim : dims) list.push_back(dim_to_json(dim));
  return list;
}

Result<std::vector<Dim>> dims_field(const Json& json, const char* name) {
  std::vector<Dim> dims;
  TRY(const Json* list, array_field(json, name));
  if (list->size() > kMaxRank) return damaged_map("it has too many axes");
  for (const Json& item : *list) {
    TRY(Dim dim, dim_from_json(item, name));
    dims.push_back(std::move(dim));
  }
  return dims;
}

Result<std::vector<int>> ints_field(const Json& json, const char* name, size_t count, int min,
                                    int max) {
  std::vector<int> ints;
  TRY(const Json* list, array_field(json, name));
  if (list->size() != count) return damaged_map("its lists have not one entry an axis");
  for (const Json& item : *list) {
    if (!item.is_number_integer() || item < min || item > max)
      return damaged_map(fmt::format("'{}' is out of range", name));
    ints.push_back(item.get<int>());
  }
  return ints;
}

Result<int> one_of(const Json& json, const char* name, std::initializer_list<int> known) {
  TRY(const int64_t value, int_field(json, name, 0, 256));
  if (std::ranges::find(known, value) != known.end()) return static_cast<int>(value);
  return damaged_map(fmt::format("'{}' is none that there is", name));
}

// Corners fit fewer bits the more axes there are.
int corner_limit(size_t rank) {
  return rank == 3 ? 1 << 15 : rank == 4 ? 1 << 7 : 1 << 4;
}

Result<TensorMap::Im2col> im2col_from_json(const Json& json, size_t rank) {
  TensorMap::Im2col im2col;
  if (rank < 3) return damaged_map("im2col takes 3 axes at least");
  const int limit = corner_limit(rank);
  TRY(im2col.lower, ints_field(json, "lower", rank - 2, -limit, limit - 1));
  TRY(im2col.upper, ints_field(json, "upper", rank - 2, -limit, limit - 1));
  TRY(const int64_t channels, int_field(json, "channels", 1, 256));
  TRY(const int64_t pixels, int_field(json, "pixels", 1, 1024));
  im2col.channels = static_cast<int>(channels);
  im2col.pixels = static_cast<int>(pixels);
  return im2col;
}

}  // namespace

Result<int64_t> TensorMap::extent(std::span<const int64_t> symbols) const {
  const auto refuse = [](const char* why) {
    return fail(Code::kInvalidArgument, fmt::format("a tensor map cannot be made: {}", why));
  };
  TRY(int64_t bytes, offset.evaluate(symbols));
  if (bytes < 0 || bytes % kMapAlignment != 0) return refuse("its offset is no multiple of 16");
  for (size_t axis = 0; axis < sizes.size(); ++axis) {
    TRY(const int64_t size, sizes[axis].evaluate(symbols));
    if (size < 1 || size > kMaxAxis) return refuse("an axis has no elements, or too many");
    int64_t stride = size_of(dtype);
    if (axis > 0) {
      TRY(stride, strides[axis - 1].evaluate(symbols));
      if (stride < 0 || stride >= kMaxStride || stride % kMapAlignment != 0)
        return refuse("a stride is no multiple of 16, or too large");
    }
    int64_t last = 0;
    if (__builtin_mul_overflow(size - 1, stride, &last) ||
        __builtin_add_overflow(bytes, last, &bytes))
      return refuse("it is larger than can be counted");
  }
  if (__builtin_add_overflow(bytes, int64_t{size_of(dtype)}, &bytes))
    return refuse("it is larger than can be counted");
  return bytes;
}

Json tensor_map_to_json(const TensorMap& map) {
  Json json = {{"buffer", map.buffer},
               {"offset", dim_to_json(map.offset)},
               {"dtype", to_string(map.dtype)},
               {"sizes", dims_to_json(map.sizes)},
               {"strides", dims_to_json(map.strides)},
               {"element_strides", map.element_strides},
               {"interleave", map.interleave},
               {"swizzle", map.swizzle},
               {"l2_promotion", map.l2_promotion},
               {"fill", map.fill_nan ? "nan" : "zero"}};
  if (!map.im2col)
    json["box"] = map.box;
  else
    json["im2col"] = {{"lower", map.im2col->lower},
                      {"upper", map.im2col->upper},
                      {"channels", map.im2col->channels},
                      {"pixels", map.im2col->pixels}};
  return json;
}

Result<TensorMap> tensor_map_from_json(const Json& json, size_t buffers) {
  TensorMap map;
  TRY(const int64_t buffer, int_field(json, "buffer", 0, static_cast<int64_t>(buffers) - 1));
  map.buffer = static_cast<int>(buffer);
  TRY(map.offset, dim_field(json, "offset"));
  TRY(const std::string dtype, string_field(json, "dtype"));
  const Result<DType> parsed = parse_dtype(dtype);
  if (!parsed) return damaged_map("its dtype is unknown");
  map.dtype = *parsed;
  TRY(map.sizes, dims_field(json, "sizes"));
  TRY(map.strides, dims_field(json, "strides"));
  const size_t rank = map.sizes.size();
  if (rank == 0 || map.strides.size() + 1 != rank)
    return damaged_map("it has not one stride for every axis but the first");
  TRY(map.element_strides, ints_field(json, "element_strides", rank, 1, 8));
  TRY(map.interleave, one_of(json, "interleave", {0, 16, 32}));
  TRY(map.swizzle, one_of(json, "swizzle", {0, 32, 64, 128}));
  TRY(map.l2_promotion, one_of(json, "l2_promotion", {0, 64, 128, 256}));
  TRY(const std::string fill, string_field(json, "fill"));
  if (fill != "zero" && fill != "nan") return damaged_map("its fill is unknown");
  map.fill_nan = fill == "nan";
  if (json.contains("im2col")) {
    TRY(const Json* im2col, object_field(json, "im2col"));
    TRY(map.im2col, im2col_from_json(*im2col, rank));
  } else {
    TRY(map.box, ints_field(json, "box", rank, 1, 256));
  }
  return map;
}

}  // namespace kiln
