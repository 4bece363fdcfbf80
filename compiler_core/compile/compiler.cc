#include "compiler_core/compile/compiler.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "compiler_core/compile/child_process.h"

namespace kiln {
namespace {

// Flags the sources are written for, beside -march, -shared and -fPIC. libm's and memcpy's symbols
// are the loading process's. Strict IEEE apart from contraction into fused multiply-adds, errno and
// floating-point traps.
std::span<const std::string_view> source_flags() {
  // Vectors are written out. The loop vectoriser only made a product's scalar tails and copies eight
  // times as long, for 40 % of all compile time; GCC 12's superword vectoriser miscompiles selections
  // between lanes (x / x gave -1).
  static constexpr std::array<std::string_view, 11> kFlags = {"-std=gnu++17",
                                                              "-O3",
                                                              "-fno-tree-vectorize",
                                                              "-fno-tree-slp-vectorize",
                                                              "-ffp-contract=fast",
                                                              "-fno-math-errno",
                                                              "-fno-trapping-math",
                                                              "-fwrapv",
                                                              "-fno-strict-aliasing",
                                                              "-fno-exceptions",
                                                              "-Wno-psabi"};
  return kFlags;
}

constexpr int64_t kVersionTimeoutMs = 10'000;
// Names inside the compile's own directory: they reach the binary, so they never vary.
constexpr const char* kSourceName = "kernel.cc";
constexpr const char* kObjectName = "kernel.so";
constexpr int64_t kMostObjectBytes = 60 << 20;  // about what a worker's report can carry

// The first line of --version, or the error of starting it.
Result<std::string> ask_build(const std::string& path) {
  TRY(const ChildDirectory dir, ChildDirectory::create("kiln-cxx"));
  TRY(const ChildOutcome outcome, run_child({path, "--version"}, dir.path(), kVersionTimeoutMs));
  if (outcome.exit_status != 0)
    return fail(Code::kNotFound, fmt::format("{} is not a usable compiler", path));
  const std::string& output = outcome.output;
  return std::string(output.begin(), std::find(output.begin(), output.end(), '\n'));
}

// A path is made absolute: compiles run in another directory. A bare name stays one, for PATH.
std::string absolute_command(std::string_view command) {
  if (command.find('/') == std::string_view::npos) return std::string(command);
  return std::filesystem::absolute(Path(command)).string();
}

// The driver answers 1 also when the machine failed one of its passes. That says nothing about the
// source, and must not be remembered against it.
bool machine_failed(std::string_view output) {
  for (const std::string_view words :
       {"No space left on device", "Disk quota exceeded", "Input/output error",
        "Killed signal terminated program", "Terminated signal terminated program",
        "Resource temporarily unavailable", "Too many open files", "Read-only file system"})
    if (output.find(words) != std::string_view::npos) return true;
  return false;
}

// The machine's failure too, unless the compiler has a bound of its own: then it is the source that
// wants more.
bool lacks_memory(std::string_view output) {
  for (const std::string_view words :
       {"Cannot allocate memory", "out of memory", "virtual memory exhausted"})
    if (output.find(words) != std::string_view::npos) return true;
  return false;
}

// Reads the compiler's object: a file of at most kMostObjectBytes, and no link to another.
Result<std::string> read_object(const Path& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_CLOEXEC | O_NONBLOCK);
  struct stat status {};
  const bool is_file = fd >= 0 && ::fstat(fd, &status) == 0 && S_ISREG(status.st_mode);
  if (fd >= 0) ::close(fd);
  if (!is_file) return fail(Code::kUnavailable, "the compiler left no object");
  if (status.st_size > kMostObjectBytes)
    return fail(Code::kInvalidArgument,
                fmt::format("the compiler makes an object of {} bytes, over {}", status.st_size,
                            kMostObjectBytes));
  return read_file(path);
}

Status check_target(const Target& target) {
  if (target.backend == Backend::kCpu && target.isa.starts_with("x86-64")) return {};
  return fail(Code::kUnsupported,
              fmt::format("the host compiler makes no code for {}", target.to_string()));
}

}  // namespace

std::vector<std::string> compile_flags(const Target& target) {
  std::vector<std::string> flags = {"-march=" + target.isa};
  // GCC halves its vectors for v4 otherwise.
  if (target.isa == "x86-64-v4") flags.emplace_back("-mprefer-vector-width=512");
  flags.insert(flags.end(), source_flags().begin(), source_flags().end());
  // No C++ runtime: what builtins call is in libm and libgcc. Equal source gives equal bytes.
  for (const char* flag : {"-fPIC", "-shared", "-fno-stack-protector", "-nostdlib", "-lgcc",
                           "-fno-ident", "-Wl,--build-id=none", "-s"})
    flags.emplace_back(flag);
  return flags;
}

Result<HostCompiler> HostCompiler::find(std::string_view preferred) {
  if (!preferred.empty()) {
    std::string path = absolute_command(preferred);
    TRY(std::string build, ask_build(path));
    return HostCompiler(std::move(path), std::move(build));
  }
  for (const char* name : {"g++", "c++", "clang++"})
    if (Result<std::string> build = ask_build(name))
      return HostCompiler(name, *std::move(build));
    else if (build.error().code != Code::kNotFound)
      return fail(std::move(build).error());
  return fail(Code::kNotFound, "no C++ compiler on PATH: install g++, or name one");
}

HostCompiler HostCompiler::confined(StartChild start) const {
  HostCompiler other = *this;
  other.start_ = std::move(start);
  return other;
}

Digest HostCompiler::candidate_key(const Source& source, const Target& target) const {
  const std::vector<std::string> flags = compile_flags(target);
  Hasher hasher("kiln.candidate.v1");
  hasher.add(source.text).begin_list(flags.size());
  for (const std::string& flag : flags) hasher.add(flag);
  return hasher.add(build_).finish();
}

Result<Artifact> HostCompiler::compile(const Source& source, const Target& target,
                                       int64_t timeout_ms) const {
  TRY_STATUS(check_target(target));
  TRY(const ChildDirectory dir, ChildDirectory::create("kiln-compile"));
  TRY_STATUS(write_file(dir.path() / kSourceName, source.text));
  std::vector<std::string> command = {path_, kSourceName, "-o", kObjectName};
  for (std::string& flag : compile_flags(target)) command.push_back(std::move(flag));
  auto outcome = run_child(command, dir.path(), timeout_ms, start_);
  if (!outcome && outcome.error().code == Code::kNotFound)
    outcome.error().code = Code::kUnavailable;
  if (!outcome) return fail(std::move(outcome).error());
  // Killed from outside (memory, an operator): says nothing about the source.
  if (outcome->exit_status > 128)
    return fail(Code::kUnavailable,
                fmt::format("the compiler died of signal {}", outcome->exit_status - 128));
  if (outcome->exit_status != 0 && lacks_memory(outcome->output) && start_)
    return fail(Code::kInvalidArgument, "the compiler needs more memory than a kernel's may have");
  if (outcome->exit_status != 0 &&
      (machine_failed(outcome->output) || lacks_memory(outcome->output)))
    return fail(Code::kUnavailable,
                fmt::format("the machine fails the compiler:\n{}", outcome->output));
  if (outcome->exit_status != 0)
    return fail(Code::kInvalidArgument,
                fmt::format("the compiler refuses a kernel:\n{}", outcome->output));
  Artifact artifact;
  TRY(artifact.binary, read_object(dir.path() / kObjectName));
  artifact.recipe = source.recipe;
  artifact.digest = Digest::of(artifact.binary);
  return artifact;
}

}  // namespace kiln
