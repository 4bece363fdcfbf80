// Signatures (Ed25519, RFC 8032): who vouches for a program before it is loaded, because its
// kernels are code. What is signed is a message: a digest that says what kind of thing it is about,
// so that a signature of one kind is none of another. Plain values; thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"

namespace kiln {

inline constexpr size_t kPublicKeyBytes = 32, kSignatureBytes = 64;
inline constexpr char kSigningFolder[] = "signing";  // of a data or cache directory

// The word of the signing key `by` that another key takes its place: whoever trusts `by` trusts the
// other one too, until `until_s`. So a coordinator's key is changed without a new key file for every
// client at once. All empty: there is none.
struct Endorsement {
  std::string by;       // a public key
  int64_t until_s = 0;  // Unix time
  std::string bytes;    // over signed_endorsement() of the other key

  bool operator==(const Endorsement&) const = default;
  std::string to_string() const;  // "BY UNTIL BYTES", keys and bytes in hex; "" for none
  static Result<Endorsement> parse(std::string_view text);  // kCorruption
};

// `signer`: whose public key it claims to be made with. Both empty: unsigned. `endorsement`: of the
// signer, by the key that it replaced.
struct Signature {
  std::string signer, bytes;
  Endorsement endorsement{};

  bool operator==(const Signature&) const = default;
  // "ed25519 SIGNER SIGNATURE", in hex, then " endorsed ENDORSEMENT" where there is one; "" when
  // unsigned.
  std::string to_string() const;
  static Result<Signature> parse(std::string_view text);  // kCorruption
};

std::string to_hex(std::string_view bytes);
// The first line of a key's or signature's file, without the newline.
std::string_view first_line(std::string_view text);
// kInvalidArgument unless it is a public key in hex.
Result<std::string> parse_public_key(std::string_view hex);

class SigningKey {
 public:
  static SigningKey generate();
  // FOLDER/ed25519.key, mode 0600, made when there is none, durable; FOLDER/ed25519.pub beside it
  // for others to read. kPermissionDenied when others may read the
  // key, kCorruption when it is none.
  static Result<SigningKey> load_or_create(const Path& folder);
  // Puts a new key into the folder's place of the present one, which endorses it for `overlap`; an
  // overlap of 0 or less: no endorsement, for a key that somebody else may have. Durable; a process
  // that is killed meanwhile leaves the old key or the new one, each whole. A process that has the
  // key loaded goes on with it. kNotFound: there is no key; kInvalidArgument: the present key still
  // lives on an endorsement, so that the new one would be unknown to who trusts the first.
  static Result<SigningKey> rotate(const Path& folder, std::chrono::seconds overlap);

  const std::string& public_key() const { return public_key_; }
  // By the key that this one replaced; empty when there was none, or its time has passed.
  const Endorsement& endorsement() const { return endorsement_; }
  Signature sign(const Digest& message) const;

 private:
  explicit SigningKey(std::string_view seed);
  std::string seed() const;
  std::string public_key_, secret_key_;
  Endorsement endorsement_;
};

// Reads FOLDER/ed25519.pub. kNotFound; kCorruption.
Result<std::string> read_public_key(const Path& folder);

// Whether `trusted` (a public key), or the key that it endorsed, signed `message`. kPermissionDenied when it is unsigned or
// signed by somebody else, kCorruption when it was altered. `what` names the thing in the error.
Status verify_signature(const Digest& message, const Signature& signature, std::string_view trusted,
                        std::string_view what);

// ---- The messages that are signed ----

// A program: its manifest, which holds its key and the digest of every binary.
Digest signed_program(std::string_view manifest);
// A kernel that one worker compiled and another is to run.
Digest signed_candidate(const Digest& kernel_key, std::string_view schedule,
                        std::string_view recipe_json, std::string_view binary);
// A value that the coordinator keeps for another compiler, under its key.
Digest signed_artifact(std::string_view kind, std::string_view key, std::string_view value);
// The list of what a coordinator took back (program/revocations.h).
Digest signed_revocations(std::string_view list);
// That the key `successor` takes the place of the one that signs this.
Digest signed_endorsement(std::string_view successor, int64_t until_s);
// A program that a machine keeps under the key it was asked for by; `origin`: the signature that it
// came with, empty when it was made there.
Digest signed_copy(const Digest& key, std::string_view manifest, std::string_view origin);

}  // namespace kiln
