#include "compiler_core/base/signature.h"

#include <sodium/crypto_sign_ed25519.h>
#include <sodium/randombytes.h>
#include <sys/stat.h>

#include <ctime>
#include <sstream>

#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"
#include "compiler_core/base/primitives.h"
#include "compiler_core/base/text.h"

namespace kiln {
namespace {

static_assert(kPublicKeyBytes == crypto_sign_ed25519_PUBLICKEYBYTES);
static_assert(kSignatureBytes == crypto_sign_ed25519_BYTES);

constexpr size_t kSeedBytes = crypto_sign_ed25519_SEEDBYTES;
constexpr std::string_view kScheme = "ed25519 ";
constexpr std::string_view kEndorsed = " endorsed ";
constexpr char kKeyFile[] = "ed25519.key", kPublicFile[] = "ed25519.pub",
               kEndorsementsFile[] = "endorsements";

Result<std::string> from_hex(std::string_view hex, size_t size) {
  std::string bytes(size, '\0');
  if (hex.size() != 2 * size) return fail(Code::kCorruption, "not as long as it should be");
  if (!read_hex(hex, {unsigned_bytes(bytes), size}))
    return fail(Code::kCorruption, "not hex digits");
  return bytes;
}

// Enough of a key to tell it from others, as people read it.
std::string name_of(std::string_view key) {
  return key.empty() ? "nobody" : to_hex(key).substr(0, 16);
}

Status check_private(const Path& file) {
  struct stat facts {};
  if (::stat(file.c_str(), &facts) != 0 || (facts.st_mode & 077) == 0) return {};
  return fail(Code::kPermissionDenied,
              "others on this machine can read the signing key " + file.string() +
                  ": chmod 600 it (if somebody did, remove it: a new one is made, which clients "
                  "must be given)");
}

bool is_signed(const Digest& message, std::string_view bytes, std::string_view key) {
  return key.size() == kPublicKeyBytes && bytes.size() == kSignatureBytes &&
         crypto_sign_ed25519_verify_detached(unsigned_bytes(bytes), message.bytes.data(),
                                             message.bytes.size(), unsigned_bytes(key)) == 0;
}

// Whether who trusts `endorsement.by` may trust `successor` now.
bool holds(const Endorsement& endorsement, std::string_view successor) {
  return endorsement.until_s > std::time(nullptr) &&
         is_signed(signed_endorsement(successor, endorsement.until_s), endorsement.bytes,
                   endorsement.by);
}

// The folder's endorsement of `key`; a line for each, "KEY BY UNTIL BYTES". A line that cannot be
// read endorses nobody.
Endorsement endorsement_of(std::string_view key, const Path& folder) {
  std::istringstream lines(read_file(folder / kEndorsementsFile).value_or(""));
  const std::string whose = to_hex(key) + " ";
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with(whose)) continue;
    auto endorsement = Endorsement::parse(std::string_view(line).substr(whose.size()));
    if (endorsement && holds(*endorsement, key)) return *std::move(endorsement);
  }
  return {};
}

}  // namespace

std::string to_hex(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex;
  hex.reserve(2 * bytes.size());
  for (const char c : bytes) {
    hex += kDigits[static_cast<unsigned char>(c) >> 4];
    hex += kDigits[static_cast<unsigned char>(c) & 15];
  }
  return hex;
}

std::string_view first_line(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

Result<std::string> parse_public_key(std::string_view hex) {
  auto key = from_hex(hex, kPublicKeyBytes);
  if (!key) return fail(Code::kInvalidArgument, "a signing key has 64 hex digits");
  return key;
}

std::string Endorsement::to_string() const {
  if (by.empty()) return "";
  return to_hex(by) + " " + std::to_string(until_s) + " " + to_hex(bytes);
}

Result<Endorsement> Endorsement::parse(std::string_view text) {
  if (text.empty()) return Endorsement{};
  const size_t first = text.find(' ');
  const size_t second = first == std::string_view::npos ? first : text.find(' ', first + 1);
  const Error bad{Code::kCorruption, "not an endorsement", 0};
  if (second == std::string_view::npos) return fail(bad);
  const auto by = from_hex(text.substr(0, first), kPublicKeyBytes);
  const auto bytes = from_hex(text.substr(second + 1), kSignatureBytes);
  const std::string_view until = text.substr(first + 1, second - first - 1);
  Endorsement endorsement;
  if (!by || !bytes || !read_number(until, endorsement.until_s)) return fail(bad);
  endorsement.by = *by;
  endorsement.bytes = *bytes;
  return endorsement;
}

std::string Signature::to_string() const {
  if (bytes.empty()) return "";
  std::string text = std::string(kScheme) + to_hex(signer) + " " + to_hex(bytes);
  if (!endorsement.by.empty()) text += std::string(kEndorsed) + endorsement.to_string();
  return text;
}

Result<Signature> Signature::parse(std::string_view text) {
  Signature signature;
  if (text.empty()) return signature;
  const size_t endorsed = text.find(kEndorsed);
  if (endorsed != std::string_view::npos) {
    TRY(signature.endorsement, Endorsement::parse(text.substr(endorsed + kEndorsed.size())));
    if (signature.endorsement.by.empty()) return fail(Code::kCorruption, "not a signature");
    text = text.substr(0, endorsed);
  }
  const bool known = text.starts_with(kScheme);
  const size_t gap = known ? text.find(' ', kScheme.size()) : std::string_view::npos;
  if (gap == std::string_view::npos) return fail(Code::kCorruption, "not a signature");
  const auto signer = from_hex(text.substr(kScheme.size(), gap - kScheme.size()), kPublicKeyBytes);
  const auto bytes = from_hex(text.substr(gap + 1), kSignatureBytes);
  if (!signer || !bytes) return fail(Code::kCorruption, "not a signature");
  signature.signer = *signer;
  signature.bytes = *bytes;
  return signature;
}

SigningKey::SigningKey(std::string_view seed)
    : public_key_(kPublicKeyBytes, '\0'), secret_key_(crypto_sign_ed25519_SECRETKEYBYTES, '\0') {
  CHECK(seed.size() == kSeedBytes, "a seed has 32 bytes");
  crypto_sign_ed25519_seed_keypair(unsigned_bytes(public_key_), unsigned_bytes(secret_key_),
                                   unsigned_bytes(seed));
}

SigningKey SigningKey::generate() {
  std::string seed(kSeedBytes, '\0');
  randombytes_buf(seed.data(), seed.size());
  return SigningKey(seed);
}

std::string SigningKey::seed() const {
  return secret_key_.substr(0, kSeedBytes);  // RFC 8032: the secret key is seed and public key
}

Result<SigningKey> SigningKey::load_or_create(const Path& folder) {
  const Path file = folder / kKeyFile;
  remove_unpublished(folder);
  auto text = read_file(file);
  if (!text && text.error().code != Code::kNotFound) return fail(text.error());
  if (!text) {
    TRY_STATUS(make_directories(folder));
    TRY_STATUS(publish_secret(file, to_hex(generate().seed()) + "\n"));
    text = read_file(file);  // another process may have been first
    if (!text) return fail(text.error());
  }
  TRY_STATUS(check_private(file));
  const auto seed = from_hex(first_line(*text), kSeedBytes);
  if (!seed)
    return fail(Code::kCorruption,
                file.string() +
                    " is no signing key: restore it, or remove it and give clients the "
                    "new one");
  SigningKey key(*seed);
  if (const auto known = read_public_key(folder); !known || *known != key.public_key())
    TRY_STATUS(publish_file(folder / kPublicFile, to_hex(key.public_key()) + "\n"));
  key.endorsement_ = endorsement_of(key.public_key(), folder);
  return key;
}

Result<SigningKey> SigningKey::rotate(const Path& folder, std::chrono::seconds overlap) {
  std::error_code ignored;
  if (!std::filesystem::exists(folder / kKeyFile, ignored))
    return fail(Code::kNotFound, "there is no signing key in " + folder.string() +
                                     ": a coordinator makes one when it starts");
  TRY(const SigningKey present, load_or_create(folder));
  const SigningKey next = generate();
  if (overlap.count() > 0) {
    if (!present.endorsement_.by.empty())
      return fail(Code::kInvalidArgument,
                  "the signing key in " + folder.string() +
                      " was changed not long ago, and clients with the key files of before still "
                      "trust it by the word of the one it replaced: give them new ones (kiln keys "
                      "new), or wait until that ends");
    Endorsement word{present.public_key(), std::time(nullptr) + overlap.count(), {}};
    word.bytes = present.sign(signed_endorsement(next.public_key(), word.until_s)).bytes;
    // Before the key that it is about: until that is there, the line says nothing.
    TRY_STATUS(publish_file(folder / kEndorsementsFile,
                            to_hex(next.public_key()) + " " + word.to_string() + "\n"));
  }
  const Path made = folder / "next.key";
  std::filesystem::remove(made, ignored);  // of a process that was killed here
  TRY_STATUS(publish_secret(made, to_hex(next.seed()) + "\n"));
  std::error_code error;
  std::filesystem::rename(made, folder / kKeyFile, error);
  if (error)
    return fail(Code::kUnavailable,
                "cannot replace " + (folder / kKeyFile).string() + ": " + error.message());
  TRY_STATUS(sync_directory(folder));
  return load_or_create(folder);
}

Result<std::string> read_public_key(const Path& folder) {
  TRY(const std::string text, read_file(folder / kPublicFile));
  return from_hex(first_line(text), kPublicKeyBytes);
}

Signature SigningKey::sign(const Digest& message) const {
  Signature signature{public_key_, std::string(kSignatureBytes, '\0'), endorsement_};
  crypto_sign_ed25519_detached(unsigned_bytes(signature.bytes), nullptr, message.bytes.data(),
                               message.bytes.size(), unsigned_bytes(std::string_view(secret_key_)));
  return signature;
}

Status verify_signature(const Digest& message, const Signature& signature, std::string_view trusted,
                        std::string_view what) {
  const std::string thing(what);
  if (signature.bytes.empty())
    return fail(Code::kPermissionDenied,
                thing + " is unsigned and was not loaded: only what signer " + name_of(trusted) +
                    " vouches for is; get it from that coordinator, or ask whoever runs it");
  if (signature.signer != trusted &&
      (signature.endorsement.by != trusted || !holds(signature.endorsement, signature.signer)))
    return fail(Code::kPermissionDenied,
                thing + " is signed by " + name_of(signature.signer) + ", not by " +
                    name_of(trusted) +
                    " whom this client trusts, and was not loaded: if the coordinator has a new "
                    "signing key, get a new key file from whoever runs it");
  if (is_signed(message, signature.bytes, signature.signer)) return {};
  return fail(Code::kCorruption, thing + " is not what " + name_of(signature.signer) +
                                     " signed, and was not loaded: it was altered on the way or on "
                                     "disk; ask for it again");
}

Digest signed_program(std::string_view manifest) {
  return Hasher("kiln.signed.program.v1").add(manifest).finish();
}

Digest signed_candidate(const Digest& kernel_key, std::string_view schedule,
                        std::string_view recipe_json, std::string_view binary) {
  return Hasher("kiln.signed.candidate.v1")
      .add(kernel_key)
      .add(schedule)
      .add(recipe_json)
      .add(binary)
      .finish();
}

Digest signed_artifact(std::string_view kind, std::string_view key, std::string_view value) {
  return Hasher("kiln.signed.artifact.v1").add(kind).add(key).add(value).finish();
}

Digest signed_revocations(std::string_view list) {
  return Hasher("kiln.signed.revocations.v1").add(list).finish();
}

Digest signed_endorsement(std::string_view successor, int64_t until_s) {
  return Hasher("kiln.signed.endorsement.v1").add(successor).add(until_s).finish();
}

Digest signed_copy(const Digest& key, std::string_view manifest, std::string_view origin) {
  return Hasher("kiln.signed.copy.v1").add(key).add(manifest).add(origin).finish();
}

}  // namespace kiln
