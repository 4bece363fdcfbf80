// A local tier (local_tier.h) read through from end to end: every program's signatures and every
// binary's digest. It only reads, so it may run beside clients that use the tier. Free functions.
#pragma once

#include <string_view>

#include "cache/audit.h"

namespace kiln {

// Whether `root` is a tier's and no coordinator's.
bool is_local_tier(const Path& root);

// `signer`: the coordinator's public signing key; empty: not known, and only the tier's own
// signatures are checked. Each finding names a program or a blob, and says what is wrong with it:
// unsigned, signed by somebody else, altered, missing. kNotFound when there is no tier.
Result<AuditReport> audit_local_tier(const Path& root, std::string_view signer);

}  // namespace kiln
