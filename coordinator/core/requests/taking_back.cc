// CompileRequests's side of results that are taken back (TakingBackBegan): what goes on with them
// ends, and is begun again by whoever asks again.
#include <algorithm>

#include "coordinator/core/mutation.h"
#include "coordinator/core/requests/compile_requests.h"

namespace kiln {

bool CompileRequests::is_tainted(const CompileTask& task, const TakingBackBegan& event) const {
  if (event.everything || event.programs.contains(task.program_key)) return true;
  const auto uses = [&](const Program& program) {
    return std::ranges::any_of(program.kernels, [&](const ProgramKernel& kernel) {
      return event.kernels.contains(kernel.key) || scheduler_.has_heard(kernel.key, event);
    });
  };
  return uses(task.program) || std::ranges::any_of(task.pending, [&](const Digest& kernel) {
           return event.kernels.contains(kernel) || scheduler_.has_heard(kernel, event);
         });
}

void CompileRequests::taking_back_began(int64_t now_ms, const TakingBackBegan& event,
                                        Actions& out) {
  ++taking_back_;
  failures_.clear();
  replacement_failures_.clear();
  std::vector<Digest> tuned;
  for (auto& [key, task] : tasks_) {
    if (mutated(Mutation::kKeepTainted)) continue;
    task.provisional = {};  // it may be among what is taken back
    task.early_json.clear();
    if (task.stage == Stage::kStoring)
      task.is_doomed = true;  // the store has the program now, so that nobody knows here
    else if (task.stage == Stage::kTuning && is_tainted(task, event))
      tuned.push_back(key);
  }
  for (const Digest& key : tuned)
    if (CompileTask* task = find(key)) fail_doomed(now_ms, *task, out);
  scheduler_.take_back(event);
}

// A plan that began before the store was done may have read what is gone now.
void CompileRequests::taking_back_ended() {
  taking_back_ -= taking_back_ > 0;
  for (auto& [key, task] : tasks_)
    if (task.stage == Stage::kPlanning) task.is_doomed = true;
}

void CompileRequests::fail_doomed(int64_t now_ms, CompileTask& task, Actions& out) {
  fail_task(now_ms, task,
            overloaded("an operator takes results back that it was made with: ask again"), out);
}

}  // namespace kiln
