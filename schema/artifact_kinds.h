// The kinds of artifacts that a coordinator keeps for other compilers: values of theirs, by key,
// which it stores and signs and does not understand. An artifact is data or code: code is what its
// readers unpickle or load, so only the role `publish` may put it. Data is one flat JSON object,
// which coordinator and reader both check, and which `submit` may put. Constants and a function
// without state.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"
#include "schema/keys/grant.h"

namespace kiln {

struct ArtifactKind {
  std::string_view name;  // "inductor.gemm"
  bool is_code = false;
  size_t most_bytes = 0;  // of a value

  Grant grant_to_put() const { return is_code ? Grant::kPublish : Grant::kSubmit; }
};

// In the order of their names.
std::span<const ArtifactKind> artifact_kinds();
// Null when there is no such kind.
const ArtifactKind* find_artifact_kind(std::string_view name);
// kUnsupported names the kinds that there are.
Error unknown_artifact_kind(std::string_view name);

// Whether `value` is what an artifact that is data may be: a JSON object of at most 4096 members,
// whose values are finite numbers, booleans, null, and strings of at most 256 characters without
// control characters. kInvalidArgument says what it is not.
Status check_artifact_data(std::string_view value);

}  // namespace kiln
