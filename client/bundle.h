// A bundle: some programs of a coordinator, with their binaries, as one file: for machines without a
// network, for container images, for CI. `kiln bundle` writes one, `kiln load` and
// Client::load_bundle() read it.
//
//   kiln-bundle 1
//   program BYTES ed25519 SIGNER SIGNATURE     a manifest, and the coordinator's signature of it
//   blob BYTES DIGEST                          a binary, each once however many programs have it
//   end
//   <the bytes of each, in the order of the lines>
//   <the digest of everything above, 64 hex digits, and a newline>
//
// A manifest's signature covers its binaries too, since it names them by digest. The digest
// at the end tells a file that was cut short or damaged from a good one. Free functions;
// thread-safe.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/local_tier.h"

namespace kiln {

// The file's text. REQUIRES: each has its manifest and artifacts. kInvalidArgument: none at all, or
// one that no coordinator signed.
Result<std::string> print_bundle(std::span<const std::shared_ptr<const ProgramFiles>> programs);

inline constexpr int64_t kMaxBundleBytes = int64_t{4} << 30;

// The text of a bundle's file, which nothing vouches for yet. kNotFound; kInvalidArgument: no regular
// file, or larger than a bundle may be.
Result<std::string> read_bundle(const Path& file);

// The programs in `text`, every signature and digest checked before anything is used; `name` is the
// file's, for errors. `trusted`: the public key that must have signed them. kInvalidArgument: no
// bundle at all, or nobody is trusted; kUnsupported: of a newer format; kPermissionDenied: unsigned,
// or signed by somebody else; kCorruption: cut short or altered.
Result<std::vector<std::shared_ptr<const ProgramFiles>>> parse_bundle(std::string_view text,
                                                                      const std::string& name,
                                                                      std::string_view trusted);

// The program of `programs` that serves a request: of this graph and mode, for a target that
// `wanted` can run; made for its very device before others. Null: none does.
std::shared_ptr<const ProgramFiles> find_in_bundle(
    std::span<const std::shared_ptr<const ProgramFiles>> programs, const Digest& graph,
    const Target& wanted, Mode mode);

}  // namespace kiln
