#include "compiler_core/codegen/kernel_text.h"

#include <fmt/core.h>

#include <array>

#include "compiler_core/codegen/embedded.h"
#include "compiler_core/codegen/expression.h"

namespace kiln {

Recipe argument_recipe(const Graph& graph) {
  Recipe recipe;
  const auto spec = [&](NodeId id) {
    const Node& node = graph.node(id);
    return TensorSpec{node.dtype, node.shape};
  };
  for (NodeId id : graph.inputs()) recipe.inputs.push_back(spec(id));
  for (NodeId id : graph.outputs()) recipe.outputs.push_back(spec(id));
  return recipe;
}

std::string entry_function(const std::string& entry, const Graph& graph, const std::string& body) {
  return fmt::format(
      "extern \"C\" void {}(void* const* args, const int64_t*, int64_t begin, int64_t end,\n"
      "                     void* workspace, void* scratch) {{\n{}{}}}\n",
      entry, argument_pointers(graph), body);
}

std::string vector_loop(const std::string& variable, const std::string& from, const std::string& to,
                        int unroll, const std::string& statements, int indent) {
  const std::string margin(static_cast<size_t>(indent), ' ');
  std::string text;
  text += fmt::format("{}const auto body = [&](int64_t {}, auto live) KILN_LAMBDA {{\n", margin,
                      variable);
  text += statements;
  text += fmt::format("{}}};\n", margin);
  text += fmt::format("{}int64_t {} = {};\n", margin, variable, from);
  if (unroll > 1) text += fmt::format("{}#pragma GCC unroll {}\n", margin, unroll);
  text += fmt::format("{}for (; {} + LANES <= {}; {} += LANES) body({}, AllLanes{{}});\n", margin,
                      variable, to, variable, variable);
  text += fmt::format("{}if ({} < {}) body({}, SomeLanes{{{} - {}}});\n", margin, variable, to,
                      variable, to, variable);
  return text;
}

std::string preamble(int lanes) {
  std::string text = fmt::format("#define LANES {}\n", lanes);
  // In this order: each uses the ones before it.
  for (const char* name :
       {"vector.h", "memory.h", "half.h", "math_f32.h", "math_f64.h", "integer.h"})
    text += template_text(name);
  return text + "\n// ---- The kernel.\n";
}

}  // namespace kiln
