#include "compiler_core/plan/fusion/fuse.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <utility>

#include "compiler_core/base/math.h"
#include "compiler_core/passes/rewrite.h"
#include "compiler_core/plan/fusion/element_loads.h"
#include "compiler_core/plan/joined_products.h"
#include "compiler_core/plan/row_update.h"
#include "compiler_core/plan/sizes.h"
#include "compiler_core/plan/workload.h"

namespace kiln {
namespace {

constexpr int kMaxNodes = 256;             // computed in one kernel
constexpr size_t kMaxBuffers = 32;         // read and written by one kernel
constexpr int kMaxTrials = 8;              // joins tried for one kernel
constexpr int kMaxSearched = 4096;         // reads followed for one join: else it is left
constexpr int64_t kFewElements = 1 << 15;  // their kernel takes no longer than its launch
// Fruitless offers of a kernel to later ones; an offer that was tried counts as kMaxPassedOver /
// kMaxTrials of them. So all offers together are linear in the kernels, and no kernel is passed
// over only because others read the same value.
constexpr int kMaxPassedOver = 256;
// Products of so many tiles of so many rows and columns fill a device several times.
constexpr int64_t kManyTiles = 512, kTileSide = 128;

// A kernel so far, with the facts that cheaply decide whether two could share an iteration space.
struct Kernel {
  KernelOutputs outputs;      // empty: joined into another
  std::vector<NodeId> reads;  // inputs and stored values
  bool product = false;       // has a matmul, a convolution or a node that is a kernel of its own
  bool updates_rows = false;  // a row update (row_update.h)
  NodeId first_operand = kInvalidNode;  // of its matmul; kInvalidNode: it has none
  std::optional<ReductionSizes> reduction;
  Dim elements;  // of the iteration space
  int nodes = 0;
  int passed_over = 0;

  bool is_full() const {
    return nodes >= kMaxNodes || reads.size() + outputs.size() >= kMaxBuffers;
  }
  // The number of elements of a reduction's results.
  std::optional<Dim> reduced_elements() const {
    if (!reduction) return std::nullopt;
    return reduction->batch * reduction->kept;
  }
};

class Fuser {
 public:
  Fuser(const Graph& graph, const PartitionRules& rules, MaterialisedValues& values)
      : graph_(graph),
        rules_(rules),
        values_(values),
        is_output_(outputs_of(graph)),
        owner_(static_cast<size_t>(graph.size()), -1),
        readers_(static_cast<size_t>(graph.size())),
        block_(static_cast<size_t>(graph.size())) {
    std::iota(block_.begin(), block_.end(), 0);
  }

  std::vector<KernelOutputs> run() {
    std::map<NodeId, NodeId> more;  // that the kernel of a value stores
    for (const auto& [id, with] : values_.beside) more[with] = id;
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!values_[id] || values_.beside.count(id)) continue;
      KernelOutputs outputs = {id};
      if (const auto found = more.find(id); found != more.end()) {
        outputs.push_back(found->second);
        std::sort(outputs.begin(), outputs.end());
        make_block(outputs.front(), outputs.back());
      }
      add(describe(std::move(outputs)));
    }
    met_.assign(kernels_.size(), 0);
    // Producers come before consumers, so that a kernel grows along the flow of data.
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k) {
      grow(k);
      offer(k);
    }
    join_products();
    join_row_updates();
    std::vector<KernelOutputs> result;
    for (Kernel& kernel : kernels_)
      if (!kernel.outputs.empty()) result.push_back(std::move(kernel.outputs));
    return result;
  }

 private:
  Kernel& at(int k) { return kernels_[static_cast<size_t>(k)]; }
  int& owner(NodeId id) { return owner_[static_cast<size_t>(id)]; }
  std::set<int>& readers(NodeId id) { return readers_[static_cast<size_t>(id)]; }
  Dim elements(NodeId id) const { return numel(graph_.node(id).shape); }

  Kernel describe(KernelOutputs outputs) const {
    Kernel kernel;
    std::vector<NodeId> stack(outputs.begin(), outputs.end());
    std::vector<NodeId> seen;
    const auto meet = [&seen](NodeId id) {
      const auto at = std::lower_bound(seen.begin(), seen.end(), id);
      if (at != seen.end() && *at == id) return false;
      seen.insert(at, id);
      return true;
    };
    kernel.elements = elements(outputs[0]);
    while (!stack.empty()) {
      const NodeId id = stack.back();
      stack.pop_back();
      if (!meet(id)) continue;
      const Node& node = graph_.node(id);
      const bool own = std::find(outputs.begin(), outputs.end(), id) != outputs.end();
      if (node.op == Op::kInput || (values_[id] && !own)) {
        kernel.reads.push_back(id);
        continue;
      }
      ++kernel.nodes;
      kernel.product =
          kernel.product || traits(node.op).kind == OpKind::kContract || stands_alone(node.op);
      if (node.op == Op::kMatmul) kernel.first_operand = node.operands[0];
      if (traits(node.op).kind == OpKind::kReduce) {
        kernel.reduction = reduction_sizes(graph_, node);
        kernel.elements = elements(node.operands[0]);
      }
      stack.insert(stack.end(), node.operands.begin(), node.operands.end());
    }
    kernel.updates_rows =
        !kernel.product && !kernel.reduction && values_.row_updates.are_all(outputs);
    kernel.outputs = std::move(outputs);
    return kernel;
  }

  void add(Kernel kernel) {
    const int k = static_cast<int>(kernels_.size());
    kernels_.push_back(std::move(kernel));
    enlist(k);
  }
  void enlist(int k) {
    for (NodeId id : at(k).outputs) owner(id) = k;
    for (NodeId id : at(k).reads) readers(id).insert(k);
  }
  void delist(int k) {
    for (NodeId id : at(k).reads) readers(id).erase(k);
  }

  void grow(int k) {
    int trials = 0;
    bool joined = true;
    while (joined && trials < kMaxTrials) {
      joined = false;
      for (int other : candidates(k)) {
        if (trials++ >= kMaxTrials) break;
        joined = join(other, k);
        if (joined) break;
        at(other).passed_over += kMaxPassedOver / kMaxTrials;
      }
    }
  }

  // Offers k to later kernels that read some of the same values.
  void offer(int k) {
    const Kernel& kernel = at(k);
    if (kernel.product || kernel.is_full()) return;
    for (NodeId id : kernel.reads) {
      offered_[{id, kernel.elements}].push_back(k);
      if (const auto reduced = kernel.reduced_elements(); reduced && *reduced != kernel.elements)
        offered_[{id, *reduced}].push_back(k);
    }
  }

  // Kernels worth joining with k: those it reads from, then earlier ones that read many of the same
  // values, the latest first.
  std::vector<int> candidates(int k) {
    std::vector<int> found;
    if (at(k).product || at(k).is_full()) return found;
    const auto propose = [&](int other) {
      if (other < 0 || !may_share_space(at(other), at(k))) return false;
      if (std::find(found.begin(), found.end(), other) == found.end()) found.push_back(other);
      return true;
    };
    for (NodeId id : at(k).reads) propose(owner(id));
    const size_t most = found.size() + kMaxTrials;
    const auto siblings = [&](NodeId id, const Dim& elements) {
      const auto offered = offered_.find({id, elements});
      if (offered == offered_.end()) return;
      std::vector<int>& all = offered->second;
      for (size_t i = all.size(); i-- > 0 && found.size() < most;) {
        Kernel& other = at(all[i]);
        if (other.outputs.empty() || other.passed_over >= kMaxPassedOver)
          all.erase(all.begin() + static_cast<std::ptrdiff_t>(i));
        else if (!propose(all[i]))
          ++other.passed_over;
      }
    };
    for (NodeId id : at(k).reads) {
      if (size_at_hints(graph_, elements(id) * 4) < size_at_hints(graph_, at(k).elements)) continue;
      siblings(id, at(k).elements);
      if (const auto reduced = at(k).reduced_elements()) siblings(id, *reduced);
    }
    return found;
  }

  // Joins each kernel of a matmul with the last one before it that has the same first operand.
  void join_products() {
    if (rules_.most_joined_rows == 0) return;
    std::map<NodeId, int> last;  // by first operand
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k) {
      const NodeId first_operand = at(k).first_operand;
      if (first_operand == kInvalidNode) continue;
      const auto [before, is_first] = last.try_emplace(first_operand, k);
      if (is_first) continue;
      join(before->second, k);
      before->second = k;
    }
  }

  // Joins each row update with the last one before it.
  void join_row_updates() {
    std::optional<int> last;
    for (int k = 0; k < static_cast<int>(kernels_.size()); ++k) {
      if (at(k).outputs.empty() || !at(k).updates_rows) continue;
      if (last) join(*last, k);
      last = k;
    }
  }

  static bool may_share_space(const Kernel& a, const Kernel& b) {
    if (a.product || b.product || a.outputs.empty() || b.outputs.empty()) return false;
    if (a.updates_rows || b.updates_rows) return false;  // the others' spaces are whole
    if (a.elements.is(0) || b.elements.is(0)) return false;
    if (a.nodes + b.nodes > kMaxNodes) return false;
    if (a.reads.size() + b.reads.size() + a.outputs.size() + b.outputs.size() > kMaxBuffers)
      return false;
    if (a.reduction && b.reduction) return *a.reduction == *b.reduction;
    if (!a.reduction && !b.reduction) return a.elements == b.elements;
    const Kernel& reduction = a.reduction ? a : b;
    const Kernel& pointwise = a.reduction ? b : a;
    return pointwise.elements == reduction.elements ||
           pointwise.elements == reduction.reduction->batch * reduction.reduction->kept;
  }

  // Data flows from lower ids to higher ones, except through a kernel of several outputs: what
  // comes in for the last may leave as the first. Ids that such kernels span are one block; data
  // never flows from one block to an earlier one. A block is known by its first id.
  NodeId block_of(NodeId id) {
    const auto up = [this](NodeId x) -> NodeId& { return block_[static_cast<size_t>(x)]; };
    while (up(id) != id) id = up(id) = up(up(id));
    return id;
  }
  void make_block(NodeId first, NodeId last) {
    for (NodeId start = block_of(last); start > first; start = block_of(start))
      block_[static_cast<size_t>(start)] = start - 1;
  }
  bool may_flow(int from, int to) {
    return block_of(at(from).outputs.front()) <= at(to).outputs.back();
  }

  // Whether data flows from `from` to `to` by way of a third kernel: joined, the two would wait for
  // each other. True, to be safe, where that takes too long to find out. A value of very many
  // readers is followed from its readers back, a kernel of long history from there on.
  bool flows_around(int from, int to) {
    for (const int limit : {kMaxSearched / 64, kMaxSearched}) {
      if (const auto found = search_on(from, to, limit)) return *found;
      if (const auto found = search_back(from, to, limit)) return *found;
    }
    return true;
  }
  std::optional<bool> search_on(int from, int to, int limit) {
    ++search_;
    std::vector<int> stack = {from};
    while (!stack.empty()) {
      const int k = stack.back();
      stack.pop_back();
      for (NodeId id : at(k).outputs)
        for (int reader : readers(id)) {
          if (--limit < 0) return std::nullopt;
          // The direct edge itself is no way around.
          if (reader == to && k != from) return true;
          if (reader != to && may_flow(reader, to) && is_new(reader)) stack.push_back(reader);
        }
    }
    return false;
  }
  std::optional<bool> search_back(int from, int to, int limit) {
    ++search_;
    std::vector<int> stack = {to};
    while (!stack.empty()) {
      const int k = stack.back();
      stack.pop_back();
      for (NodeId id : at(k).reads) {
        const int source = owner(id);
        if (source < 0) continue;
        if (--limit < 0) return std::nullopt;
        if (source == from && k != to) return true;
        if (source != from && may_flow(from, source) && is_new(source)) stack.push_back(source);
      }
    }
    return false;
  }
  // For the first time in this search.
  bool is_new(int k) { return std::exchange(met_[static_cast<size_t>(k)], search_) != search_; }

  bool join(int other, int k) {
    if (flows_around(other, k) || flows_around(k, other)) return false;
    KernelOutputs outputs, inner;
    for (int source : {other, k})
      for (NodeId id : at(source).outputs) {
        const auto& all = readers(id);
        const bool outside =
            std::any_of(all.begin(), all.end(), [&](int r) { return r != other && r != k; });
        (outside || is_output_[static_cast<size_t>(id)] ? outputs : inner).push_back(id);
      }
    std::sort(outputs.begin(), outputs.end());
    for (NodeId id : inner) values_.stored[static_cast<size_t>(id)] = false;
    const bool products = at(k).product;
    if (outputs.empty() || !(products ? are_joined_products(outputs) : is_one_kernel(outputs))) {
      for (NodeId id : inner) values_.stored[static_cast<size_t>(id)] = true;
      return false;
    }
    delist(other);
    delist(k);
    at(other) = Kernel{};
    make_block(outputs.front(), outputs.back());
    at(k) = describe(std::move(outputs));
    enlist(k);
    return true;
  }

  // The final check. A join is not worth divisions at very many elements, nor computing the same
  // elements anew at very many places.
  bool is_one_kernel(const KernelOutputs& outputs) const {
    const auto cut = extract_kernel(graph_, values_, outputs);
    if (!cut) return false;
    const auto made = make_workload(cut->graph);
    if (!made) return false;
    const Graph& graph = made->workload.graph;
    if (made->workload.family == Family::kPointwise && values_.row_updates.are_all(outputs))
      return find_row_update(graph).has_value();
    ElementLoads loads(graph, [&](NodeId id) { return graph.node(id).op == Op::kInput; });
    for (NodeId id = 0; id < graph.size(); ++id)
      if (is_elementwise(graph.node(id).op) && loads.visit(id) > ElementLoads::kMost &&
          loads.costliest(id) != kInvalidNode)
        return false;
    return !costs_divisions(graph);
  }

  // Products that fill a device several times gain nothing from one another, unless one result needs two
  // of them: the first one's is not stored then.
  bool are_joined_products(const KernelOutputs& outputs) const {
    const auto cut = extract_kernel(graph_, values_, outputs);
    if (!cut) return false;
    const auto made = make_workload(cut->graph);
    if (!made || made->workload.family != Family::kProducts) return false;
    const Graph& graph = made->workload.graph;
    const JoinedProducts joined = *find_joined_products(graph);
    const Dim& all_rows = graph.node(joined.first_operand).shape[0];
    if (rules_.most_joined_rows != PartitionRules::kAnyRows && !all_rows.is_constant())
      return false;
    const int64_t rows = size_at_hints(graph, all_rows);
    int64_t tiles = 0;
    for (NodeId id : graph.outputs())
      tiles += ceil_div(rows, kTileSide) * ceil_div(graph.node(id).shape[1].constant(), kTileSide);
    return rows <= rules_.most_joined_rows && (tiles <= kManyTiles || joined.outputs.size() == 1);
  }

  const Graph& graph_;
  const PartitionRules& rules_;
  MaterialisedValues& values_;
  std::vector<bool> is_output_;
  std::vector<Kernel> kernels_;
  std::vector<int> owner_;              // by node: the kernel that stores it
  std::vector<std::set<int>> readers_;  // by node: the kernels that read it from memory
  // By value and number of elements of an iteration space: the kernels that read the value and have
  // such a space, ascending. Some have been joined into others since.
  std::map<std::pair<NodeId, Dim>, std::vector<int>> offered_;
  std::vector<NodeId> block_;  // by node: an id before it in its block, or itself
  std::vector<int> met_;       // by kernel: the last search that met it
  int search_ = 0;
};

}  // namespace

bool costs_divisions(const Graph& kernel) {
  const auto nodes = kernel.nodes();
  const auto has_few = [](const Node& node) {
    return node.op == Op::kInput || (is_constant(node.shape) && numel(node.shape) <= kFewElements);
  };
  const auto views_a_view = [&](const Node& node) {
    return node.op == Op::kView && kernel.node(node.operands[0]).op == Op::kView;
  };
  return std::any_of(nodes.begin(), nodes.end(), views_a_view) &&
         !std::all_of(nodes.begin(), nodes.end(), has_few);
}

std::vector<KernelOutputs> fuse_kernels(const Graph& graph, const PartitionRules& rules,
                                        MaterialisedValues& values) {
  return Fuser(graph, rules, values).run();
}

}  // namespace kiln
