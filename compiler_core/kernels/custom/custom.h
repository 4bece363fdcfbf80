// A user's kernel: its schedules, which are the decisions its author declared (ir/custom_call.h), and
// the translation unit around its text. Pure functions.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "compiler_core/ir/custom_call.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// The one call of a kCustom workload.
const CustomCall& custom_call_of(const Workload& workload);

// The call's kernel for `target`. kUnsupported, naming the call, when its author wrote none.
Result<const CustomKernel*> custom_kernel(const Workload& workload, const Target& target);

// Every combination of values, those of first values first: candidates differ from the author's
// best guess in as few decisions as can be, up to kMostCandidates of them.
inline constexpr size_t kMostCustomCandidates = 256;
Result<std::vector<Schedule>> custom_candidates(const Workload& workload, const Target& target);

// The value of each decision of `kernel`. kInvalidArgument: a schedule of another family, or a
// value that its author does not list.
Result<std::vector<int64_t>> custom_values(const CustomKernel& kernel, const Schedule& schedule);

// REQUIRES: workload.family is kCustom. kUnsupported when the call has no kernel for the target;
// kInvalidArgument when the schedule or what the author's numbers give is out of range.
Result<Source> print_custom(const Workload& workload, const Schedule& schedule,
                            const Target& target);

// The vocabulary before a user's text, the entry point behind it.
// `text`: macros and the user's functions, with line markers. `body`: the entry point's statements,
// indented by 2, in terms of in0.., out0.., and on the CPU of `begin` and `end`.
std::string users_cpu_text(const Graph& graph, const std::string& entry, const std::string& text,
                           const std::string& body);
// `words`: those of the vocabulary that `text` may use, as words_of() gives them.
std::string users_cuda_text(const Graph& graph, const std::string& entry, const std::string& text,
                            const std::string& words, int threads, const std::string& body);
// The words of a source as one line, which a compiler ignores.
std::string words_of(std::string_view source);

// "custom": the calls of both backends.
const KernelTemplate& custom_call();

}  // namespace kiln
