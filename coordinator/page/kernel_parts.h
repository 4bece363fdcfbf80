// Parts of the kernel's view that are made of more than one record. Pure functions.
//
// No source is stored: a template prints the same text for the same workload and schedule while its
// version is the same, so the text is printed again when somebody looks. No earlier winner is stored
// either: the records say which candidate was the fastest under which versions of the templates.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/page/document.h"
#include "coordinator/page/snapshot.h"

namespace kiln::page {

// A Code named "source", or a Notice that says why there is none. `asked`: the schedule of one of
// the candidates; empty: of the winner. Only what a worker has compiled from this very version of a
// template is printed again, and only for who sees details: it says what a user computes.
Block kernel_source(const Snapshot& now, const KernelFacts& facts, const std::string& asked);

// "winners": a search for each set of template versions that measured, the latest first, with its
// fastest right candidate. A search knows the records of its versions from earlier ones too.
Table earlier_winners(const Snapshot& now, const std::vector<TuningRecord>& records);

// "history": the records by template and version.
Table template_history(const Snapshot& now, const std::vector<TuningRecord>& records);

}  // namespace kiln::page
