#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "client/cli/explain/explanation.h"
#include "compiler_core/kernels/registry.h"

namespace kiln::cli {
namespace {

std::vector<size_t> launches_of(const Explanation& explanation, size_t kernel) {
  std::vector<size_t> launches;
  for (size_t i = 0; i < explanation.launches.size(); ++i)
    if (explanation.launches[i].kernel == static_cast<int>(kernel)) launches.push_back(i);
  return launches;
}

int version_of(const Schedule& schedule) {
  const KernelTemplate* made = find_kernel_template(schedule.template_name);
  return made == nullptr ? 0 : made->version();
}

}  // namespace

nlohmann::ordered_json candidates_json(const std::string& file, const Explanation& explanation) {
  nlohmann::ordered_json kernels = nlohmann::ordered_json::array();
  for (size_t k = 0; k < explanation.kernels.size(); ++k) {
    const Workload& workload = explanation.kernels[k].workload;
    nlohmann::ordered_json kernel = {{"workload", workload.digest.hex()},
                                     {"family", to_string(workload.family)},
                                     {"launches", launches_of(explanation, k)},
                                     {"candidates", nlohmann::ordered_json::array()}};
    if (const auto space = search_space(workload, explanation.target, Libraries::kTake)) {
      for (const Schedule& schedule : *space)
        kernel["candidates"].push_back({{"template", schedule.template_name},
                                        {"version", version_of(schedule)},
                                        {"schedule", schedule.to_string()}});
    } else {
      kernel["reason"] = space.error().message;
    }
    kernels.push_back(std::move(kernel));
  }
  return {{"file", file},
          {"graph_digest", explanation.graph.hex()},
          {"target", explanation.target.to_string()},
          {"kernels", std::move(kernels)}};
}

std::string candidates_text(const Explanation& explanation) {
  std::string text;
  for (size_t k = 0; k < explanation.kernels.size(); ++k) {
    const Workload& workload = explanation.kernels[k].workload;
    const std::vector<size_t> launches = launches_of(explanation, k);
    text += fmt::format("kernel {}  {}  launch{} {}\n", workload.digest.short_hex(),
                        to_string(workload.family), launches.size() == 1 ? "" : "es",
                        fmt::join(launches, ", "));
    const auto space = search_space(workload, explanation.target, Libraries::kTake);
    if (!space) {
      text += fmt::format("  no candidate: {}\n", space.error().message);
      continue;
    }
    for (size_t i = 0; i < space->size(); ++i)
      text += fmt::format("  {:>3}  v{}  {}\n", i + 1, version_of((*space)[i]),
                          (*space)[i].to_string());
  }
  return text;
}

}  // namespace kiln::cli
