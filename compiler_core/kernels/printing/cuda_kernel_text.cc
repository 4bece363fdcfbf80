#include "compiler_core/kernels/printing/cuda_kernel_text.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {
namespace {

// Room for what an index adds to a buffer's end before it is compared with it.
constexpr int64_t kMostIntElements = int64_t{1} << 30;

constexpr const char* kStartBehindOthers =
    "  let_next_kernel_begin();\n  wait_for_kernel_before();\n";

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

KernelParameters::KernelParameters(const Graph& graph) {
  using enum KernelArgument::Kind;
  const auto buffers = static_cast<int>(graph.inputs().size() + graph.outputs().size());
  for (int i = 0; i < buffers; ++i) arguments_.push_back({kBuffer, i});
  arguments_.push_back({kWorkspace});
  for (size_t i = 0; i < graph.symbols().size(); ++i)
    arguments_.push_back({kSymbol, static_cast<int>(i)});
}

void KernelParameters::add_map(std::string_view name, TensorMap map) {
  text_ += fmt::format(", const __grid_constant__ CUtensorMap {}_map", name);
  arguments_.push_back({KernelArgument::Kind::kTensorMap, 0, std::move(map)});
}

void KernelParameters::add_ready(int input) {
  text_ += fmt::format(", const int64_t ready{}", input);
  arguments_.push_back({KernelArgument::Kind::kReady, input});
}

std::string cuda_kernel(const std::string& entry, const Graph& graph, int threads, int blocks_an_sm,
                        const std::string& body, std::string_view more, KernelStart start) {
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
  return fmt::format("KILN_KERNEL({}, {}) {}({}) {{\n{}{}}}\n", threads, blocks_an_sm, entry,
                     parameters, start == KernelStart::kBehindOthers ? kStartBehindOthers : "",
                     body);
}

}  // namespace kiln
