// kiln_program: a compiled program with its description in the types of the C interface (kiln.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/kiln.h"
#include "client/lock_file.h"
#include "client/tiered_program.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln {

// An input or output, with what its kiln_tensor points at.
struct Description {
  std::string name, shape;
  std::vector<int64_t> sizes, strides;
  kiln_tensor tensor{};
};

}  // namespace kiln

struct kiln_client {
  std::shared_ptr<kiln::Client> client;  // also of programs that wait for their successors
};

struct kiln_program {
  std::shared_ptr<const kiln::CompiledProgram> program;
  std::shared_ptr<const kiln::TieredProgram> tiered;  // null: it has no successor
  std::vector<kiln::Description> inputs, outputs;
  std::vector<std::vector<int64_t>> flat_sizes;  // by input; empty: it is given as it is
  std::vector<kiln_symbol> symbols;
  std::string outcome, target, manifest, signature;
};

namespace kiln {

// The options of a call, as the caller's C program gave them.
Result<CompileOptions> compile_options(const kiln_compile_options& given);

// `compiled`, which was compiled from `exported`, with its description.
std::unique_ptr<kiln_program> described(std::shared_ptr<const CompiledProgram> compiled,
                                        const ExportedProgram& exported);
// `compiled`, which was loaded without its model: `call` says how that is called; without inputs, they
// are the program's own. kInvalidArgument: it does not fit the program.
Result<std::unique_ptr<kiln_program>> described(std::shared_ptr<const CompiledProgram> compiled,
                                                const LockedCall& call);
// `tuned`, which is the same program as `first`, with the same description.
std::unique_ptr<kiln_program> described_as(std::shared_ptr<const CompiledProgram> tuned,
                                           const kiln_program& first);

}  // namespace kiln
