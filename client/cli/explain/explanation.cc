#include "client/cli/explain/explanation.h"

#include <algorithm>
#include <functional>
#include <map>

#include "compiler_core/ir/custom_op.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/plan/alternatives.h"
#include "compiler_core/plan/partition.h"

namespace kiln::cli {
namespace {

std::string type_text(const Node& node) {
  return to_string(OperandType{node.dtype, node.shape});
}

void add_once(std::vector<std::string>& list, const std::string& text) {
  if (!text.empty() && std::find(list.begin(), list.end(), text) == list.end())
    list.push_back(text);
}

const ProgramKernel* known_kernel(const Digest& workload, std::span<const Program> tuned) {
  for (const Program& program : tuned)
    for (const ProgramKernel& kernel : program.kernels)
      if (kernel.workload == workload) return &kernel;
  return nullptr;
}

// The program itself, where the cache has it.
const Program* program_of_graph(const Digest& graph, std::span<const Program> tuned) {
  const auto same = std::ranges::find(tuned, graph, &Program::graph);
  return same == tuned.end() ? nullptr : &*same;
}

// The time of all launches together; 0 where some kernel's time is not known.
double launches_us(const Plan& plan, std::span<const Program> tuned) {
  std::vector<double> times;
  for (const Workload& workload : plan.kernels) {
    const ProgramKernel* known = known_kernel(workload.digest, tuned);
    if (known == nullptr || known->report.best_us <= 0) return 0;
    times.push_back(known->report.best_us);
  }
  double us = 0;
  for (const Launch& launch : plan.launches) us += times[static_cast<size_t>(launch.kernel)];
  return us;
}

// Time of the partition of that name when `known` was tuned; 0 if a kernel of it failed, or it had
// none.
double tuned_us(const std::string& name, const Program* known) {
  if (known == nullptr) return 0;
  const auto cut = std::ranges::find(known->cuts, name, &TunedCut::name);
  return cut == known->cuts.end() ? 0 : cut->us;
}

size_t alternative_of(const std::vector<PlanAlternative>& all, const Program* known) {
  if (known == nullptr) return 0;
  std::vector<Digest> workloads;
  for (const ProgramKernel& kernel : known->kernels) workloads.push_back(kernel.workload);
  return alternative_with(all, workloads);
}

// The one that `known` has, or else that a program of `mode` would have.
Result<size_t> chosen_way(const std::vector<PlanAlternative>& all, const Graph& graph,
                          const Target& target, Mode mode, const Program* known) {
  if (known != nullptr || mode != Mode::kDefault || all.size() == 1)
    return alternative_of(all, known);
  TRY(const PlanAlternative chosen, untimed_partition(graph, target));
  return static_cast<size_t>(std::ranges::find(all, chosen.name, &PlanAlternative::name) -
                             all.begin());
}

std::string reason_for(size_t chosen, size_t alternatives, Mode mode, bool known) {
  if (alternatives == 1) return "the rules leave one";
  if (mode == Mode::kDefault)
    return chosen == 0 ? "default mode times nothing and takes the rules'"
                       : "default mode times nothing and takes what it estimates to be faster";
  if (!known) return "not tuned yet: max-autotune times all and takes the fastest";
  return chosen == 0 ? "no other that worked was faster by more than 2 % when it was tuned"
                     : "the fastest that worked when it was tuned";
}

ExplainedGraph summary_of(const Graph& read, const Graph& normalised) {
  ExplainedGraph summary{read.size(), normalised.size(), {}};
  std::map<std::string, int> counts;
  for (const Node& node : normalised.nodes()) ++counts[std::string(to_string(node.op))];
  summary.ops.assign(counts.begin(), counts.end());
  std::ranges::stable_sort(summary.ops, std::greater(), &std::pair<std::string, int>::second);
  return summary;
}

class Explainer {
 public:
  Explainer(const ExportedProgram& program, const NormalForm& form, const Partition& parts)
      : program_(program), form_(form), parts_(parts), graph_(parts.graph) {
    for (const Symbol& symbol : graph_.symbols())
      explained_.sizes.push_back(std::max({symbol.hint, symbol.range.min, int64_t{1}}));
    explained_.symbols.assign(graph_.symbols().begin(), graph_.symbols().end());
    for (size_t k = 0; k < parts.kernels.size(); ++k)
      for (NodeId id : parts.kernels[k].outputs) writer_[id] = static_cast<int>(k);
  }

  Result<Explanation> run(const Plan& plan, std::span<const Program> tuned, const Target& target,
                          const DevicePeak& peak) {
    explained_.peak = peak;
    for (size_t k = 0; k < parts_.kernels.size(); ++k)
      TRY_STATUS(add_launch(parts_.kernels[k], plan.launches[k].kernel));
    for (FusionBoundary& boundary : find_fusion_boundaries(parts_))
      explained_.launches[static_cast<size_t>(boundary.writer)].stored.push_back(
          {type_text(graph_.node(boundary.value)), std::move(boundary.readers),
           std::move(boundary.reason)});
    for (const Workload& workload : plan.kernels)
      explained_.kernels.push_back(explain_kernel(workload, tuned, target));
    TRY_STATUS(add_memory(plan));
    return std::move(explained_);
  }

 private:
  Status add_launch(const FusedKernel& kernel, int distinct) {
    ExplainedLaunch launch;
    launch.kernel = distinct;
    add_origins(kernel, launch);
    for (NodeId id : kernel.inputs) launch.inputs.push_back(name_of(id));
    for (NodeId id : kernel.outputs) launch.outputs.push_back(type_text(graph_.node(id)));
    TRY(launch.cost, kernel_cost(parts_, kernel, explained_.sizes));
    launch.floor_us = explained_.peak.floor_us(launch.cost);
    explained_.launches.push_back(std::move(launch));
    return {};
  }

  void add_origins(const FusedKernel& kernel, ExplainedLaunch& launch) const {
    std::vector<OriginId> origins;
    for (NodeId id : kernel.computed) origins.push_back(graph_.origin_of(id));
    std::sort(origins.begin(), origins.end());
    origins.erase(std::unique(origins.begin(), origins.end()), origins.end());
    std::erase(origins, kNoOrigin);
    for (OriginId id : origins) {
      const Origin& origin = graph_.origins()[static_cast<size_t>(id)];
      launch.fused_ops.push_back(origin.op);
      add_once(launch.sources, origin.source);
      add_once(launch.modules, origin.module);
    }
    if (!origins.empty()) return;
    for (NodeId id : kernel.computed) {  // a graph that says nothing: its own ops
      const Op op = graph_.node(id).op;
      if (traits(op).kind != OpKind::kSource && op != Op::kView)
        launch.fused_ops.emplace_back(to_string(op));
    }
  }

  std::string name_of(NodeId id) const {
    const Node& node = graph_.node(id);
    if (const auto written = writer_.find(id); written != writer_.end())
      return "launch " + std::to_string(written->second) + " " + type_text(node);
    const int canonical = std::get<InputAttr>(node.attr).index;
    const int position = form_.input_order[static_cast<size_t>(canonical)];
    return program_.inputs[static_cast<size_t>(position)].name + " " + type_text(node);
  }

  static ExplainedKernel explain_kernel(const Workload& workload, std::span<const Program> tuned,
                                        const Target& target) {
    ExplainedKernel kernel;
    kernel.workload = workload;
    if (const ProgramKernel* known = known_kernel(workload.digest, tuned)) {
      kernel.schedule = known->schedule;
      kernel.time_us = known->report.best_us;
      kernel.known = true;
      kernel.report = known->report;
      for (const Phase& phase : known->recipe.phases)
        if (phase.call) kernel.call = phase.call;
      if (known->fallback) {
        kernel.own_schedule = known->fallback->schedule;
        kernel.own_us = known->fallback->us;
      }
      return kernel;
    }
    const auto space = search_space(workload, target);
    if (space)
      kernel.schedule = space->front().to_string();
    else
      kernel.no_schedule = space.error().message;
    return kernel;
  }

  Status add_memory(const Plan& plan) {
    TRY(explained_.arena_bytes, plan.arena_bytes.evaluate(explained_.sizes));
    std::vector<int64_t> bytes(plan.buffers.size(), 0);
    std::vector<int> first(plan.buffers.size(), -1), last(plan.buffers.size(), -1);
    for (size_t i = 0; i < plan.buffers.size(); ++i) {
      const Buffer& buffer = plan.buffers[i];
      if (buffer.kind != Buffer::Kind::kTemporary) continue;
      TRY(const int64_t elements, element_count(buffer.spec, explained_.sizes));
      bytes[i] = elements * size_of(buffer.spec.dtype);
      explained_.temporary_bytes += bytes[i];
    }
    for (int k = 0; k < static_cast<int>(plan.launches.size()); ++k)
      for (int arg : plan.launches[static_cast<size_t>(k)].args) {
        const auto at = static_cast<size_t>(arg);
        if (first[at] < 0) first[at] = k;
        last[at] = k;
      }
    for (size_t i = 0; i < plan.buffers.size(); ++i) TRY_STATUS(add_buffer(plan, i));
    for (int k = 0; k < static_cast<int>(plan.launches.size()); ++k) {
      int64_t live = 0;
      for (size_t i = 0; i < bytes.size(); ++i)
        if (first[i] <= k && k <= last[i]) live += bytes[i];
      explained_.live_bytes = std::max(explained_.live_bytes, live);
    }
    return {};
  }

  Status add_buffer(const Plan& plan, size_t at) {
    const Buffer& buffer = plan.buffers[at];
    ExplainedBuffer explained;
    explained.kind = buffer.kind;
    TRY(const int64_t elements, element_count(buffer.spec, explained_.sizes));
    explained.bytes = elements * size_of(buffer.spec.dtype);
    explained.value = to_string(OperandType{buffer.spec.dtype, buffer.spec.shape});
    if (buffer.kind == Buffer::Kind::kTemporary) {
      TRY(explained.arena_offset, buffer.arena_offset.evaluate(explained_.sizes));
    } else if (buffer.kind == Buffer::Kind::kInput) {
      const int position = form_.input_order[static_cast<size_t>(buffer.index)];
      const std::string& name = program_.inputs[static_cast<size_t>(position)].name;
      explained.value = name + " " + explained.value;
    }
    for (int k = 0; k < static_cast<int>(plan.launches.size()); ++k) {
      const Launch& launch = plan.launches[static_cast<size_t>(k)];
      const size_t inputs = plan.kernels[static_cast<size_t>(launch.kernel)].graph.inputs().size();
      for (size_t i = 0; i < launch.args.size(); ++i)
        if (launch.args[i] == static_cast<int>(at))
          (i < inputs ? explained.readers : explained.writers).push_back(k);
    }
    explained_.buffers.push_back(std::move(explained));
    return {};
  }

  const ExportedProgram& program_;
  const NormalForm& form_;
  const Partition& parts_;
  const Graph& graph_;
  std::map<NodeId, int> writer_;  // launches, by the value they store
  Explanation explained_;
};

}  // namespace

Result<Explanation> explain(const ExportedProgram& program, const Target& target, Mode mode,
                            std::span<const Program> tuned, const DevicePeak& peak) {
  TRY(const NormalForm form, normalise(program.graph));
  TRY(const std::vector<PlanAlternative> ways,
      plan_alternatives(form.graph, partition_rules(target)));
  const Program* known = program_of_graph(form.digest, tuned);
  TRY(const size_t way, chosen_way(ways, form.graph, target, mode, known));
  PartitionOptions options;
  options.rules = ways[way].rules;
  TRY(const Partition parts, partition(form.graph, options));
  TRY(Explanation explanation,
      Explainer(program, form, parts).run(ways[way].plan, tuned, target, peak));
  explanation.graph = form.digest;
  explanation.summary = summary_of(program.graph, form.graph);
  explanation.target = target;
  explanation.mode = mode;
  for (const PlanAlternative& each : ways) {
    const double us = tuned_us(each.name, known);
    explanation.alternatives.push_back({each.name, static_cast<int>(each.plan.launches.size()),
                                        us > 0 ? us : launches_us(each.plan, tuned)});
  }
  explanation.alternative = static_cast<int>(way);
  explanation.alternative_reason = reason_for(way, ways.size(), mode, known != nullptr);
  if (known != nullptr)
    for (const Guard& guard : known->guards) explanation.guards.push_back(guard.to_string());
  return explanation;
}

}  // namespace kiln::cli
