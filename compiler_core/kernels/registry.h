// The kernel templates of this build, and what the rest of Kiln asks of them together.
// Pure functions; thread-safe, but for add_kernel_template().
#pragma once

#include <set>

#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/template_versions.h"

namespace kiln {

// In the order in which their best guesses are tried where nothing else ranks them.
const std::vector<const KernelTemplate*>& kernel_templates();

// For programs that bring templates of their own. REQUIRES: no other thread runs yet, the name is
// new, `made` outlives the process's last use of templates.
void add_kernel_template(const KernelTemplate& made);

// By name; null when this build has none of it.
const KernelTemplate* find_kernel_template(std::string_view name);

// Whether a search space has schedules that call a library of the machine.
enum class Libraries : uint8_t { kLeaveOut, kTake };

// The schedules of every template that covers `workload`, best guess first: each template's in its
// own order, merged by the time that they are expected to take. The first one that calls no library
// is what `default` mode compiles. Never empty of those; kUnsupported when no template has one,
// with the reason of the one that came nearest.
Result<std::vector<Schedule>> search_space(const Workload& workload, const Target& target,
                                           Libraries libraries = Libraries::kLeaveOut);

struct SearchSpace {
  std::vector<Schedule> schedules;  // as search_space() gives them
  // The templates of those that are expected to be far behind the best of Kiln's own: never all of
  // its own.
  std::set<std::string> far;
};
Result<SearchSpace> ranked_space(const Workload& workload, const Target& target,
                                 Libraries libraries = Libraries::kLeaveOut);

// The time that the first schedule of search_space() is expected to take, in multiples of the roofline
// bound. kUnsupported as there.
Result<double> expected_slowness(const Workload& workload, const Target& target);

// KernelTemplate::library() of the schedule's template; empty where this build has none of it.
std::string_view library_of(const Schedule& schedule);

// The schedule's template, instantiated. kUnsupported when this build has no such template, or none
// for the workload on this target; kInvalidArgument when the schedule is of a template that does
// not cover the workload; else as KernelTemplate::instantiate().
Result<Buildable> lower(const Workload& workload, const Schedule& schedule, const Target& target);

// lower(), where it gives text; kUnsupported where it gives a finished binary.
Result<Source> lower_to_source(const Workload& workload, const Schedule& schedule,
                               const Target& target);

// Every template's version, and kOfferedTemplate's (program/offered_kernel.h), which says that the
// build can try kernels that somebody offers.
TemplateVersions template_versions();

// For every template, the oldest version whose binaries are right (KernelTemplate::sound_since).
TemplateVersions sound_versions();

// The ones of `versions` whose template covers `workload` on `target`, and calls no library where
// libraries are left out: beside a winner, what had candidates. Another version of one of these
// makes the winner stale.
TemplateVersions covering_templates(const TemplateVersions& versions, const Workload& workload,
                                    const Target& target,
                                    Libraries libraries = Libraries::kLeaveOut);

}  // namespace kiln
