#include "worker/build/toolchain.h"

#include <variant>

namespace kiln {
namespace {

class HostTool final : public CompileTool {
 public:
  explicit HostTool(const HostCompiler& compiler) : compiler_(compiler) {}
  Result<Object> compile(const Source& source, const Target& target, int64_t timeout_ms) override {
    TRY(Artifact artifact, compiler_.compile(source, target, timeout_ms));
    return Object{std::move(artifact.binary), {}};
  }

 private:
  const HostCompiler compiler_;
};

// A process with NVRTC. One that crashes or hangs is replaced by the next compile.
class NvrtcProcess final : public CompileTool {
 public:
  NvrtcProcess(const Path& runner, const std::string& libnvrtc, const Target& device,
               std::shared_ptr<const Sandbox> sandbox)
      : device_(device),
        process_({runner,
                  0,
                  {},
                  arguments(libnvrtc),
                  {},
                  std::move(sandbox),
                  SandboxKind::kCompiler,
                  kNiceness}) {}

  void warm_up() override {
    constexpr int64_t kWarmUpTimeoutMs = 30'000;
    const Source trivial{"extern \"C\" __global__ void warm_up(float* x) { x[threadIdx.x] += 1; }",
                         {}};
    (void)compile(trivial, device_, kWarmUpTimeoutMs);  // whatever it is, a real compile says it
  }

  Result<Object> compile(const Source& source, const Target& target, int64_t timeout_ms) override {
    if (++compiles_ > kMaxCompiles) {
      process_.end();
      compiles_ = 1;
    }
    TRY(runner::Reply reply,
        process_.call(runner::CompileSource{target.to_string(), source.text}, timeout_ms));
    if (auto* object = std::get_if<runner::CompiledObject>(&reply))
      return Object{std::move(object->binary), object->resources};
    if (auto* failed = std::get_if<runner::Failed>(&reply)) {
      // A missing library says nothing about the source.
      if (failed->error.code == Code::kNotFound) failed->error.code = Code::kUnavailable;
      return fail(std::move(failed->error));
    }
    process_.end();
    return fail(Code::kUnavailable, "the compile process answered another question");
  }

  void interrupt() override { process_.interrupt(); }
  void close() override { process_.close(); }

 private:
  static constexpr int kMaxCompiles = 500;  // NVRTC's memory only grows
  // There are as many compilers as cores, and a GPU whose runner waits for a core does nothing.
  static constexpr int kNiceness = 10;
  static std::vector<std::string> arguments(const std::string& libnvrtc) {
    std::vector<std::string> words{"--role", "compile"};
    if (!libnvrtc.empty()) words.insert(words.end(), {"--libnvrtc", libnvrtc});
    return words;
  }
  const Target device_;
  RunnerProcess process_;
  int compiles_ = 0;  // of the process that runs now, or fewer
};

}  // namespace

Toolchain host_toolchain(const HostCompiler& compiler) {
  return {compiler.build(),
          [=](const Source& source, const Target& target) {
            return compiler.candidate_key(source, target);
          },
          [=] { return std::make_unique<HostTool>(compiler); }};
}

Toolchain nvrtc_toolchain(const Nvrtc& nvrtc, const Path& runner, const std::string& libnvrtc,
                          const Target& device, std::shared_ptr<const Sandbox> sandbox) {
  return {nvrtc.build(),
          [=](const Source& source, const Target& target) {
            return nvrtc.candidate_key(source, target);
          },
          [=, sandbox = std::move(sandbox)] {
            return std::make_unique<NvrtcProcess>(runner, libnvrtc, device, sandbox);
          }};
}

}  // namespace kiln
