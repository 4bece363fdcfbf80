// From the command line to the client library's types, and the look-ups that several
// commands make. Free functions; one thread.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/cli/options.h"
#include "client/client.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/program/program.h"

namespace kiln::cli {

// `open_gpu`: begin to open it at once.
Result<std::unique_ptr<Client>> make_client(const Options& options, bool open_gpu = false);

// Target, mode, deadline, CUDA graphs, background.
Result<CompileOptions> compile_options(const Options& options);

// The public key that --signer names, else that of the coordinator of the key file; empty: neither is
// given, or the file has none.
Result<std::string> expected_signer(const Options& options);

// The sizes to tune at, as --hint gives them: "s0=1,32,512" for a symbol of the graph, or
// "x.0=1,32" for axis 0 of the input that the model calls x. One list for each symbol of the graph.
// kInvalidArgument: no such form, symbol, input or axis, or an axis whose size is fixed.
using Hints = std::vector<std::vector<int64_t>>;
Result<Hints> parse_hints(const std::vector<std::string>& texts, const ExportedProgram& program);

// The service's programs of one graph, by look-ups that start nothing: for `target` and for every
// target that the service has workers for now, in both modes. Errors of reaching the service.
Result<std::vector<Program>> served_programs(const Options& options, const Digest& graph,
                                             const Target& target);

}  // namespace kiln::cli
