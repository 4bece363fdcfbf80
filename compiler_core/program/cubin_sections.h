// CubinSections: the parts of a GPU's binary, a 64-bit little-endian ELF file. A value that refers to
// the binary. Private to this folder.
#pragma once

#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>
#include <vector>

namespace kiln {

// The T at a place; nullopt: not all of it lies within `bytes`.
template <class T>
std::optional<T> read_at(std::string_view bytes, uint64_t at) {
  T value;
  if (at > bytes.size() || bytes.size() - at < sizeof(T)) return std::nullopt;
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}

class CubinSections {
 public:
  struct Section {
    std::string_view name;
    uint64_t offset, size;  // what shared memory a kernel declares has a size and no bytes
  };

  // nullopt: the binary is no cubin, or its table of sections is damaged; safe on hostile bytes.
  static std::optional<CubinSections> of(std::string_view binary);

  const std::vector<Section>& all() const { return sections_; }
  // nullopt: they do not lie within the binary.
  std::optional<std::string_view> bytes(const Section& section) const;

 private:
  std::string_view binary_;
  std::vector<Section> sections_;
};

}  // namespace kiln
