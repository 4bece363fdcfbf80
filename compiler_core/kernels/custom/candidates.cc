#include "compiler_core/kernels/custom/custom.h"

#include <algorithm>

#include "compiler_core/kernels/analysis/device_limits.h"

namespace kiln {
namespace {

// How far an index into each decision's values is from the author's best guess: by how many
// decisions, then by how far down their lists.
struct Choice {
  std::vector<size_t> at;
  size_t changed = 0, depth = 0;
};

}  // namespace

const CustomCall& custom_call_of(const Workload& workload) {
  return *std::get<CustomAttr>(workload.graph.node(workload.graph.outputs()[0]).attr).call;
}

Result<const CustomKernel*> custom_kernel(const Workload& workload, const Target& target) {
  const CustomCall& call = custom_call_of(workload);
  const std::string backend = target.backend == Backend::kCuda ? "cuda" : "cpu";
  if (const CustomKernel* kernel = call.kernel(backend)) return kernel;
  return fail(Code::kUnsupported, "custom call " + call.name + " has no kernel for " + backend +
                                      ": add one to its CustomOp, or compile for another target");
}

Result<std::vector<Schedule>> custom_candidates(const Workload& workload, const Target& target) {
  TRY(const CustomKernel* kernel, custom_kernel(workload, target));
  std::vector<Choice> choices = {Choice{}};
  for (const CustomDecision& decision : kernel->decisions) {
    std::vector<Choice> longer;
    for (const Choice& choice : choices)
      for (size_t i = 0; i < decision.values.size(); ++i) {
        longer.push_back(choice);
        longer.back().at.push_back(i);
        longer.back().changed += i > 0;
        longer.back().depth += i;
      }
    std::stable_sort(longer.begin(), longer.end(), [](const Choice& a, const Choice& b) {
      return a.changed != b.changed ? a.changed < b.changed : a.depth < b.depth;
    });
    // Nothing that is cut begins anything nearer: decisions that follow only add distance.
    if (longer.size() > kMostCustomCandidates) longer.resize(kMostCustomCandidates);
    choices = std::move(longer);
  }
  std::vector<Schedule> space;
  for (const Choice& choice : choices) {
    Schedule schedule{"custom", {}};
    for (size_t i = 0; i < choice.at.size(); ++i)
      schedule.decisions.push_back(
          {kernel->decisions[i].name, kernel->decisions[i].values[choice.at[i]]});
    // Values may repeat.
    if (std::find(space.begin(), space.end(), schedule) == space.end())
      space.push_back(std::move(schedule));
  }
  return space;
}

Result<std::vector<int64_t>> custom_values(const CustomKernel& kernel, const Schedule& schedule) {
  if (schedule.template_name != "custom")
    return fail(Code::kInvalidArgument, "not a custom kernel's schedule");
  std::vector<int64_t> values;
  for (const CustomDecision& decision : kernel.decisions) {
    const int64_t value = schedule.get(decision.name, decision.values[0]);
    if (std::find(decision.values.begin(), decision.values.end(), value) == decision.values.end())
      return fail(Code::kInvalidArgument, "out of range: " + schedule.to_string());
    values.push_back(value);
  }
  return values;
}

namespace {

class CustomTemplate final : public KernelTemplate {
 public:
  std::string_view name() const override { return "custom"; }
  int version() const override { return 3; }
  bool covers(const Workload& workload, const Target& target) const override {
    return workload.family == Family::kCustom &&
           (target.backend == Backend::kCuda ? sm_number(target) >= 80 : vector_bytes(target) > 0);
  }
  Result<std::vector<Schedule>> candidates(const Workload& workload,
                                           const Target& target) const override {
    return custom_candidates(workload, target);
  }
  Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                const Target& target) const override {
    return print_custom(workload, schedule, target);
  }
};

}  // namespace

const KernelTemplate& custom_call() {
  static const CustomTemplate made;
  return made;
}

}  // namespace kiln
