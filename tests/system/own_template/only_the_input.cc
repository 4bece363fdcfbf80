// A kernel template that lives in this one file: linked into Kiln's four programs, it is listed,
// tuned, verified, and served like those of compiler_core/kernels. It knows one thing that Kiln's
// own templates do not: x + 0 sin(x) is x for every finite x. Of its two schedules one is wrong.
#include <fmt/core.h>

#include "compiler_core/kernels/registry.h"

namespace kiln::testing {
namespace {

constexpr int kThreads = 256;
constexpr int64_t kBlock = 4096;  // elements a block on the CPU

class OnlyTheInput final : public KernelTemplate {
 public:
  OnlyTheInput() { add_kernel_template(*this); }

  std::string_view name() const override { return "test.only_the_input"; }
  int version() const override { return KILN_OWN_TEMPLATE_VERSION; }

  bool covers(const Workload& workload, const Target&) const override {
    const Graph& graph = workload.graph;
    if (workload.family != Family::kPointwise || graph.inputs().size() != 1) return false;
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Op op = graph.node(id).op;
      if (op != Op::kInput && op != Op::kSin && op != Op::kConstant && op != Op::kView &&
          op != Op::kMul && op != Op::kAdd)
        return false;
    }
    return true;
  }

  Result<std::vector<Schedule>> candidates(const Workload&, const Target&) const override {
    return std::vector<Schedule>{schedule(0), schedule(1)};
  }

  Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                const Target& target) const override {
    const int64_t items = numel(workload.graph.node(workload.graph.inputs()[0]).shape).constant();
    const std::string value = schedule.get("wrong", 0) == 0 ? "in[i]" : "in[i] + 1";
    Source source;
    source.recipe = argument_recipe(workload.graph);
    if (target.backend == Backend::kCuda) {
      Phase phase{"only_the_input", (items + kThreads - 1) / kThreads};
      phase.threads = kThreads;
      source.recipe.phases = {phase};
      source.text = fmt::format(
          "extern \"C\" __global__ void only_the_input(const float* in, float* out, void*) {{\n"
          "  const long long i = (long long)blockIdx.x * {} + threadIdx.x;\n"
          "  if (i < {}) out[i] = {};\n"
          "}}\n",
          kThreads, items, value);
      return source;
    }
    source.recipe.phases = {Phase{"only_the_input", (items + kBlock - 1) / kBlock}};
    source.text = fmt::format(
        "extern \"C\" void only_the_input(void* const* args, const long*, long begin, long end,\n"
        "                                 void*, void*) {{\n"
        "  const float* in = (const float*)args[0];\n"
        "  float* out = (float*)args[1];\n"
        "  const long last = end * {0} < {1} ? end * {0} : {1};\n"
        "  for (long i = begin * {0}; i < last; ++i) out[i] = {2};\n"
        "}}\n",
        kBlock, items, value);
    return source;
  }

 private:
  static Schedule schedule(int wrong) { return {"test.only_the_input", {{"wrong", wrong}}}; }
};

const OnlyTheInput registered;

}  // namespace
}  // namespace kiln::testing
