// A program as files that others can read: <directory>/manifest.json, what program/program.h
// prints, each kernel's binary as <digest>.cubin or <digest>.so, and binding.json: {"input_order":
// the caller's input for each of the manifest's}. Where a coordinator signed it also manifest.sig,
// one line "ed25519 SIGNER SIGNATURE" in hex, over the bytes of manifest.json: a digest of them,
// see signed_program() in base/signature.h. It covers the binaries, which the manifest names.
#pragma once

#include "client/client.h"
#include "compiler_core/base/file.h"

namespace kiln::cli {

// Makes the directory. Errors of the disk.
Status export_program(const CompiledProgram& program, const Path& directory);

}  // namespace kiln::cli
