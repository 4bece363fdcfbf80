#include "compiler_core/kernels/custom/custom.h"

#include <fmt/core.h>

namespace kiln {
namespace {

constexpr const char* kEntry = "kiln_custom";
constexpr int64_t kMostThreads = 1024;
constexpr int64_t kMostSharedBytes = 227 << 10;  // of a block, on any GPU there is
constexpr int64_t kMostBlocks = INT32_MAX;

struct LaunchSizes {
  int64_t items = 1, block = 1, blocks = 1, threads = 1, shared_bytes = 0;
};

class CustomSource {
 public:
  CustomSource(const Workload& workload, const CustomKernel& kernel, std::vector<int64_t> values)
      : graph_(workload.graph),
        call_(custom_call_of(workload)),
        kernel_(kernel),
        values_(std::move(values)) {}

  Result<Source> run(bool cuda) {
    TRY(sizes_, launch_sizes());
    Source source;
    source.recipe = argument_recipe(graph_);
    Phase phase{kEntry, sizes_.blocks};
    if (cuda) {
      phase.threads = static_cast<int>(sizes_.threads);
      phase.shared_bytes = static_cast<int>(sizes_.shared_bytes);
    }
    source.recipe.phases = {std::move(phase)};
    source.text = cuda ? cuda_text() : cpu_text();
    return source;
  }

 private:
  tl::unexpected<Error> bad(const std::string& what) const {
    return fail(Code::kInvalidArgument, fmt::format("custom call {}, its {} kernel: {}", call_.name,
                                                    kernel_.backend, what));
  }

  Result<LaunchSizes> launch_sizes() const {
    LaunchSizes sizes;
    const Node& result = graph_.node(graph_.outputs()[0]);
    sizes.items = kernel_.items > 0 ? kernel_.items : numel(result.shape).constant();
    TRY(sizes.block, evaluate_product(kernel_, values_, kernel_.block));
    TRY(sizes.threads, evaluate_product(kernel_, values_, kernel_.threads));
    TRY(sizes.shared_bytes, evaluate_product(kernel_, values_, kernel_.shared_bytes));
    if (sizes.block < 1) return bad("a block has no items");
    if (sizes.threads < 1 || sizes.threads > kMostThreads)
      return bad(fmt::format("{} threads a block, of 1 to {}", sizes.threads, kMostThreads));
    if (sizes.shared_bytes > kMostSharedBytes)
      return bad(fmt::format("{} bytes of shared memory, of at most {}", sizes.shared_bytes,
                             kMostSharedBytes));
    sizes.blocks = (sizes.items - 1) / sizes.block + 1;
    if (sizes.blocks > kMostBlocks) return bad("the grid has more than 2^31 blocks");
    return sizes;
  }

  void define_tensor(std::string& text, const std::string& name, NodeId id) const {
    const Shape& shape = graph_.node(id).shape;
    text += fmt::format("#define KILN_{}_NUMEL {}\n#define KILN_{}_RANK {}\n", name,
                        numel(shape).constant(), name, shape.size());
    for (size_t k = 0; k < shape.size(); ++k)
      text += fmt::format("#define KILN_{}_DIM{} {}\n", name, k, shape[k].constant());
  }

  std::string macros() const {
    std::string text =
        fmt::format("#define KILN_ITEMS {}\n#define KILN_BLOCK {}\n#define KILN_THREADS {}\n",
                    sizes_.items, sizes_.block, sizes_.threads);
    for (size_t i = 0; i < graph_.inputs().size(); ++i)
      define_tensor(text, fmt::format("IN{}", i), graph_.inputs()[i]);
    define_tensor(text, "OUT0", graph_.outputs()[0]);
    for (size_t i = 0; i < values_.size(); ++i)
      text += fmt::format("#define {} ({})\n", kernel_.decisions[i].name, values_[i]);
    return text;
  }

  // The author's text, with line markers so that compilers' messages name the call and its lines.
  std::string users_text() const {
    return fmt::format("{}#line 1 \"{}\"\n{}\n#line 1 \"kiln\"\n", macros(), call_.name,
                       kernel_.source);
  }

  std::string arguments() const {
    std::string text;
    for (size_t i = 0; i < graph_.inputs().size(); ++i) text += fmt::format("in{}, ", i);
    return text + "out0";
  }

  std::string cpu_text() const {
    const std::string body = fmt::format(
        "  const int64_t first = begin * KILN_BLOCK, last = end * KILN_BLOCK;\n"
        "  {}({}, first, last < KILN_ITEMS ? last : KILN_ITEMS);\n",
        kernel_.function, arguments());
    return users_cpu_text(graph_, kEntry, users_text(), body);
  }

  std::string cuda_text() const {
    return users_cuda_text(graph_, kEntry, users_text(), words_of(kernel_.source),
                           static_cast<int>(sizes_.threads),
                           fmt::format("  {}({});\n", kernel_.function, arguments()));
  }

  const Graph& graph_;
  const CustomCall& call_;
  const CustomKernel& kernel_;
  const std::vector<int64_t> values_;
  LaunchSizes sizes_;
};

}  // namespace

Result<Source> print_custom(const Workload& workload, const Schedule& schedule,
                            const Target& target) {
  TRY(const CustomKernel* kernel, custom_kernel(workload, target));
  TRY(std::vector<int64_t> values, custom_values(*kernel, schedule));
  return CustomSource(workload, *kernel, std::move(values)).run(target.backend == Backend::kCuda);
}

}  // namespace kiln
