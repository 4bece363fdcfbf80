#include "client/cli/export_program.h"

#include <nlohmann/json.hpp>

namespace kiln::cli {

Status export_program(const CompiledProgram& program, const Path& directory) {
  TRY_STATUS(make_directories(directory));
  const bool cuda = program.program().target.backend == Backend::kCuda;
  for (const Artifact& artifact : program.artifacts())
    TRY_STATUS(publish_file(directory / (artifact.digest.hex() + (cuda ? ".cubin" : ".so")),
                            artifact.binary));
  const nlohmann::json binding = {{"input_order", program.input_order()}};
  TRY_STATUS(publish_file(directory / "binding.json", binding.dump() + "\n"));
  // Of what was here before, a signature would be wrong.
  const Path signature_file = directory / "manifest.sig";
  std::error_code ignored;
  std::filesystem::remove(signature_file, ignored);
  if (const std::string signature = program.signature(); !signature.empty())
    TRY_STATUS(publish_file(signature_file, signature + "\n"));
  return publish_file(directory / "manifest.json", program.manifest());
}

}  // namespace kiln::cli
