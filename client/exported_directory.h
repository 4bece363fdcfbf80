// The directory that `kiln compile FILE --out DIR` writes, for a custom loader or for a machine
// without a service:
//
//   manifest.json           the program, as program/program.h prints it; it names every binary by
//                           digest
//   manifest.sig            "ed25519 SIGNER SIGNATURE" over it, in hex (signed_program() in
//                           base/signature.h); absent when it was compiled without a coordinator
//   <digest>.so, .cubin     the binaries
//   binding.json            {"input_order": the caller's input for each of the manifest's, ...}
//   binding.sig             the coordinator's signature of that (exported_binding.h)
//
// Free functions; thread-safe.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "client/client.h"
#include "client/local_tier.h"

namespace kiln {

// Makes the directory, without binding.sig; the manifest is written last. Errors of the disk.
Status write_exported(const CompiledProgram& program, std::string_view binding,
                      const Path& directory);

// Nothing of it is loaded before it is whole: signed by `trusted`, each binary of the digest that
// the manifest says; which build wrote it does not matter. Kiln makes its own binding from the graph;
// a signature of the one that lies there must be good all the same. kNotFound: no such directory;
// kInvalidArgument: nobody is trusted (`trusted` is empty); kPermissionDenied: unsigned, or signed by somebody else;
// kCorruption: altered, or a binary is missing. Each names what it is about.
Result<ProgramFiles> read_exported(const Path& directory, std::string_view trusted);

// What a directory has, and how the model that it was compiled from numbers its inputs.
struct BoundFiles {
  std::shared_ptr<const ProgramFiles> files;
  std::vector<int> input_order{};  // as CompiledProgram has it
  size_t inputs = 0;               // of the model, as far as the program reads them
};
// For a caller that has no graph: as read_exported(), with the directory's own binding, which has to be signed too.
// No `trusted`: the caller vouches for the directory, and no signature is looked at. Also
// kCorruption: the binding is none of the program.
Result<BoundFiles> read_bound(const Path& directory, std::optional<std::string_view> trusted);

// kUnsupported, unless a machine of target `here` can run the program that was found in `place`.
Status check_runs_here(const Program& program, const Target& here, const Path& place);

// As read_exported(), for a request: of this graph, for what `wanted` can run. `place` may be a bundle too
// (bundle.h), of which `mode` is taken before the other. Also kInvalidArgument: of another graph;
// kUnsupported: of another target.
Result<std::shared_ptr<const ProgramFiles>> read_exported_for(const Path& place,
                                                              std::string_view trusted,
                                                              const Digest& graph,
                                                              const Target& wanted, Mode mode);

// A public signing key as people give it: 64 hex digits, or a file that holds them (the
// coordinator's DATA_DIR/signing/ed25519.pub). kInvalidArgument.
Result<std::string> read_signer(const std::string& hex_or_file);

}  // namespace kiln
