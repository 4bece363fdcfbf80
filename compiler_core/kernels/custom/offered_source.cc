#include "compiler_core/kernels/custom/offered_source.h"

#include <fmt/core.h>

#include <algorithm>

#include "compiler_core/ir/custom_source.h"
#include "compiler_core/kernels/custom/custom.h"

namespace kiln {
namespace {

constexpr const char* kOfferedEntry = "kiln_offered";
constexpr int kMostOfferedThreads = 1024;
constexpr int64_t kMostOfferedShared = 227 << 10;  // of a block, on any GPU there is

bool is_word(const std::string& name) {
  return !name.empty() && (name[0] < '0' || name[0] > '9') &&
         std::ranges::all_of(name,
                             [](unsigned char c) { return std::isalnum(c) != 0 || c == '_'; });
}

Status check(const OfferedSource& offered) {
  const auto bad = [](const std::string& what) { return fail(Code::kInvalidArgument, what); };
  if (!is_word(offered.function)) return bad("the kernel's function is no word of C");
  if (offered.items < 0 || offered.block < 1) return bad("a block of the kernel has no items");
  if (offered.threads < 1 || offered.threads > kMostOfferedThreads)
    return bad(fmt::format("{} threads a block, of 1 to {}", offered.threads, kMostOfferedThreads));
  if (offered.shared_bytes < 0 || offered.shared_bytes > kMostOfferedShared)
    return bad(fmt::format("{} bytes of shared memory, of at most {}", offered.shared_bytes,
                           kMostOfferedShared));
  return {};
}

}  // namespace

Result<Source> print_offered(const Workload& workload, const OfferedSource& offered,
                             const Target& target) {
  const bool cuda = target.backend == Backend::kCuda;
  TRY_STATUS(check(offered));
  TRY_STATUS(verify_custom_source(offered.text, cuda ? "cuda" : "cpu"));
  const Graph& graph = workload.graph;
  const int64_t items =
      offered.items > 0 ? offered.items : numel(graph.node(graph.outputs()[0]).shape).constant();
  const int inputs = static_cast<int>(graph.inputs().size());
  std::string arguments;
  for (const int buffer : offered.arguments)
    arguments +=
        fmt::format("{}{}{}", arguments.empty() ? "" : ", ", buffer < inputs ? "in" : "out",
                    buffer < inputs ? buffer : buffer - inputs);
  const std::string text = fmt::format(
      "#define KILN_ITEMS {}\n#define KILN_BLOCK {}\n#define KILN_THREADS {}\n"
      "#line 1 \"{}\"\n{}\n#line 1 \"kiln\"\n",
      items, offered.block, offered.threads, offered.function, offered.text);
  Source source;
  source.recipe = argument_recipe(graph);
  Phase phase{kOfferedEntry, (items - 1) / offered.block + 1};
  if (cuda) {
    phase.threads = offered.threads;
    phase.shared_bytes = static_cast<int>(offered.shared_bytes);
    source.text =
        users_cuda_text(graph, kOfferedEntry, text, words_of(offered.text), offered.threads,
                        fmt::format("  {}({});\n", offered.function, arguments));
  } else {
    source.text = users_cpu_text(
        graph, kOfferedEntry, text,
        fmt::format("  const int64_t first = begin * KILN_BLOCK, last = end * KILN_BLOCK;\n"
                    "  {}({}, first, last < KILN_ITEMS ? last : KILN_ITEMS);\n",
                    offered.function, arguments));
  }
  source.recipe.phases = {std::move(phase)};
  return source;
}

}  // namespace kiln
