#include "worker/local_device.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler_core/base/text.h"
#include "compiler_core/runtime/cuda_device.h"
#include "worker/build/compile_pool.h"
#include "worker/build/toolchain.h"
#include "worker/readable_files.h"

namespace kiln {
namespace {

constexpr int64_t kDescribeQuietMs = 60'000;

// "cuda": 0, "cuda:3": 3; nothing for what is no GPU.
std::optional<int> gpu_number(std::string_view device) {
  if (device == "cuda") return 0;
  if (!device.starts_with("cuda:")) return std::nullopt;
  int number = 0;
  return read_count(device.substr(5), number) ? std::optional(number) : std::nullopt;
}

using SandboxPtr = std::shared_ptr<const Sandbox>;

Result<SandboxPtr> open_sandbox(const DeviceOptions& options, bool gpu,
                                const std::vector<std::vector<Path>>& needed) {
  Sandbox::Options wanted{options.sandbox, options.readable, gpu};
  if (!options.search_path.empty()) wanted.search_path = options.search_path;
  const auto add = [&](const std::vector<Path>& paths) {
    wanted.readable.insert(wanted.readable.end(), paths.begin(), paths.end());
  };
  add(library_folders(options.library_path));
  for (const std::vector<Path>& paths : needed) add(paths);
  return Sandbox::open(std::move(wanted), {options.runner.string(), "--help"});
}

// `sandbox` with the pieces in which `works` does. What fails without any fails for reasons of its
// own.
Result<SandboxPtr> fitted(SandboxPtr sandbox, Sandbox::Mode mode, std::string_view what,
                          const std::function<Status(const SandboxPtr&)>& works) {
  if (sandbox == nullptr) return sandbox;
  // One piece that `what` does not bear costs no other.
  const SandboxPieces fewer[] = {{false, true, true},  {true, false, true},  {true, true, false},
                                 {false, false, true}, {false, true, false}, {true, false, false},
                                 {false, false, false}};
  const SandboxPtr whole = sandbox;
  Status worked = works(sandbox);
  if (!worked) TRY_STATUS(works(nullptr));
  for (const SandboxPieces& pieces : fewer) {
    if (worked) return sandbox;
    if (mode == Sandbox::Mode::kRequire) break;
    sandbox = whole->reduced(pieces, fmt::format("{}: {}", what, worked.error().message));
    worked = works(sandbox);
  }
  if (!worked) return fail(worked.error().within(what));
  return sandbox;
}

HostCompiler confined(const HostCompiler& compiler, const SandboxPtr& sandbox) {
  return compiler.confined([sandbox](const std::vector<std::string>& words,
                                     const std::vector<std::string>& environment,
                                     const Path& directory, int output) {
    return sandbox->spawn({SandboxKind::kCompiler, words, environment, directory, output});
  });
}

// Compiles nothing at all. A compiler too slow to say is taken for one that works.
Status compiles(const HostCompiler& compiler, const Target& target) {
  constexpr int64_t kPatienceMs = 5'000;
  const auto made = compiler.compile({"extern \"C\" void nothing() {}\n", {}}, target, kPatienceMs);
  if (made || made.error().code == Code::kDeadlineExceeded) return {};
  return fail(made.error());
}

Result<LocalDevice> open_cpu(const DeviceOptions& options) {
  TRY(HostCompiler compiler, HostCompiler::find(options.compiler));
  const std::vector<Path> compiler_files =
      files_of_program(compiler.command(), options.search_path);
  TRY(SandboxPtr sandbox,
      open_sandbox(options, false, {compiler_files, files_of_program(options.runner.string())}));
  const Target target = host_cpu_target();
  if (!compiler_files.empty() && !compiler_files.front().string().starts_with("/usr/bin/")) {
    TRY(sandbox, fitted(sandbox, options.sandbox, compiler.command(), [&](const SandboxPtr& in) {
          return compiles(in == nullptr ? compiler : confined(compiler, in), target);
        }));
  }
  if (sandbox != nullptr) compiler = confined(compiler, sandbox);
  LocalDevice device;
  device.sandbox = sandbox == nullptr ? "off" : sandbox->describe();
  device.target = host_cpu_target();
  if (options.threads > 0) device.target.units = options.threads;
  device.name = "cpu";
  device.toolchain = host_toolchain(compiler);
  device.runner = {options.runner, options.threads, {}};
  device.runner.sandbox = sandbox;
  return device;
}

Result<runner::DevicePrepared> describe(RunnerProcess& runner) {
  TRY(runner::Reply reply, runner.call(runner::PrepareDevice{}, kDescribeQuietMs));
  if (auto* prepared = std::get_if<runner::DevicePrepared>(&reply)) return std::move(*prepared);
  if (const auto* failed = std::get_if<runner::Failed>(&reply)) return fail(failed->error);
  return fail(Code::kUnavailable, "the runner answered another question");
}

Result<LocalDevice> open_gpu(int number, const DeviceOptions& options) {
  LocalDevice device;
  device.runner = {options.runner, 0, {}, {"--device", fmt::format("cuda:{}", number)}};
  if (!options.libcuda.empty())
    device.runner.arguments.insert(device.runner.arguments.end(), {"--libcuda", options.libcuda});
  if (!options.libcublaslt.empty())
    device.runner.arguments.insert(device.runner.arguments.end(),
                                   {"--libcublaslt", options.libcublaslt});
  device.runner.kind = SandboxKind::kGpuRunner;
  TRY(const Nvrtc nvrtc, Nvrtc::find(options.libnvrtc));
  TRY(SandboxPtr sandbox, open_sandbox(options, true,
                                       {files_of_program(options.runner.string()),
                                        folder_of_library(options.libcuda),
                                        folder_of_library(options.libnvrtc),
                                        folder_of_library(options.libcublaslt),
                                        {"/opt/conda/lib", "/opt/venv/lib"}}));
  const SandboxPtr of_compilers = sandbox;  // they need no driver
  runner::DevicePrepared prepared;
  const auto opens = [&](const SandboxPtr& in) -> Status {
    device.runner.sandbox = in;
    RunnerProcess runner(device.runner);
    TRY(prepared, describe(runner));
    return {};
  };
  if (sandbox == nullptr) TRY_STATUS(opens(nullptr));
  TRY(sandbox, fitted(sandbox, options.sandbox, "the GPU's driver", opens));
  device.sandbox = sandbox == nullptr ? "off" : sandbox->describe();
  const CudaFacts& facts = prepared.facts;
  device.libraries = std::move(prepared.libraries);
  device.target = facts.target();
  Target made = device.target;
  made.toolkit = nvrtc.toolkit();
  if (!device.target.can_run(made))
    return fail(
        Code::kUnsupported,
        fmt::format("{} makes code that the driver of {} ({}) is too old for; name an NVRTC "
                    "of its age with --libnvrtc, or install a newer driver",
                    nvrtc.build(), facts.name, device.target.toolkit));
  device.name = "cuda-" + facts.bus_id;
  device.toolchain =
      nvrtc_toolchain(nvrtc, options.runner, options.libnvrtc, device.target, of_compilers);
  device.compiling_disturbs = false;
  return device;
}

}  // namespace

Result<LocalDevice> open_device(std::string_view device, const DeviceOptions& options) {
  if (device == "cpu") return open_cpu(options);
  if (const auto number = gpu_number(device)) return open_gpu(*number, options);
  return fail(Code::kInvalidArgument,
              fmt::format("'{}' is not a device; write cpu, cuda or cuda:0", device));
}

std::string list_of(const std::vector<Target>& targets) {
  std::vector<std::string> names;
  for (const Target& target : targets) names.push_back(target.to_string());
  return fmt::format("{}", fmt::join(names, ", "));
}

namespace {

// Those of `known` that `wanted` names, or all.
Result<std::vector<Target>> chosen(const std::vector<Target>& known, std::string_view wanted) {
  if (wanted.empty()) return known;
  std::vector<Target> targets;
  for (size_t at = 0; at <= wanted.size();) {
    const size_t end = std::min(wanted.find(',', at), wanted.size());
    const std::string_view name = wanted.substr(at, end - at);
    at = end + 1;
    const auto found = std::ranges::find_if(
        known, [&](const Target& target) { return target.to_string() == name; });
    if (found == known.end())
      return fail(Code::kUnsupported,
                  fmt::format("--target {}: this machine's compiler makes no code "
                              "for it, but for {}",
                              name, list_of(known)));
    targets.push_back(*found);
  }
  return targets;
}

Result<Builder> open_gpu_builder(const std::string& wanted, const DeviceOptions& options) {
  TRY(const Nvrtc nvrtc, Nvrtc::find(options.libnvrtc));
  Builder builder;
  TRY(builder.targets, chosen(nvrtc.targets(), wanted));
  if (builder.targets.empty())
    return fail(Code::kUnsupported, nvrtc.build() + " does not say what it makes code for");
  TRY(const SandboxPtr sandbox, open_sandbox(options, false,
                                             {files_of_program(options.runner.string()),
                                              folder_of_library(options.libnvrtc),
                                              {"/opt/conda/lib", "/opt/venv/lib"}}));
  builder.sandbox = sandbox == nullptr ? "off" : sandbox->describe();
  builder.runner.executable = options.runner;
  builder.runner.sandbox = sandbox;
  builder.toolchain =
      nvrtc_toolchain(nvrtc, options.runner, options.libnvrtc, builder.targets.front(), sandbox);
  return builder;
}

}  // namespace

Result<Builder> open_builder(std::string_view device, const std::string& targets,
                             const DeviceOptions& options) {
  if (device == "cuda") return open_gpu_builder(targets, options);
  if (device != "cpu")
    return fail(Code::kInvalidArgument,
                fmt::format("a builder has no device: --device cpu or cuda, not '{}'", device));
  TRY(LocalDevice cpu, open_cpu(options));
  Builder builder;
  TRY(builder.targets, chosen({Target{Backend::kCpu, cpu.target.isa, "", 0, ""}}, targets));
  builder.toolchain = std::move(cpu.toolchain);
  builder.runner = std::move(cpu.runner);
  builder.sandbox = std::move(cpu.sandbox);
  return builder;
}

RunnerProcess::Options prepared_runner(const LocalDevice& device, CompilePool& compilers) {
  RunnerProcess::Options options = device.runner;
  if (device.target.backend != Backend::kCuda) return options;
  const std::shared_future<Compiled> utility =
      compilers.compile(utility_kernels_source(), device.target).share();
  options.prepare = [utility]() -> Result<runner::Request> {
    const auto& artifact = utility.get().artifact;
    if (!artifact) return fail(artifact.error().within("the runner's own kernels"));
    return runner::PrepareDevice{artifact->binary, artifact->digest};
  };
  return options;
}

std::vector<std::string> list_gpus(const std::string& libcuda) {
  std::vector<std::string> lines;
  for (int number = 0;; ++number) {
    const auto device = CudaDevice::open(number, libcuda);
    if (!device) return lines;
    const CudaFacts& facts = (*device)->facts();
    lines.push_back(
        fmt::format("cuda:{} {} {} {}", number, facts.target().isa, facts.bus_id, facts.name));
  }
}

}  // namespace kiln
