// Attention kernels; see templates/cpu/attention.h.
#pragma once

#include "compiler_core/codegen/lower.h"
#include "compiler_core/tune/cpu/space_attention.h"

namespace kiln {

// REQUIRES: check_printable(graph), the guarantees of kAttention.
Result<Source> lower_attention(const Graph& graph, const AttentionSchedule& schedule);

}  // namespace kiln
