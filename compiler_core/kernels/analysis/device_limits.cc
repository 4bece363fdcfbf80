#include "compiler_core/kernels/analysis/device_limits.h"

#include <algorithm>
#include <charconv>

#include "compiler_core/base/check.h"

namespace kiln {

int sm_number(const Target& target) {
  if (target.backend != Backend::kCuda || !target.isa.starts_with("sm_")) return 0;
  int number = 0;
  std::from_chars(target.isa.data() + 3, target.isa.data() + target.isa.size(), number);
  return number;
}

CudaLimits cuda_limits(const Target& target) {
  const int sm = sm_number(target);
  CHECK(sm >= 80, "a CUDA target that kernels are written for");
  CudaLimits limits;
  const bool hopper = sm >= 90 && sm < 120;
  limits.sms = target.units > 0 ? target.units : hopper ? 132 : 108;
  limits.block_shared_bytes = hopper ? 227 << 10 : sm == 80 || sm == 87 ? 163 << 10 : 99 << 10;
  limits.sm_shared_bytes = limits.block_shared_bytes + 1024;
  limits.max_cluster = hopper ? 8 : 1;
  limits.sm_threads = sm == 86 || sm == 89 || sm >= 120 ? 1536 : 2048;
  return limits;
}

int vector_bytes(const Target& target) {
  if (target.backend != Backend::kCpu) return 0;
  if (target.isa == "x86-64-v4") return 64;
  if (target.isa == "x86-64-v3") return 32;
  return 0;
}

std::vector<int> lane_choices(const Graph& graph, const Target& target) {
  // Where rows are reduced, values outside their space are one a row: no loop is about them.
  const auto reduce = std::find_if(graph.nodes().begin(), graph.nodes().end(), [&](const Node& n) {
    return traits(n.op).kind == OpKind::kReduce &&
           std::get<ReduceAttr>(n.attr).axes.back() + 1 ==
               static_cast<int>(graph.node(n.operands[0]).shape.size());
  });
  const auto in_loop = [&](const Node& node) {
    return reduce == graph.nodes().end() ||
           numel(node.shape) == numel(graph.node(reduce->operands[0]).shape);
  };
  const bool wide = std::any_of(graph.nodes().begin(), graph.nodes().end(), [&](const Node& node) {
    return size_of(node.dtype) == 8 && (is_elementwise(node.op) || node.op == Op::kInput) &&
           in_loop(node);
  });
  const int native = vector_bytes(target) / (wide ? 8 : 4);
  std::vector<int> choices = {native};
  if (native > 8) choices.push_back(native / 2);
  if (wide && native < 16) choices.push_back(native * 2);
  return choices;
}

}  // namespace kiln
