#include "schema/messages.h"

namespace kiln {

std::string_view to_string(CacheOutcome outcome) {
  switch (outcome) {
    case CacheOutcome::kTuned:
      return "tuned";
    case CacheOutcome::kJoined:
      return "joined";
    case CacheOutcome::kHit:
      return "hit";
    case CacheOutcome::kLocal:
      return "local";
    case CacheOutcome::kQueued:
      return "queued";
  }
  return "unknown";
}

Signature Welcome::signed_with(std::string bytes) const {
  return {signing_key, std::move(bytes), Endorsement::parse(endorsement).value_or(Endorsement{})};
}

std::string_view to_string(Job::Kind kind) {
  switch (kind) {
    case Job::Kind::kCompile:
      return "verify";
    case Job::Kind::kScreen:
      return "screen";
    case Job::Kind::kFinal:
      return "final";
    case Job::Kind::kBuild:
      return "build";
  }
  return "";
}

}  // namespace kiln
