// What `kiln compile FILE --out DIR` wrote, read back on a machine that asks nobody:
//
//   manifest.json           the program; it holds the digest of every binary
//   manifest.sig            "ed25519 SIGNER SIGNATURE" over it, in hex (base/signature.h); absent
//                           when it was compiled without a coordinator
//   <digest>.so, .cubin     the binaries
//   binding.json            the order of its inputs, for who binds them without the graph
//
// Free functions; thread-safe.
#pragma once

#include <string_view>

#include "client/local_tier.h"

namespace kiln {

// Nothing of it is loaded before it is whole: signed by `trusted`, each binary what its digest
// says, made by this very build. kNotFound: no such directory; kInvalidArgument: nobody is trusted
// (`trusted` is empty); kPermissionDenied: unsigned, or signed by somebody else; kCorruption:
// altered, or a binary is missing; kUnsupported: another build's. Each names what it is about.
Result<ProgramFiles> read_exported(const Path& directory, std::string_view trusted);

// A public signing key as people give it: 64 hex digits, or a file that holds them (the
// coordinator's DATA_DIR/signing/ed25519.pub). kInvalidArgument.
Result<std::string> read_signer(const std::string& hex_or_file);

}  // namespace kiln
