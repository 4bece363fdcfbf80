// The views of the page: pure functions from what is known to what is shown. Names in their
// arguments may be hostile; nothing here escapes (html.h does).
#pragma once

#include "compiler_core/page/document.h"
#include "compiler_core/page/query.h"
#include "coordinator/page/snapshot.h"

namespace kiln::page {

Document overview(const Snapshot& now);
Document tuning(const Snapshot& now, const Query& query);
Document program(const Snapshot& now, const ProgramFacts& facts, const Query& query);
Document kernel(const Snapshot& now, const KernelFacts& facts, const Query& query);
Document workers(const Snapshot& now, const Query& query);
Document misses(const Snapshot& now, const Query& query);
Document cache(const Snapshot& now, const ProgramList& listed, const Query& query);
// `acts`: the store's, the latest first; without them, those that wait for it.
Document audit(const Snapshot& now, const Result<std::vector<AdminAct>>& acts, const Query& query);

// The part of the store that the cache view's query asks for.
ProgramQuery program_query(const Query& query);

// ---- parts that several views have ----

Table open_programs(const Snapshot& now);    // with a bar a kernel, waiters, time left
Table missed_programs(const Snapshot& now);  // what was asked for and not there
Value outcome(const std::string& outcome);   // in its tone
// The first line of what is only for operators as a whole.
std::string detail(const Snapshot& now, const std::string& text);
// "cpu:x86-64-v4, 8 cores of Intel(R) ...": the target with its device, as far as it is named.
std::string device_of(const Target& target);
// That there is no such thing here, and where to look.
Document not_here(std::string title, std::string why);

}  // namespace kiln::page
