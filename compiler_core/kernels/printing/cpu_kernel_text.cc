#include "compiler_core/kernels/printing/cpu_kernel_text.h"

#include <fmt/core.h>

#include <array>

#include "compiler_core/kernels/printing/device_text.h"
#include "compiler_core/kernels/printing/expression.h"

namespace kiln {

std::string entry_function(const std::string& entry, const Graph& graph, const std::string& body) {
  return fmt::format(
      "extern \"C\" void {}(\n"
      "    void* const* args, const int64_t*{}, int64_t begin, int64_t end,\n"
      "    [[maybe_unused]] void* workspace, [[maybe_unused]] void* scratch) {{\n{}{}{}}}\n",
      entry, graph.symbols().empty() ? "" : " dims", argument_pointers(graph), symbol_values(graph),
      body);
}

std::string symbol_values(const Graph& graph) {
  std::string text;
  for (size_t i = 0; i < graph.symbols().size(); ++i)
    text += fmt::format("  [[maybe_unused]] const int64_t s{0} = dims[{0}];\n", i);
  return text;
}

std::string VectorLoop::text(int indent) const {
  const auto passed = [&](int u) { return arguments ? arguments(u) : std::string(); };
  std::string text = fmt::format("const auto body = [&](int64_t {}, auto live{}) KILN_LAMBDA {{\n",
                                 variable, parameters);
  text = std::string(static_cast<size_t>(indent), ' ') + text + body;
  const auto line = [&](const std::string& statement) {
    text += std::string(static_cast<size_t>(indent), ' ') + statement + "\n";
  };
  line("};");
  if (!wide_body.empty()) {
    line(fmt::format("const auto wide = [&](int64_t {0}0) KILN_LAMBDA {{", variable));
    line("  const AllLanes live;");
    for (int u = 1; u < unroll; ++u)
      line(fmt::format("  const int64_t {0}{1} = {0}0 + {1} * LANES;", variable, u));
    text += wide_body;
    line("};");
  }
  line(fmt::format("int64_t {} = {};", variable, from));
  if (!wide_body.empty()) {
    line(fmt::format("for (; {0} + {1} * LANES <= {2}; {0} += {1} * LANES) wide({0});", variable,
                     unroll, to));
  } else if (unroll > 1) {
    line(fmt::format("for (; {0} + {1} * LANES <= {2}; {0} += {1} * LANES) {{", variable, unroll,
                     to));
    for (int u = 0; u < unroll; ++u)
      line(fmt::format("  body({} + {} * LANES, AllLanes{{}}{});", variable, u, passed(u)));
    line("}");
  }
  line(fmt::format("for (; {0} + LANES <= {1}; {0} += LANES) body({0}, AllLanes{{}}{2});", variable,
                   to, passed(0)));
  line(
      fmt::format("if ({0} < {1}) body({0}, SomeLanes{{{1} - {0}}}{2});", variable, to, passed(0)));
  return text;
}

std::string argument_pointers(const Graph& graph) {
  std::string text;
  int argument = 0;
  for (NodeId id : graph.inputs()) {
    text += fmt::format("  const {}* __restrict in{} = static_cast<const {}*>(args[{}]);\n",
                        memory_type(graph.node(id).dtype), argument,
                        memory_type(graph.node(id).dtype), argument);
    ++argument;
  }
  for (size_t i = 0; i < graph.outputs().size(); ++i, ++argument) {
    const std::string_view type = memory_type(graph.node(graph.outputs()[i]).dtype);
    text += fmt::format("  {}* __restrict out{} = static_cast<{}*>(args[{}]);\n", type, i, type,
                        argument);
  }
  return text;
}

std::string preamble(const Graph& graph, int lanes, std::initializer_list<std::string_view> extra) {
  std::string text = fmt::format("#define LANES {}\n", lanes);
  // In this order: each uses the ones before it.
  for (const char* name :
       {"vector.h", "memory.h", "half.h", "math_f32.h", "math_f64.h", "integer.h", "reduce.h"})
    text += device_text(name);
  if (has_f8(graph)) text += device_text("f8.h");
  if (has_e8m0(graph)) text += device_text("e8m0.h");
  for (const std::string_view name : extra) text += device_text(name);
  return text + "\n// ---- The kernel.\n";
}

}  // namespace kiln
