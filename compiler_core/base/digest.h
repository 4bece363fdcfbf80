// Digest: 256 bits of BLAKE2b (RFC 7693, through libsodium). Names blobs, graphs and keys.
// Hasher: builds one from typed, delimited fields, so that no two different sequences of fields
// feed the same bytes to the hash. Values are immutable and freely shared; a Hasher has one owner.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <cstring>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

struct Digest {
  std::array<uint8_t, 32> bytes{};

  auto operator<=>(const Digest&) const = default;  // NOLINT(modernize-use-nullptr): clang-tidy 14
  std::string hex() const;                          // 64 lower-case hex digits
  std::string short_hex() const;                    // the first 12, for people
  bool is_zero() const;                             // the value of a default-constructed Digest
  static Result<Digest> parse(std::string_view hex);
  static Digest of(std::span<const uint8_t> data);
  static Digest of(std::string_view data);
};

class Hasher {
 public:
  // `domain` separates kinds of key ("kiln.graph.v1"); it is part of every digest.
  explicit Hasher(std::string_view domain);

  Hasher& add(std::string_view text);  // tag, length, bytes
  Hasher& add(const char* text) { return add(std::string_view(text)); }
  Hasher& add(int64_t value);         // tag, 8 bytes little-endian
  Hasher& add(const Digest& digest);  // tag, 32 bytes
  Hasher& begin_list(size_t size);    // tag, length; the items follow

  Digest finish();  // once

 private:
  void raw(const void* data, size_t size);
  alignas(64) std::array<uint8_t, 384> state_;
};

}  // namespace kiln

template <>
struct std::hash<kiln::Digest> {
  size_t operator()(const kiln::Digest& d) const noexcept {
    size_t h;
    std::memcpy(&h, d.bytes.data(), sizeof h);
    return h;
  }
};
