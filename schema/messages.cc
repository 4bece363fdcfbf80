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

}  // namespace kiln
