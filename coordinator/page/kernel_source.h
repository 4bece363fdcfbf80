// The source of a stored kernel. No source is stored: a template prints the same text for the same
// workload and schedule while its version is the same, so the text is printed again when somebody
// looks. Pure function.
#pragma once

#include <string>

#include "compiler_core/page/document.h"
#include "coordinator/page/snapshot.h"

namespace kiln::page {

// A Code named "source", or a Notice that says why there is none. `asked`: the schedule of one of
// the candidates; empty: of the winner. Only what a worker has compiled from this very version of a
// template is printed again, and only for who sees details: it says what a user computes.
Block kernel_source(const Snapshot& now, const KernelFacts& facts, const std::string& asked);

}  // namespace kiln::page
