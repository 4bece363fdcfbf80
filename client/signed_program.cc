#include "client/remote.h"

#include <fmt/core.h>

namespace kiln {
namespace {

// The coordinator may have completed a target without a device; the hard facts must be as asked
// for.
bool serves(const Target& got, const Target& wanted) {
  return got.backend == wanted.backend && got.isa == wanted.isa &&
         (wanted.toolkit.empty() || got.toolkit == wanted.toolkit);
}

}  // namespace

Status check_is_asked(const CompileRequest& asked, const Program& program, std::string_view where) {
  const Digest key = program_key(program.graph, program.target, program.mode);
  if (program.key == key && program.graph == asked.graph && program.mode == asked.mode &&
      serves(program.target, asked.target))
    return {};
  return fail(Code::kCorruption,
              fmt::format("{} gave another program ({}, signed) for graph {}, and it was not "
                          "loaded: ask again",
                          where, program.key.short_hex(), asked.graph.short_hex()));
}

Result<Program> checked_program(const CompileRequest& asked, const std::string& manifest,
                                const Signature& signature, std::string_view trusted) {
  const std::string what = "the program of graph " + asked.graph.short_hex();
  TRY_STATUS(verify_signature(signed_program(manifest), signature, trusted, what));
  TRY(Program program, program_from_json(manifest));
  TRY_STATUS(check_is_asked(asked, program, "the coordinator"));
  return program;
}

}  // namespace kiln
