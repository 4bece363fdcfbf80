#include "compiler_core/plan/partition.h"

#include <algorithm>
#include <map>
#include <queue>

#include "compiler_core/base/check.h"
#include "compiler_core/passes/passes.h"
#include "compiler_core/plan/attention/attention.h"
#include "compiler_core/plan/axis_cuts.h"
#include "compiler_core/plan/fusion/fuse.h"
#include "compiler_core/plan/picked_products.h"
#include "compiler_core/plan/rewrites/graph_rewrites.h"
#include "compiler_core/plan/row_update.h"

namespace kiln {
namespace {

class Partitioner {
 public:
  Partitioner(const Graph& graph, const PartitionOptions& options)
      : graph_(graph),
        options_(options),
        values_(choose_materialised_values(graph, options.rules)) {}

  Result<std::vector<FusedKernel>> run() {
    // First every kernel as it was fused. What is stored later to take others apart must not reach
    // into these: between two outputs of one kernel it would close a cycle.
    std::vector<KernelOutputs> refused;
    for (const KernelOutputs& outputs :
         options_.fuse ? fuse_kernels(graph_, options_.rules, values_) : op_by_op()) {
      if (is_empty(outputs)) continue;  // nothing to compute
      auto kernel = make_kernel(outputs);
      if (kernel)
        kernels_.push_back(*std::move(kernel));
      else
        refused.push_back(outputs);
    }
    while (!refused.empty()) {
      const KernelOutputs outputs = std::move(refused.back());
      refused.pop_back();
      auto kernel = make_kernel(outputs);
      if (kernel) {
        kernels_.push_back(*std::move(kernel));
        continue;
      }
      const std::vector<NodeId> cuts = take_apart(outputs);
      if (cuts.empty() && outputs.size() == 1) return fail(std::move(kernel).error());
      for (NodeId id : cuts.empty() ? outputs : cuts)
        taken_apart_.emplace(id, kernel.error().message);
      for (NodeId id : cuts) refused.push_back({id});
      if (cuts.empty())
        for (NodeId id : outputs) refused.push_back({id});
      else
        refused.push_back(outputs);
    }
    return in_order();
  }
  const MaterialisedValues& stored_values() const { return values_; }
  const std::map<NodeId, std::string>& taken_apart() const { return taken_apart_; }

 private:
  // A kernel for each stored value, and each value stored that leaves the op it came from.
  std::vector<KernelOutputs> op_by_op() {
    const auto users = users_of(graph_);
    std::vector<KernelOutputs> kernels;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Op op = graph_.node(id).op;
      if (traits(op).kind == OpKind::kSource) {
        if (values_[id]) kernels.push_back({id});  // an output
        continue;
      }
      const bool leaves =
          std::any_of(users[static_cast<size_t>(id)].begin(), users[static_cast<size_t>(id)].end(),
                      [&](NodeId user) { return graph_.origin_of(user) != graph_.origin_of(id); });
      // A conversion belongs to the arithmetic around it: half types compute in f32.
      const bool alone = options_.core_ops && op != Op::kCast;
      if ((leaves || alone) && op != Op::kView) values_.stored[static_cast<size_t>(id)] = true;
      if (values_[id]) kernels.push_back({id});
    }
    return kernels;
  }

  bool is_empty(const KernelOutputs& outputs) const {
    return std::all_of(outputs.begin(), outputs.end(),
                       [this](NodeId id) { return numel(graph_.node(id).shape).is(0); });
  }

  Result<FusedKernel> make_kernel(const KernelOutputs& outputs) const {
    TRY(KernelGraph cut, extract_kernel(graph_, values_, outputs));
    TRY(WorkloadBinding binding, make_workload(cut.graph));
    FusedKernel kernel;
    kernel.computed = std::move(cut.computed);
    for (int input : binding.input_order)
      kernel.inputs.push_back(cut.inputs[static_cast<size_t>(input)]);
    kernel.dims = std::move(binding.dims);
    kernel.outputs = outputs;
    kernel.workload = std::move(binding.workload);
    if (options_.fuse && updates_rows(kernel))
      kernel.workload = with_family(std::move(kernel.workload), Family::kRowUpdate);
    return kernel;
  }

  bool updates_rows(const FusedKernel& kernel) const {
    return kernel.workload.family == Family::kPointwise &&
           values_.row_updates.are_all(kernel.outputs) && find_row_update(kernel.workload.graph);
  }

  // Stores values inside a kernel that keeps no family's rules until its parts keep them, and returns
  // these values. One is enough where storing a View, or an operand of a matmul or reduction, helps: the
  // smallest of those. Else results and operands of matmuls and reductions are stored, which leaves
  // kernels of one such node and pointwise ones.
  std::vector<NodeId> take_apart(const KernelOutputs& outputs) {
    for (NodeId id : by_size(storable(outputs, Cut::kReads))) {
      if (is_computed_from(outputs, id)) continue;  // the two kernels would each await the other
      values_.stored[static_cast<size_t>(id)] = true;
      if (make_kernel({id}) && make_kernel(outputs)) return {id};
      values_.stored[static_cast<size_t>(id)] = false;
    }
    std::vector<NodeId> cuts = storable(outputs, Cut::kResults);
    if (cuts.empty()) cuts = storable(outputs, Cut::kResultsAndCopies);
    for (NodeId id : cuts) values_.stored[static_cast<size_t>(id)] = true;
    return cuts;
  }

  enum class Cut : uint8_t {
    kReads,             // Views, and operands of matmuls and reductions
    kResults,           // results of these, and operands that are computed
    kResultsAndCopies,  // also operands that lie in memory, in an order that no kernel reads
  };
  std::vector<NodeId> storable(const KernelOutputs& outputs, Cut cut) const {
    std::vector<NodeId> found;
    const auto add = [&](NodeId id) {
      const bool source = traits(graph_.node(id).op).kind == OpKind::kSource;
      const bool known = std::find(found.begin(), found.end(), id) != found.end();
      if (!source && !values_[id] && !known) found.push_back(id);
    };
    for (NodeId id : members(outputs)) {
      const Node& node = graph_.node(id);
      const OpKind kind = traits(node.op).kind;
      if (cut == Cut::kReads && node.op == Op::kView) add(id);
      if (kind != OpKind::kReduce && kind != OpKind::kContract && !stands_alone(node.op)) continue;
      const auto picked = picked_matrices(graph_, node);
      const bool in_place =
          options_.rules.picks_matrices && picked && is_picked_product(graph_, node);
      for (NodeId operand : node.operands) {
        const bool stays = (in_place && operand == picked->gather) ||
                           (cut == Cut::kResults && lies_in_memory(operand));
        if (!stays) add(operand);
      }
      if (in_place) add(picked->table);
      if (in_place) add(picked->index);
      if (cut != Cut::kReads) add(id);
    }
    return found;
  }

  // Whether a kernel could read the value where it lies: an input, a stored value, or a View of one.
  bool lies_in_memory(NodeId id) const {
    const Node& node = graph_.node(id);
    const NodeId from = node.op == Op::kView ? node.operands[0] : id;
    return values_[from] || graph_.node(from).op == Op::kInput;
  }

  // Whether one of `outputs` is computed on the way to `id`.
  bool is_computed_from(const KernelOutputs& outputs, NodeId id) const {
    for (NodeId member : members({id}))
      for (NodeId operand : graph_.node(member).operands)
        if (std::find(outputs.begin(), outputs.end(), operand) != outputs.end()) return true;
    return false;
  }

  // Ascending by bytes, and among equals in the order of the graph.
  std::vector<NodeId> by_size(std::vector<NodeId> values) const {
    const auto bytes = [this](NodeId id) {
      const Node& node = graph_.node(id);
      return magnitude(numel(node.shape)) * size_of(node.dtype);
    };
    std::sort(values.begin(), values.end(),
              [&](NodeId a, NodeId b) { return std::pair(bytes(a), a) < std::pair(bytes(b), b); });
    return values;
  }

  std::vector<NodeId> members(const KernelOutputs& outputs) const {
    std::vector<bool> seen(static_cast<size_t>(graph_.size()), false);
    std::vector<NodeId> stack(outputs.begin(), outputs.end()), found;
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (seen[static_cast<size_t>(id)]) continue;
      seen[static_cast<size_t>(id)] = true;
      const bool own = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
      if (values_[id] && !own) continue;
      found.push_back(id);
      const auto& operands = graph_.node(id).operands;
      stack.insert(stack.end(), operands.begin(), operands.end());
    }
    return found;
  }

  // Producers before consumers; otherwise in the order of the graph.
  std::vector<FusedKernel> in_order() {
    std::map<NodeId, int> owner;
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k)
      for (NodeId id : kernels_[static_cast<size_t>(k)].outputs) owner[id] = k;
    std::vector<std::vector<int>> readers(kernels_.size());
    std::vector<int> waits(kernels_.size(), 0);
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k)
      for (NodeId id : kernels_[static_cast<size_t>(k)].inputs)
        if (const auto it = owner.find(id); it != owner.end()) {
          readers[static_cast<size_t>(it->second)].push_back(k);
          ++waits[static_cast<size_t>(k)];
        }
    using Ready = std::pair<NodeId, int>;
    std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready;
    const auto make_ready = [&](int k) {
      ready.emplace(kernels_[static_cast<size_t>(k)].outputs.front(), k);
    };
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k)
      if (waits[static_cast<size_t>(k)] == 0) make_ready(k);
    std::vector<FusedKernel> sorted;
    while (!ready.empty()) {
      const int k = ready.top().second;
      ready.pop();
      for (int reader : readers[static_cast<size_t>(k)])
        if (--waits[static_cast<size_t>(reader)] == 0) make_ready(reader);
      sorted.push_back(std::move(kernels_[static_cast<size_t>(k)]));
    }
    CHECK(sorted.size() == kernels_.size(), "joining kernels never makes a cycle");
    return sorted;
  }

  const Graph& graph_;
  const PartitionOptions& options_;
  MaterialisedValues values_;
  std::vector<FusedKernel> kernels_;
  std::map<NodeId, std::string> taken_apart_;
};

}  // namespace

Result<Partition> partition(const Graph& canonical, const PartitionOptions& options) {
  const auto passed = [&options](std::string_view pass, Result<Graph> graph) {
    return after_pass(pass, std::move(graph), options.after);
  };
  // First: what is written for a row is one matter with the matrix that it picks.
  TRY(Graph graph, passed("share_picked_matrices",
                          share_picked_matrices(canonical, options.rules.picks_matrices)));
  if (options.fuse) {
    TRY(graph, passed("unroll_windows", unroll_windows(graph)));
    TRY(graph, passed("multiply_vectors", multiply_vectors(graph)));
    TRY(graph, passed("pack_shared_heads",
                      pack_shared_heads(graph, options.rules.attention ? options.rules.one_pass
                                                                       : OnePass::kManyRows)));
    TRY(graph, passed("patch_convolutions", patch_convolutions(graph)));
  }
  TRY(graph, passed("split_reductions", split_reductions(graph)));
  // Before the views are sunk: it leaves some to sink.
  TRY(graph, passed("sink_gathers", sink_gathers(graph)));
  // Broadcasts of pointwise values go down first, so that where a View still stands on arithmetic,
  // the arithmetic is on stored values and small, or is stored for a matmul.
  TRY(graph, passed("sink_broadcasts", sink_views(graph, SinkLimit::kRecomputeUnstored)));
  if (options.fuse) {
    TRY(graph, passed("share_reshapes", share_reshapes(graph)));
    // Runs before keep_channels_last: gradients of weights read images and channels exchanged.
    TRY(graph, passed("share_exchanged_images", share_transposes(graph, Transpose::kFirstAxes)));
    // Behind all passes that carry Views to the inputs: its own stand between values that are stored.
    if (options.rules.channels_last) {
      TRY(graph, passed("keep_channels_last", keep_channels_last(graph)));
    }
    TRY(graph, passed("round_products", round_products(graph)));
    TRY(graph, passed("share_parts", share_parts(graph)));
    TRY(graph, passed("order_gathers", order_gathers(graph)));
    TRY(graph, passed("fold_column_arithmetic", fold_column_arithmetic(graph)));
    TRY(graph, passed("share_transposes", share_transposes(graph, Transpose::kLastAxes)));
    TRY(graph, passed("arrange_products", arrange_products(graph)));
  }
  if (options.rules.attention) {
    TRY(graph, passed("lift_attention_casts", lift_attention_casts(graph)));
  }
  Partitioner partitioner(graph, options);
  TRY(std::vector<FusedKernel> kernels, partitioner.run());
  return Partition{std::move(graph), std::move(kernels), partitioner.stored_values(),
                   partitioner.taken_apart()};
}

}  // namespace kiln
