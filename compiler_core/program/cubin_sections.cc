#include "compiler_core/program/cubin_sections.h"

namespace kiln {
namespace {

constexpr uint16_t kCudaMachine = 190;

// As ELF has it.
struct SectionHeader {
  uint32_t name, type;
  uint64_t flags, address, offset, size;
  uint32_t link, info;
  uint64_t alignment, entry_size;
};
static_assert(sizeof(SectionHeader) == 64);

std::optional<std::string_view> part(std::string_view bytes, uint64_t at, uint64_t size) {
  if (at > bytes.size() || bytes.size() - at < size) return std::nullopt;
  return bytes.substr(at, size);
}

std::string_view name_at(std::string_view names, uint64_t at) {
  if (at >= names.size()) return {};
  names.remove_prefix(at);
  return names.substr(0, names.find('\0'));
}

}  // namespace

std::optional<CubinSections> CubinSections::of(std::string_view binary) {
  if (!binary.starts_with("\x7f"
                          "ELF\x02\x01") ||
      read_at<uint16_t>(binary, 18) != kCudaMachine)
    return std::nullopt;
  const auto table = read_at<uint64_t>(binary, 40);
  const auto count = read_at<uint16_t>(binary, 60), names_index = read_at<uint16_t>(binary, 62);
  if (!table || !count || !names_index || *table > binary.size()) return std::nullopt;
  const auto header = [&](uint64_t index) {
    return read_at<SectionHeader>(binary, *table + index * sizeof(SectionHeader));
  };
  const auto names_header = header(*names_index);
  if (!names_header) return std::nullopt;
  const auto names = part(binary, names_header->offset, names_header->size);
  if (!names) return std::nullopt;

  CubinSections found;
  found.binary_ = binary;
  for (uint64_t i = 0; i < *count; ++i) {
    const auto each = header(i);
    if (!each) return std::nullopt;
    found.sections_.push_back({name_at(*names, each->name), each->offset, each->size});
  }
  return found;
}

std::optional<std::string_view> CubinSections::bytes(const Section& section) const {
  return part(binary_, section.offset, section.size);
}

}  // namespace kiln
