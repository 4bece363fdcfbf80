#include "compiler_core/page/values.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kiln::page {
namespace {

// Digits in groups of three, apart by a narrow space that does not break.
std::string grouped(int64_t number) {
  std::string digits = std::to_string(number < 0 ? -number : number);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), "\u202f");
  return (number < 0 ? "-" : "") + digits;
}

std::string span_text(double s) {
  if (s < 0.0995) return fmt::format("{:.0f} ms", s * 1e3);
  if (s < 10) return fmt::format("{:.1f} s", s);
  if (s < 120) return fmt::format("{:.0f} s", s);
  if (s < 2 * 3600) return fmt::format("{:.0f} min", s / 60);
  if (s < 48 * 3600) return fmt::format("{:.1f} h", s / 3600);
  return fmt::format("{:.1f} days", s / 86400);
}

Value key_link(const char* path, const Digest& key) {
  Value value{key.short_hex(), key.hex()};
  value.link = fmt::format("/{}/{}", path, key.hex());
  value.is_code = true;
  return value;
}

}  // namespace

Value text(std::string_view text) {
  return {std::string(text), std::string(text)};
}

Value quiet(std::string_view said) {
  return toned(text(said), Tone::kQuiet);
}

Value code(std::string_view said) {
  Value value = text(said);
  value.is_code = true;
  return value;
}

Value count(int64_t number) {
  return {grouped(number), number};
}

Value bytes(int64_t number) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto size = static_cast<double>(number);
  size_t unit = 0;
  for (; std::abs(size) >= 1024 && unit + 1 < std::size(kUnits); ++unit) size /= 1024;
  return {unit == 0 ? fmt::format("{} B", number) : fmt::format("{:.1f} {}", size, kUnits[unit]),
          number};
}

Value microseconds(double us) {
  if (us <= 0) return {"-", {}, {}, Tone::kQuiet};
  if (us >= 1e6) return {fmt::format("{:.2f} s", us / 1e6), us};
  return {us >= 1000 ? fmt::format("{:.2f} ms", us / 1000) : fmt::format("{:.1f} us", us), us};
}

Value seconds(double s) {
  return {span_text(s), s};
}

Value share_of(double part, double whole) {
  if (!(whole > 0)) return {"-", {}, {}, Tone::kQuiet};
  const double share = std::clamp(part / whole, 0.0, 1.0);
  Value value{fmt::format("{:.0f} %", share * 100), share};
  value.bars = {{share, value.text}};
  return value;
}

Value ago(int64_t now_ms, int64_t at_ms) {
  if (at_ms <= 0) return {"-", {}, {}, Tone::kQuiet};
  const double s = static_cast<double>(std::max<int64_t>(now_ms - at_ms, 0)) / 1000;
  return {s < 1 ? "now" : span_text(s) + " ago", at_ms};
}

Value flag(bool set, std::string_view yes, std::string_view no) {
  return {std::string(set ? yes : no), set};
}

Value linked(Value value, std::string link) {
  value.link = std::move(link);
  return value;
}

Value toned(Value value, Tone tone) {
  value.tone = tone;
  return value;
}

Value program_link(const Digest& key) {
  return key_link("program", key);
}

Value kernel_link(const Digest& key) {
  return key_link("kernel", key);
}

std::string encoded(std::string_view text) {
  std::string out;
  for (const char c : text) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       std::string_view("-._~").find(c) != std::string_view::npos;
    if (plain)
      out += c;
    else
      out += fmt::format("%{:02X}", static_cast<unsigned char>(c));
  }
  return out;
}

}  // namespace kiln::page
