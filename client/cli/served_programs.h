// What a service has of one graph, by look-ups that start nothing.
#pragma once

#include <vector>

#include "client/cli/options.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {

// The graph's programs for `target` and for every target that the service has workers for now, in
// both modes. Errors of reaching the service.
Result<std::vector<Program>> served_programs(const Options& options, const Digest& graph,
                                             const Target& target);

}  // namespace kiln::cli
