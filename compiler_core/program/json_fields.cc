#include "compiler_core/program/json_fields.h"

#include <fmt/core.h>

#include <cmath>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

tl::unexpected<Error> bad_field(std::string_view name, std::string_view want) {
  return fail(Code::kCorruption, fmt::format("field '{}' is not {}", name, want));
}

const Json* find(const Json& object, const char* name) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

Result<Json> parse_json(std::string_view text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return fail(Code::kCorruption, "the text is not a JSON object");
  return json;
}

Result<Dim> dim_from_json(const Json& json, const char* name) {
  Dim dim;
  if (json.is_number_unsigned() && json.get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX)) {
    dim = Dim(json.get<int64_t>());
  } else if (const auto* text = json.get_ptr<const std::string*>()) {
    const Result<Dim> parsed = Dim::parse(*text);
    if (!parsed) return bad_field(name, "a size");
    dim = *parsed;
  } else {
    return bad_field(name, "a size");
  }
  if (dim.is_constant() && dim.constant() < 0) return bad_field(name, "a size");
  return dim;
}

Result<const Json*> array_field(const Json& object, const char* name) {
  const Json* field = find(object, name);
  if (field == nullptr || !field->is_array()) return bad_field(name, "a list");
  return field;
}

Result<const Json*> object_field(const Json& object, const char* name) {
  const Json* field = find(object, name);
  if (field == nullptr || !field->is_object()) return bad_field(name, "an object");
  return field;
}

Result<std::string> string_field(const Json& object, const char* name) {
  const Json* field = find(object, name);
  if (field == nullptr || !field->is_string()) return bad_field(name, "a text");
  return field->get<std::string>();
}

Result<int64_t> int_field(const Json& object, const char* name, int64_t min, int64_t max) {
  const Json* field = find(object, name);
  if (field == nullptr || !field->is_number_integer()) return bad_field(name, "an integer");
  if (field->is_number_unsigned() && field->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX))
    return bad_field(name, "in range");
  const int64_t value = field->get<int64_t>();
  if (value < min || value > max) return bad_field(name, "in range");
  return value;
}

Result<double> number_field(const Json& object, const char* name) {
  const Json* field = find(object, name);
  if (field == nullptr || !field->is_number()) return bad_field(name, "a number");
  const double value = field->get<double>();
  if (!std::isfinite(value) || value < 0) return bad_field(name, "a number from 0 up");
  return value;
}

Result<Digest> digest_field(const Json& object, const char* name) {
  TRY(const std::string hex, string_field(object, name));
  Result<Digest> digest = Digest::parse(hex);
  if (!digest) return bad_field(name, "a digest");
  return digest;
}

Result<Dim> dim_field(const Json& object, const char* name) {
  const Json* field = find(object, name);
  if (field == nullptr) return bad_field(name, "a size");
  return dim_from_json(*field, name);
}

Json dim_to_json(const Dim& dim) {
  if (dim.is_valid() && dim.is_constant()) return dim.constant();
  return dim.to_string();
}

Json spec_to_json(const TensorSpec& spec) {
  Json shape = Json::array();
  for (const Dim& dim : spec.shape) shape.push_back(dim_to_json(dim));
  return {{"dtype", to_string(spec.dtype)}, {"shape", std::move(shape)}};
}

Result<TensorSpec> spec_from_json(const Json& json) {
  TensorSpec spec;
  TRY(const std::string dtype, string_field(json, "dtype"));
  const Result<DType> parsed = parse_dtype(dtype);
  if (!parsed) return bad_field("dtype", "a dtype");
  spec.dtype = *parsed;
  TRY(const Json* shape, array_field(json, "shape"));
  // Multiplies the constant sizes only: a product of symbolic ones could be made to grow without
  // end. Checked at every step, so that a later 0 cannot hide an overflow.
  Dim bytes = size_of(spec.dtype);
  for (const Json& item : *shape) {
    TRY(Dim dim, dim_from_json(item, "shape"));
    if (dim.is_constant()) bytes = bytes * dim;
    if (!bytes.is_valid() || bytes.constant() > kMaxSizeBytes)
      return bad_field("shape", "of a size that fits");
    spec.shape.push_back(std::move(dim));
  }
  return spec;
}

std::string print_json(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace kiln
