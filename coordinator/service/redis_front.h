// The coordinator's artifacts as Redis has them (redis/redis_port.h), for Inductor's own client: its
// keys say which kind of artifact they name, and passwords are page tokens (schema/keys/page_token.h).
// A user without the role for a request gets a miss, or stores nothing, and is counted as refused.
#pragma once

#include <memory>
#include <string_view>

#include "coordinator/redis/redis_port.h"
#include "schema/keys/keyring.h"

namespace kiln {

struct ServiceLoop;

// "inductor.fx_graph" of "pt2:fx-graph-v1::f...:c1"; empty: no key of a kind that is kept.
std::string_view artifact_kind_of_redis_key(std::string_view key);

// REQUIRES: `loop` outlives the port. `keyring`: null where the coordinator takes no keys.
RedisService redis_service(ServiceLoop& loop, std::shared_ptr<Keyring> keyring);

}  // namespace kiln
