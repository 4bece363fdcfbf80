// Milliseconds of CPU time of every stage a graph passes on its way to a plan, at 12,500, 25,000,
// 50,000 and 100,000 nodes, or from --least on, for the forms of
// tests/compiler_core/plan/large_graphs.h: they should double from one line to the next.
//
//   scale_bench [--json] [--least=NODES] [FORM...]
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <set>
#include <string>

#include "compiler_core/ir/interpreter.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/plan/large_graphs.h"

namespace {

// The result of `stage`, and how long it took: one thread's CPU time, whoever else is there.
template <class Stage>
auto timed(double& ms, Stage stage) {
  const std::clock_t start = std::clock();
  auto result = stage();
  ms = 1e3 * static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  return result;
}

int measure(const kiln::testing::LargeGraph& form, int nodes, bool json) {
  const std::string text = kiln::print(form.make(nodes));
  double parse = 0, verify = 0, normalise = 0, plan = 0, interpret = 0;
  const auto graph = timed(parse, [&] { return kiln::parse_graph(text); });
  if (!graph) return fmt::print(stderr, "{}: {}\n", form.name, graph.error().message), 1;
  const auto verified = timed(verify, [&] { return kiln::verify(*graph); });
  const auto normal = timed(normalise, [&] { return kiln::normalise(*graph); });
  if (!verified || !normal) return fmt::print(stderr, "{}: is refused\n", form.name), 1;
  const auto planned = timed(plan, [&] { return kiln::plan(normal->graph); });
  if (!planned) return fmt::print(stderr, "{}: {}\n", form.name, planned.error().message), 1;
  std::vector<kiln::Tensor> tensors;
  std::vector<const kiln::Tensor*> inputs;
  for (kiln::NodeId id : graph->inputs())
    tensors.emplace_back(graph->node(id).dtype, kiln::constant_sizes(graph->node(id).shape));
  for (const kiln::Tensor& tensor : tensors) inputs.push_back(&tensor);
  const auto values = timed(interpret, [&] { return kiln::interpret(*graph, inputs); });
  if (!values) return fmt::print(stderr, "{}: {}\n", form.name, values.error().message), 1;
  if (json)
    fmt::print(
        "{{\"form\":\"{}\",\"nodes\":{},\"parse_ms\":{:.2f},\"verify_ms\":{:.2f},"
        "\"normalise_ms\":{:.2f},\"plan_ms\":{:.2f},\"interpret_ms\":{:.2f},\"kernels\":{}}}\n",
        form.name, graph->size(), parse, verify, normalise, plan, interpret,
        planned->launches.size());
  else
    fmt::print("{:16} {:7} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:9.1f} {:9}\n", form.name,
               graph->size(), parse, verify, normalise, plan, interpret, planned->launches.size());
  std::fflush(stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  std::set<std::string> forms(argv + 1, argv + argc);
  const bool json = forms.erase("--json") != 0;
  int least = 12'500;
  for (const std::string& argument : std::set<std::string>(forms))
    if (argument.starts_with("--least=")) {
      least = std::max(std::atoi(argument.c_str() + 8), 100);
      forms.erase(argument);
    }
  if (!json)
    fmt::print("{:16} {:>7} {:>9} {:>9} {:>9} {:>9} {:>9} {:>9}\n", "ms", "nodes", "parse",
               "verify", "normalise", "plan", "interpret", "launches");
  for (const auto& form : kiln::testing::kLargeGraphs) {
    if (!forms.empty() && forms.count(form.name) == 0) continue;
    for (int nodes = least; nodes <= 8 * least; nodes *= 2)
      if (const int failed = measure(form, nodes, json)) return failed;
  }
  return 0;
}
