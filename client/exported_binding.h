// The binding of an exported program: which of the caller's inputs is each of the manifest's. One
// program serves models whose inputs come in other orders, so its manifest's signature does not
// cover the order. It has a signature of its own:
//
//   binding.json   {"input_order": [2,0,1], "program": DIGEST, "model": DIGEST}
//                  the digests (BLAKE2b of 32 bytes, in hex) of manifest.json and of the model's file
//   binding.sig    as manifest.sig: "ed25519 SIGNER SIGNATURE", of the coordinator's key, over
//                  signed_artifact("kiln.binding", H, {"binding":"H"}), with H the digest of
//                  binding.json in hex
//
// The coordinator signs on the word of a key with the role `submit`: it sees no model. So the
// signature says that nobody without such a key wrote the binding, for this program and this model.
// A directory of before has a binding.json with an input_order alone, and no binding.sig. Free
// functions; thread-safe.
#pragma once

#include <functional>

#include "client/artifact_client.h"
#include "client/client.h"

namespace kiln {

// Writes the directory (exported_directory.h) of what was compiled from the file `model`. Where a
// coordinator signed the program, it is asked to sign the binding too; `say` hears why it did not.
// Errors of the disk.
Status export_program(const CompiledProgram& program, const Path& model, const Path& directory,
                      ArtifactClient::Options coordinator,
                      const std::function<void(const std::string&)>& say);

// Whether `binding` (binding.json) is of the program with `manifest`, and signed by `trusted`.
// kCorruption: altered, or of another program; kPermissionDenied: signed by somebody else.
Status verify_binding(std::string_view binding, const Signature& signature,
                      std::string_view manifest, std::string_view trusted, std::string_view what);

}  // namespace kiln
