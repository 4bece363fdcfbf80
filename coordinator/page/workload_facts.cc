#include "coordinator/page/workload_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <span>
#include <vector>

#include "compiler_core/ir/text.h"

namespace kiln::page {

WorkloadFacts workload_facts(const StoredKernel& kernel) {
  const auto graph = parse_graph(kernel.workload_text);
  const auto family = parse_family(kernel.kernel.family);
  if (!graph || !family) return {};
  std::vector<std::pair<std::string_view, int>> operations;
  std::vector<std::string_view> sources;
  for (NodeId id = 0; id < graph->size(); ++id) {
    const Node& node = graph->node(id);
    if (node.op == Op::kInput) continue;
    if (const OriginId origin = graph->origin_of(id); origin != kNoOrigin) {
      const std::string_view source = graph->origins()[static_cast<size_t>(origin)].source;
      if (!source.empty() && std::ranges::find(sources, source) == sources.end())
        sources.push_back(source);
    }
    if (node.op == Op::kConstant || node.op == Op::kView) continue;
    const auto name = kiln::to_string(node.op);
    const auto known = std::ranges::find(operations, name, [](const auto& op) { return op.first; });
    if (known == operations.end())
      operations.emplace_back(name, 1);
    else
      ++known->second;
  }
  WorkloadFacts found;
  if (graph->symbols().empty())
    if (auto cost = workload_cost({*graph, *family, {}}, {})) found.cost = *cost;
  for (const auto& [name, times] : operations)
    found.operations += fmt::format("{}{}{}", found.operations.empty() ? "" : ", ", name,
                                    times > 1 ? fmt::format(" x{}", times) : "");
  constexpr size_t kNamed = 8;
  const auto named = std::span(sources).first(std::min(kNamed, sources.size()));
  found.sources = fmt::format("{}", fmt::join(named, ", "));
  if (sources.size() > kNamed) found.sources += fmt::format(", {} more", sources.size() - kNamed);
  return found;
}

}  // namespace kiln::page
