#include "client/kernel_offer.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <memory>

#include "compiler_core/compile/compiler.h"
#include "compiler_core/compile/nvrtc_compiler.h"
#include "compiler_core/kernels/custom/offered_source.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/plan.h"

namespace kiln {
namespace {

constexpr int64_t kCompileTimeoutMs = 60'000;
constexpr int kMostNullPointers = 8;

tl::unexpected<Error> bad(const std::string& what) {
  return fail(Code::kInvalidArgument, what);
}

// The one kernel of a graph, and what its arguments are, numbered as KernelOffer::arguments.
struct OneKernel {
  Workload workload;
  std::vector<int> arguments;
};

std::string families_of(const Plan& plan) {
  std::string listed;
  for (const Launch& launch : plan.launches)
    listed += fmt::format("{}{}", listed.empty() ? "" : ", ",
                          to_string(plan.kernels[static_cast<size_t>(launch.kernel)].family));
  return listed;
}

Result<OneKernel> one_kernel_of(const Graph& graph, const Target& target) {
  TRY(const NormalForm form, normalise(graph));
  TRY(Plan plan, kiln::plan(form.graph, partition_rules(target)));
  if (plan.launches.empty())
    return bad("the function computes nothing: there is no kernel to replace");
  if (plan.launches.size() > 1)
    return bad(
        fmt::format("the function is {} kernels ({}), and a candidate is for one: offer one for "
                    "each part, as a function of its own",
                    plan.launches.size(), families_of(plan)));
  if (!plan.symbols.empty())
    return fail(Code::kUnsupported,
                "sizes of the function depend on the call: offer a kernel for each size");
  OneKernel one{std::move(plan.kernels[0]), {}};
  for (const int at : plan.launches[0].args) {
    const Buffer& buffer = plan.buffers[static_cast<size_t>(at)];
    one.arguments.push_back(buffer.kind == Buffer::Kind::kInput
                                ? form.input_order[static_cast<size_t>(buffer.index)]
                                : -1 - buffer.index);
  }
  return one;
}

std::string name_of(int argument) {
  return argument >= 0 ? fmt::format("input {}", argument)
                       : fmt::format("output {}", -1 - argument);
}

// Where each of `given` is among the kernel's buffers: each of them once.
Result<std::vector<int>> places_of(const std::vector<int>& given, const OneKernel& one) {
  std::vector<int> places;
  for (const int argument : given) {
    const auto found = std::ranges::find(one.arguments, argument);
    if (found == one.arguments.end())
      return bad(
          fmt::format("the kernel that the function becomes does not have its {}: leave it "
                      "out",
                      name_of(argument)));
    const auto place = static_cast<int>(found - one.arguments.begin());
    if (std::ranges::find(places, place) != places.end())
      return bad(name_of(argument) + " is an argument twice");
    places.push_back(place);
  }
  for (const int argument : one.arguments)
    if (std::ranges::find(given, argument) == given.end())
      return bad("the kernel is not given " + name_of(argument));
  return places;
}

Result<std::unique_ptr<const KernelCompiler>> compiler_for(const Target& target,
                                                           const OfferCompilers& compilers) {
  if (target.backend == Backend::kCpu) {
    TRY(HostCompiler host, HostCompiler::find(compilers.host));
    return std::make_unique<const HostCompiler>(std::move(host));
  }
  TRY(Nvrtc nvrtc, Nvrtc::find(compilers.libnvrtc));
  return std::make_unique<const NvrtcCompiler>(std::move(nvrtc));
}

Result<Artifact> made_of(const KernelText& text, const Workload& workload, std::vector<int> places,
                         const Target& target, const OfferCompilers& compilers) {
  const OfferedSource offered{text.text,  text.function, std::move(places), text.items,
                              text.block, text.threads,  text.shared_bytes};
  TRY(const Source source, print_offered(workload, offered, target));
  auto compiler = compiler_for(target, compilers);
  if (!compiler) return fail(Code::kUnavailable, compiler.error().message);
  return (*compiler)->compile(source, target, kCompileTimeoutMs);
}

Result<Artifact> made_of(const KernelBinary& binary, const Workload& workload,
                         const std::vector<int>& places, const Target& target) {
  if (target.backend != Backend::kCuda)
    return fail(Code::kUnsupported, "a binary is offered for a GPU; for a CPU offer its source");
  if (binary.blocks < 1 || binary.blocks > std::numeric_limits<int32_t>::max() ||
      binary.threads < 1 || binary.threads > 1024 || binary.cluster < 1 ||
      binary.blocks % binary.cluster != 0 || binary.shared_bytes < 0 ||
      binary.shared_bytes > std::numeric_limits<int32_t>::max() || binary.null_pointers < 0 ||
      binary.null_pointers > kMostNullPointers)
    return bad(
        fmt::format("no GPU launches {} blocks of {} threads, {} a cluster, with {} bytes of "
                    "shared memory",
                    binary.blocks, binary.threads, binary.cluster, binary.shared_bytes));
  Artifact artifact;
  artifact.recipe = argument_recipe(workload.graph);
  Phase phase{binary.entry,
              binary.blocks,
              binary.threads,
              binary.cluster,
              static_cast<int>(binary.shared_bytes),
              binary.dependent_launch ? DependentLaunch::kInTurn : DependentLaunch::kNo};
  for (const int place : places) phase.arguments.push_back({KernelArgument::Kind::kBuffer, place});
  // A workspace without bytes is a null pointer.
  for (int i = 0; i < binary.null_pointers; ++i)
    phase.arguments.push_back({KernelArgument::Kind::kWorkspace});
  artifact.recipe.phases = {std::move(phase)};
  artifact.binary = binary.bytes;
  return artifact;
}

}  // namespace

Result<OfferedKernel> make_offer(const Graph& graph, const KernelOffer& offer,
                                 const OfferCompilers& compilers) {
  OfferedKernel offered{offer.name, {}, offer.target, {}, {}};
  if (offered.target.isa.empty() && offered.target.backend == Backend::kCpu)
    offered.target = host_cpu_target();
  if (offered.target.isa.empty()) return bad("name the GPU to offer for in full: cuda:sm_90a");
  TRY(const OneKernel one, one_kernel_of(graph, offered.target));
  TRY(std::vector<int> places, places_of(offer.arguments, one));
  offered.workload = one.workload.digest;
  const auto* text = std::get_if<KernelText>(&offer.kernel);
  auto made =
      text != nullptr
          ? made_of(*text, one.workload, std::move(places), offered.target, compilers)
          : made_of(std::get<KernelBinary>(offer.kernel), one.workload, places, offered.target);
  if (!made) return fail(std::move(made).error());
  offered.recipe = std::move(made->recipe);
  offered.binary = std::move(made->binary);
  // The coordinator reads it the same way: it refuses nothing that passes here.
  TRY_STATUS(offered_from_text(offered_to_text(offered)).map([](const OfferedKernel&) {}));
  return offered;
}

}  // namespace kiln
