// kiln_program: a compiled program with its description in the types of the C interface (kiln.h).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "client/kiln.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln {

// An input or output, with what its kiln_tensor points at.
struct Description {
  std::string name, shape;
  std::vector<int64_t> sizes, strides;
  kiln_tensor tensor{};
};

}  // namespace kiln

struct kiln_program {
  std::unique_ptr<kiln::CompiledProgram> program;
  std::vector<kiln::Description> inputs, outputs;
  std::vector<std::vector<int64_t>> flat_sizes;  // by input; empty: it is given as it is
  std::vector<kiln_symbol> symbols;
  std::string outcome, target, manifest, signature;
};

namespace kiln {

// `compiled`, which was compiled from `exported`, with its description.
std::unique_ptr<kiln_program> described(std::unique_ptr<CompiledProgram> compiled,
                                        const ExportedProgram& exported);

}  // namespace kiln
