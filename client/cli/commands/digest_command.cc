#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"

namespace kiln::cli {
namespace {

Result<Digest> digest_file(const std::string& file) {
  TRY(const ExportedProgram program, read_graph_file(file));
  TRY(const NormalForm form, normalise(program.graph));
  return form.digest;
}

}  // namespace

int digest_command(const Options& options) {
  int code = kDone;
  for (const std::string& file : options.files) {
    const auto digest = digest_file(file);
    if (!digest) {
      const int one = report_failure(options, file, digest.error());
      if (code == kDone) code = one;
      continue;
    }
    if (options.json) {
      const nlohmann::ordered_json object = {{"file", file}, {"graph_digest", digest->hex()}};
      std::printf("%s\n", object.dump().c_str());
    } else {
      std::printf("%s  %s\n", digest->hex().c_str(), file.c_str());
    }
  }
  return code;
}

}  // namespace kiln::cli
