#include "compiler_core/plan/plan.h"

#include <algorithm>
#include <map>

#include "compiler_core/base/check.h"
#include "compiler_core/plan/memory.h"
#include "compiler_core/plan/partition.h"
#include "compiler_core/plan/sizes.h"

namespace kiln {
namespace {

class Planner {
 public:
  explicit Planner(Partition partition) : partition_(std::move(partition)) {}

  Plan run() {
    for (const Symbol& symbol : graph().symbols())
      plan_.symbols.push_back({symbol.range.min, symbol.range.max, symbol.hint});
    declare_inputs();
    declare_outputs();
    for (const FusedKernel& kernel : partition_.kernels)
      for (NodeId id : kernel.outputs) buffer_of(id);
    for (FusedKernel& kernel : partition_.kernels) launch(kernel);
    place_temporaries();
    return std::move(plan_);
  }

 private:
  const Graph& graph() const { return partition_.graph; }

  int add_buffer(NodeId id, Buffer::Kind kind, int index) {
    const Node& node = graph().node(id);
    plan_.buffers.push_back({kind, index, {node.dtype, node.shape}, 0});
    buffers_[id] = static_cast<int>(plan_.buffers.size()) - 1;
    return buffers_[id];
  }

  void declare_inputs() {
    int index = 0;
    for (NodeId id : graph().inputs()) add_buffer(id, Buffer::Kind::kInput, index++);
  }

  // An output that is an input, or an output already, has that one's buffer.
  void declare_outputs() {
    int index = 0;
    for (NodeId id : graph().outputs()) {
      const auto it = buffers_.find(id);
      plan_.output_buffers.push_back(
          it != buffers_.end() ? it->second : add_buffer(id, Buffer::Kind::kOutput, index));
      ++index;
    }
  }

  int buffer_of(NodeId id) {
    const auto it = buffers_.find(id);
    return it != buffers_.end() ? it->second : add_buffer(id, Buffer::Kind::kTemporary, 0);
  }

  void launch(FusedKernel& kernel) {
    Launch launch;
    for (NodeId id : kernel.inputs) launch.args.push_back(buffer_of(id));
    for (NodeId id : kernel.outputs) launch.args.push_back(buffer_of(id));
    const auto [it, fresh] =
        kernels_.try_emplace(kernel.workload.digest, static_cast<int>(plan_.kernels.size()));
    if (fresh) plan_.kernels.push_back(std::move(kernel.workload));
    launch.kernel = it->second;
    launch.dims = std::move(kernel.dims);
    plan_.launches.push_back(std::move(launch));
  }

  // Buffers that grow together, as one unit does, share memory as if the unit were one; those that
  // grow differently have regions of their own, since either may be the larger.
  void place_temporaries() {
    std::vector<Lifetime> lifetimes = lifetimes_of_buffers();
    std::map<Dim, std::vector<size_t>> regions;  // by unit: 1, of fixed sizes, comes first
    for (size_t i = 0; i < plan_.buffers.size(); ++i) {
      const Buffer& buffer = plan_.buffers[i];
      if (buffer.kind != Buffer::Kind::kTemporary) continue;
      FactoredSize size = factored(buffer.spec.shape);
      lifetimes[i].bytes = size.number * size_of(buffer.spec.dtype);
      regions[std::move(size.unit)].push_back(i);
    }
    for (const auto& [unit, members] : regions) {
      std::vector<Lifetime> temporaries;
      for (const size_t i : members) temporaries.push_back(lifetimes[i]);
      const ArenaPlan arena = plan_arena(temporaries);
      for (size_t k = 0; k < members.size(); ++k)
        plan_.buffers[members[k]].arena_offset = plan_.arena_bytes + unit * Dim(arena.offsets[k]);
      plan_.arena_bytes = plan_.arena_bytes + unit * Dim(arena.bytes);
    }
  }

  std::vector<Lifetime> lifetimes_of_buffers() const {
    std::vector<Lifetime> lifetimes(plan_.buffers.size());
    std::vector<bool> used(plan_.buffers.size(), false);
    for (int i = 0; i < static_cast<int>(plan_.launches.size()); ++i)
      for (int arg : plan_.launches[static_cast<size_t>(i)].args) {
        Lifetime& life = lifetimes[static_cast<size_t>(arg)];
        if (!used[static_cast<size_t>(arg)]) life.first = i;
        used[static_cast<size_t>(arg)] = true;
        life.last = i;
      }
    return lifetimes;
  }

  Partition partition_;
  Plan plan_;
  std::map<NodeId, int> buffers_;
  std::map<Digest, int> kernels_;
};

// A program learns its sizes from its inputs.
Status symbols_are_bound(const Graph& graph) {
  std::vector<bool> bound(graph.symbols().size(), false);
  for (const NodeId id : graph.inputs())
    for (const Dim& dim : graph.node(id).shape)
      for (const SymbolId symbol : dim.symbols()) bound[static_cast<size_t>(symbol)] = true;
  const auto free = std::find(bound.begin(), bound.end(), false);
  if (free == bound.end()) return {};
  return fail(Code::kInvalidArgument,
              "size s" + std::to_string(free - bound.begin()) +
                  " is a size of no input, so that no call says what it is; make it a constant, or "
                  "a size of an input");
}

}  // namespace

Result<Plan> plan(const Graph& canonical, const PartitionRules& rules) {
  PartitionOptions options;
  options.rules = rules;
  TRY(Partition parts, partition(canonical, options));
  return plan(std::move(parts));
}

Result<Plan> plan(Partition parts) {
  TRY_STATUS(symbols_are_bound(parts.graph));
  return Planner(std::move(parts)).run();
}

Program program_of(Plan plan) {
  Program program;
  program.buffers = std::move(plan.buffers);
  program.launches = std::move(plan.launches);
  program.output_buffers = std::move(plan.output_buffers);
  program.arena_bytes = std::move(plan.arena_bytes);
  program.symbols = std::move(plan.symbols);
  return program;
}

}  // namespace kiln
