#include "compiler_core/program/cubin_resources.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <charconv>

#include "compiler_core/program/cubin_sections.h"

namespace kiln {
namespace {

// A cubin's section .nv.info has attributes of all kernels: a byte of format, one of name, two of size
// or value, and the rest by format. NVIDIA documents none of it; the values equal those of `ptxas -v` (tests/compiler_core/program/cubin_resources_test.cc).
constexpr uint8_t kSizedFormat = 4;
constexpr uint8_t kRegisterCount = 0x2f, kFrameSize = 0x11;  // {symbol, value}, u32 each

// False where the attributes end amid one.
bool add_attributes(std::string_view info, CubinResources& sum) {
  for (uint64_t at = 0; at < info.size();) {
    const auto format = read_at<uint8_t>(info, at), attribute = read_at<uint8_t>(info, at + 1);
    const auto size = read_at<uint16_t>(info, at + 2);
    if (!format || !attribute || !size) return false;
    at += 4;
    if (*format != kSizedFormat) continue;
    const auto value = read_at<uint32_t>(info, at + 4);
    if (info.size() - at < *size) return false;
    if (*size == 8 && value) {
      if (*attribute == kRegisterCount) sum.registers = std::max<int64_t>(sum.registers, *value);
      if (*attribute == kFrameSize) sum.local_bytes = std::max<int64_t>(sum.local_bytes, *value);
    }
    at += *size;
  }
  return true;
}

constexpr std::array<const char*, 3> kUnits = {" registers", " bytes of local memory",
                                               " bytes of shared memory"};

}  // namespace

std::optional<CubinResources> resources_of(std::string_view binary, const Recipe& recipe) {
  const auto sections = CubinSections::of(binary);
  if (!sections) return std::nullopt;
  CubinResources sum;
  uint64_t fixed_shared = 0;
  for (const CubinSections::Section& each : sections->all()) {
    if (each.name.starts_with(".nv.shared.")) fixed_shared = std::max(fixed_shared, each.size);
    if (each.name != ".nv.info") continue;
    const auto info = sections->bytes(each);
    if (!info || !add_attributes(*info, sum)) return std::nullopt;
  }
  if (sum.registers == 0 || fixed_shared > UINT32_MAX) return std::nullopt;
  int dynamic_shared = 0;
  for (const Phase& phase : recipe.phases)
    dynamic_shared = std::max(dynamic_shared, phase.shared_bytes);
  sum.shared_bytes = static_cast<int64_t>(fixed_shared) + dynamic_shared;
  return sum;
}

std::string to_string(const CubinResources& resources) {
  return fmt::format("{}{}, {}{}, {}{}", resources.registers, kUnits[0], resources.local_bytes,
                     kUnits[1], resources.shared_bytes, kUnits[2]);
}

std::optional<CubinResources> parse_cubin_resources(std::string_view text) {
  std::array<int64_t, 3> values{};
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) {
      if (!text.starts_with(", ")) return std::nullopt;
      text.remove_prefix(2);
    }
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), values[i]);
    if (error != std::errc()) return std::nullopt;
    text.remove_prefix(static_cast<size_t>(end - text.data()));
    if (!text.starts_with(kUnits[i])) return std::nullopt;
    text.remove_prefix(std::string_view(kUnits[i]).size());
  }
  if (!text.empty() || std::ranges::any_of(values, [](int64_t each) { return each < 0; }))
    return std::nullopt;
  return CubinResources{values[0], values[1], values[2]};
}

}  // namespace kiln
