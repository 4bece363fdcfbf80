#include <charconv>

#include "compiler_core/frontend/exported_model.h"

namespace kiln {

TorchVersion parse_torch_version(std::string_view text) {
  const char* const end = text.data() + text.size();
  TorchVersion version;
  const auto [dot, major_error] = std::from_chars(text.data(), end, version.major);
  if (major_error != std::errc() || dot == end || *dot != '.') return {};
  const auto [rest, minor_error] = std::from_chars(dot + 1, end, version.minor);
  return minor_error == std::errc() ? version : TorchVersion{};
}

}  // namespace kiln
