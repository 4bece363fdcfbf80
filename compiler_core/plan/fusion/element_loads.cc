#include "compiler_core/plan/fusion/element_loads.h"

#include <algorithm>
#include <utility>

namespace kiln {
namespace {

constexpr size_t kMostPlaces = 256;          // of a node that are kept apart
constexpr int64_t kMany = int64_t{1} << 40;  // loads are counted no further

}  // namespace

ElementLoads::ElementLoads(const Graph& graph, std::function<bool(NodeId)> is_buffer)
    : graph_(graph), is_buffer_(std::move(is_buffer)), places_(static_cast<size_t>(graph.size())) {}

bool ElementLoads::is_place(NodeId id) const {
  const OpKind kind = traits(graph_.node(id).op).kind;
  return !is_buffer_(id) && (kind == OpKind::kIndexMap || kind == OpKind::kGather);
}

void ElementLoads::add_places(NodeId operand, std::vector<NodeId>& places) const {
  const std::vector<NodeId>& below = places_[static_cast<size_t>(operand)];
  if (is_buffer_(operand) || below.empty())
    places.push_back(operand);
  else
    places.insert(places.end(), below.begin(), below.end());
}

int64_t ElementLoads::visit(NodeId id) {
  std::vector<NodeId> places;
  for (const NodeId operand : graph_.node(id).operands) add_places(operand, places);
  std::ranges::sort(places);
  places.erase(std::unique(places.begin(), places.end()), places.end());
  if (places.size() > kMostPlaces) places.clear();  // counts as one load from here on
  places_[static_cast<size_t>(id)] = std::move(places);
  Memo memo;
  return loads(id, memo);
}

int64_t ElementLoads::loads(NodeId id, Memo& memo) const {
  if (is_buffer_(id)) return 1;
  if (const auto known = memo.find(id); known != memo.end()) return known->second;
  int64_t sum = 0;
  const auto add = [&](NodeId below) { sum = std::min(kMany, sum + loads(below, memo)); };
  if (is_place(id))
    for (const NodeId operand : graph_.node(id).operands) add(operand);
  else if (traits(graph_.node(id).op).kind != OpKind::kSource) {
    for (const NodeId place : places_[static_cast<size_t>(id)]) add(place);
    if (places_[static_cast<size_t>(id)].empty()) sum = 1;
  }
  memo[id] = sum;
  return sum;
}

NodeId ElementLoads::source_of(NodeId place) const {
  NodeId id = place;
  while (is_place(id) && graph_.node(id).op != Op::kConcat) id = graph_.node(id).operands[0];
  return is_buffer_(id) || id == place ? kInvalidNode : id;
}

NodeId ElementLoads::costliest(NodeId id) const {
  Memo memo;
  std::unordered_map<NodeId, int64_t> saved;
  for (const NodeId place : places_[static_cast<size_t>(id)])
    if (is_place(place))
      if (const NodeId source = source_of(place); source != kInvalidNode)
        saved[source] += loads(source, memo) - 1;
  NodeId best = kInvalidNode;
  for (const auto& [source, loads] : saved)
    if (loads > 0 &&
        (best == kInvalidNode || loads > saved[best] || (loads == saved[best] && source < best)))
      best = source;
  return best;
}

}  // namespace kiln
