// Reading hostile JSON: every look-up of a field answers a Result that names it, and a program that
// was read is checked as a whole. Private to this folder: the manifest and the recipe share it.
// Stateless.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string_view>

#include "compiler_core/program/program.h"

namespace kiln {

using Json = nlohmann::json;

// More bytes than any device has: sizes beyond it are damage, and sums of two stay far from
// overflow.
inline constexpr int64_t kMaxSizeBytes = int64_t{1} << 40;

Result<Json> parse_json(std::string_view text);  // an object
Result<const Json*> array_field(const Json& object, const char* name);
Result<const Json*> object_field(const Json& object, const char* name);
Result<std::string> string_field(const Json& object, const char* name);
Result<int64_t> int_field(const Json& object, const char* name, int64_t min, int64_t max);
Result<double> number_field(const Json& object, const char* name);  // finite, not negative
Result<Digest> digest_field(const Json& object, const char* name);
// Valid, and not negative when constant.
Result<Dim> dim_from_json(const Json& json, const char* name);
Result<Dim> dim_field(const Json& object, const char* name);

Json dim_to_json(const Dim& dim);  // a number, or a text when it has symbols
Json spec_to_json(const TensorSpec& spec);
Result<TensorSpec> spec_from_json(const Json& json);
// kCorruption unless every field is known and within its limits. `buffers`: how many there are.
Json tensor_map_to_json(const TensorMap& map);
Result<TensorMap> tensor_map_from_json(const Json& json, size_t buffers);
Json library_call_to_json(const LibraryCall& call);
Result<LibraryCall> library_call_from_json(const Json& json, size_t buffers);
Json recipe_to_json_value(const Recipe& recipe);
Result<Recipe> recipe_from_json_value(const Json& json);

tl::unexpected<Error> damaged(std::string_view why);  // kCorruption
// Without this, a damaged manifest could make a launch write outside its buffers. kCorruption
// unless buffers lie inside the arena, launches fit what they are given, inputs are not written and
// every symbol is bound; sizes with symbols at sample_sizes(). REQUIRES: indices are in range.
Status check_program(const Program& program);

// One line; text that is not UTF-8 is replaced instead of thrown at.
std::string print_json(const Json& json);

}  // namespace kiln
