// What a worker runs of what another one compiled: binaries that the coordinator signed
// (compiler_core/base/signature.h), and nothing else. Free functions; thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "schema/messages.h"

namespace kiln {

// Takes the candidates out of `job` that come with a binary which `trusted` has not signed for this
// kernel and schedule; each becomes a result that says so (device_lost: this worker cannot have it,
// which is no fault of the candidate and killed no runner). `signer`: whose key the coordinator
// says it has.
std::vector<CandidateResult> take_out_unsigned(Job& job, std::string_view signer,
                                               std::string_view trusted);

}  // namespace kiln
