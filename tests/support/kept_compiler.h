// KeptCompiler: a compiler whose objects are kept for this machine's next test run (kept_objects.h). Header
// only. Immutable and thread-safe, as KernelCompiler says.
#pragma once

#include "compiler_core/compile/compiler.h"
#include "tests/support/kept_objects.h"

namespace kiln::testing {

class KeptCompiler final : public KernelCompiler {
 public:
  explicit KeptCompiler(HostCompiler compiler) : compiler_(std::move(compiler)) {}

  const std::string& build() const override { return compiler_.build(); }
  Digest candidate_key(const Source& source, const Target& target) const override {
    return compiler_.candidate_key(source, target);
  }
  Result<Artifact> compile(const Source& source, const Target& target,
                           int64_t timeout_ms) const override {
    Artifact artifact;
    const auto compile = [&]() -> Result<std::string> {
      TRY(Artifact made, compiler_.compile(source, target, timeout_ms));
      return std::move(made.binary);
    };
    TRY(artifact.binary, kept_object(candidate_key(source, target), compile));
    artifact.recipe = source.recipe;
    artifact.digest = Digest::of(artifact.binary);
    return artifact;
  }

 private:
  HostCompiler compiler_;
};

}  // namespace kiln::testing
