#include "compiler_core/plan/alternatives.h"

#include <algorithm>
#include <set>

#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/fusion/narrow_products.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

constexpr int64_t kFewRows = 64, kManyKeys = 512;
constexpr int64_t kLargeBytes = int64_t{1} << 20;  // leaves a core's own caches

bool is_unclear_attention(const Graph& graph, const AttentionPattern& pattern) {
  const Shape& scores = graph.node(pattern.scores).shape;
  return size_at_hints(graph, scores[scores.size() - 2]) <= kFewRows &&
         size_at_hints(graph, scores.back()) >= kManyKeys;
}

bool has_unclear_attention(const Partition& parts) {
  return std::any_of(parts.kernels.begin(), parts.kernels.end(), [](const FusedKernel& kernel) {
    const auto pattern = find_attention(kernel.workload.graph);
    return pattern && is_unclear_attention(kernel.workload.graph, *pattern);
  });
}

// Whether a large value is written that two kernels or more need, so that computing it in each
// might be worth it. The one that writes it needs it where it writes others too.
bool stores_large_shared_value(const Partition& parts) {
  std::vector<int> readers(static_cast<size_t>(parts.graph.size()), 0);
  for (const FusedKernel& kernel : parts.kernels) {
    std::set<NodeId> needed(kernel.inputs.begin(), kernel.inputs.end());
    if (kernel.outputs.size() > 1) needed.insert(kernel.outputs.begin(), kernel.outputs.end());
    for (const NodeId id : needed) ++readers[static_cast<size_t>(id)];
  }
  for (NodeId id = 0; id < parts.graph.size(); ++id) {
    const Node& node = parts.graph.node(id);
    if (readers[static_cast<size_t>(id)] < 2 || !parts.stored[id] || !is_elementwise(node.op))
      continue;
    const int64_t elements = size_at_hints(parts.graph, numel(node.shape));
    if (elements >= kLargeBytes / size_of(node.dtype)) return true;
  }
  return false;
}

bool has_narrow_products(const Graph& graph) {
  return std::ranges::any_of(
      graph.nodes(), [&](const Node& node) { return narrow_product(graph, node).has_value(); });
}

std::vector<Digest> digests(const Plan& plan) {
  std::vector<Digest> all;
  for (const Workload& workload : plan.kernels) all.push_back(workload.digest);
  return all;
}

}  // namespace

Result<std::vector<PlanAlternative>> plan_alternatives(const Graph& canonical,
                                                       const PartitionRules& by_default,
                                                       ChosenBy chosen_by) {
  PartitionOptions options;
  options.rules = by_default;
  TRY(Partition parts, partition(canonical, options));
  const bool timed = chosen_by == ChosenBy::kTimes, narrow = has_narrow_products(parts.graph);
  const bool attention = timed && has_unclear_attention(parts);
  const bool shared = timed && stores_large_shared_value(parts);
  std::vector<PlanAlternative> all;
  TRY(Plan by_rules, plan(std::move(parts)));
  all.push_back({"by rules", by_default, std::move(by_rules)});
  const auto add = [&](const char* name, const PartitionRules& rules) {
    options.rules = rules;
    auto cut = partition(canonical, options);
    if (!cut) return;  // the rules' plan is there
    auto made = plan(*std::move(cut));
    if (!made) return;
    const auto same = [&](const PlanAlternative& other) {
      return made->launches.size() == other.plan.launches.size() &&
             digests(*made) == digests(other.plan);
    };
    if (std::none_of(all.begin(), all.end(), same)) all.push_back({name, rules, *std::move(made)});
  };
  PartitionRules three = by_default, again = by_default, as_stored = by_default;
  three.attention = again.store_shared = as_stored.widen_stored = false;
  if (attention) add("attention in three kernels", three);
  if (shared) add("shared values computed again", again);
  if (narrow) add("operands of 8 bits", as_stored);
  return all;
}

size_t alternative_with(const std::vector<PlanAlternative>& all,
                        std::span<const Digest> workloads) {
  const auto found = std::find_if(all.begin(), all.end(), [&](const PlanAlternative& one) {
    const std::vector<Digest> own = digests(one.plan);
    return std::equal(own.begin(), own.end(), workloads.begin(), workloads.end());
  });
  return found == all.end() ? 0 : static_cast<size_t>(found - all.begin());
}

}  // namespace kiln
