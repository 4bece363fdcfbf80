#include "compiler_core/base/digest.h"

#include <sodium/crypto_generichash_blake2b.h>

#include "compiler_core/base/check.h"
#include "compiler_core/base/signature.h"
#include "compiler_core/base/text.h"

namespace kiln {

static_assert(sizeof(crypto_generichash_blake2b_state) <= 384);

namespace {

crypto_generichash_blake2b_state* state_of(std::array<uint8_t, 384>& bytes) {
  return reinterpret_cast<crypto_generichash_blake2b_state*>(bytes.data());
}

}  // namespace

std::string Digest::hex() const {
  return to_hex({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::string Digest::short_hex() const {
  return hex().substr(0, 12);
}

bool Digest::is_zero() const {
  return *this == Digest{};
}

Result<Digest> Digest::parse(std::string_view hex) {
  Digest digest;
  if (hex.size() != 64) return fail(Code::kInvalidArgument, "a digest has 64 hex digits");
  if (!read_hex(hex, digest.bytes))
    return fail(Code::kInvalidArgument, "a digest has hex digits only");
  return digest;
}

Digest Digest::of(std::span<const uint8_t> data) {
  Digest digest;
  crypto_generichash_blake2b(digest.bytes.data(), 32, data.data(), data.size(), nullptr, 0);
  return digest;
}

Digest Digest::of(std::string_view data) {
  return of(std::span(reinterpret_cast<const uint8_t*>(data.data()), data.size()));
}

Hasher::Hasher(std::string_view domain) {
  crypto_generichash_blake2b_init(state_of(state_), nullptr, 0, 32);
  add(domain);
}

void Hasher::raw(const void* data, size_t size) {
  crypto_generichash_blake2b_update(state_of(state_), static_cast<const uint8_t*>(data), size);
}

Hasher& Hasher::add(std::string_view text) {
  const uint64_t size = text.size();
  raw("s", 1);
  raw(&size, sizeof size);
  raw(text.data(), text.size());
  return *this;
}

Hasher& Hasher::add(int64_t value) {
  raw("i", 1);
  raw(&value, sizeof value);
  return *this;
}

Hasher& Hasher::add(const Digest& digest) {
  raw("d", 1);
  raw(digest.bytes.data(), digest.bytes.size());
  return *this;
}

Hasher& Hasher::begin_list(size_t size) {
  const uint64_t count = size;
  raw("l", 1);
  raw(&count, sizeof count);
  return *this;
}

Digest Hasher::finish() {
  Digest digest;
  crypto_generichash_blake2b_final(state_of(state_), digest.bytes.data(), 32);
  return digest;
}

}  // namespace kiln
