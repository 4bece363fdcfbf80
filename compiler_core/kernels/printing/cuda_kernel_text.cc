#include "compiler_core/kernels/printing/cuda_kernel_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

// Room for what an index adds to a buffer's end before it is compared with it.
constexpr int64_t kMostIntElements = int64_t{1} << 30;

bool needs_long_indices(const Graph& graph) {
  if (!graph.symbols().empty()) return true;
  for (const Node& node : graph.nodes()) {
    int64_t elements = 1;
    for (const Dim& dim : node.shape) elements *= dim.constant();
    if (elements > kMostIntElements) return true;
  }
  return false;
}

bool has_trigonometry(const Graph& graph) {
  return std::any_of(graph.nodes().begin(), graph.nodes().end(), [](const Node& node) {
    return node.op == Op::kSin || node.op == Op::kCos || node.op == Op::kTan;
  });
}

}  // namespace

std::string cuda_preamble(const Graph& graph, int lanes,
                          const std::vector<std::string_view>& extra) {
  std::string text = fmt::format("#define LANES {}\nusing index_t = {};\n", lanes,
                                 needs_long_indices(graph) ? "long" : "int");
  // In this order: each uses the ones before it.
  for (const char* name : {"device.cuh", "vector.cuh", "memory.cuh", "math.cuh", "reduce.cuh"})
    text += device_text(name);
  if (has_e8m0(graph)) text += device_text("e8m0.cuh");
  if (has_trigonometry(graph)) text += device_text("trig.cuh");
  if (has_random_values(graph)) text += device_text("random.cuh");
  for (const std::string_view name : extra) text += device_text(name);
  return text + "\n// ---- The kernel.\n";
}

std::string cuda_kernel(const std::string& entry, const Graph& graph, int threads, int blocks_an_sm,
                        const std::string& body, std::string_view more) {
  std::string parameters;
  int input = 0;
  for (NodeId id : graph.inputs())
    parameters +=
        fmt::format("const {}* __restrict__ in{}, ", memory_type(graph.node(id).dtype), input++);
  for (size_t i = 0; i < graph.outputs().size(); ++i)
    parameters += fmt::format("{}* __restrict__ out{}, ",
                              memory_type(graph.node(graph.outputs()[i]).dtype), i);
  parameters += "char* __restrict__ workspace";
  for (size_t i = 0; i < graph.symbols().size(); ++i)
    parameters += fmt::format(", const int64_t s{}", i);
  parameters += more;
  return fmt::format("KILN_KERNEL({}, {}) {}({}) {{\n{}}}\n", threads, blocks_an_sm, entry,
                     parameters, body);
}

}  // namespace kiln
