#include "tests/bench/cached_compiler.h"

namespace kiln::bench {

Result<Artifact> CachedCompiler::compile(const Source& source, const Target& target,
                                         int64_t timeout_ms) const {
  if (directory_.empty()) return compiler_.compile(source, target, timeout_ms);
  const std::filesystem::path path = directory_ / candidate_key(source, target).hex();
  if (auto kept = read_file(path)) {
    const Digest digest = Digest::of(*kept);
    return Artifact{source.recipe, std::move(*kept), digest};
  }
  TRY(Artifact made, compiler_.compile(source, target, timeout_ms));
  TRY_STATUS(make_directories(directory_));
  TRY_STATUS(publish_file(path, made.binary));
  return made;
}

}  // namespace kiln::bench
