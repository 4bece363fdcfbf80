#include "client/cli/service.h"

#include <fmt/format.h>
#include <time.h>

#include <ctime>

namespace kiln::cli {

Result<std::unique_ptr<Remote>> service_of(const Options& options) {
  if (options.coordinator.empty())
    return fail(Code::kInvalidArgument,
                "which service? name it with --coordinator or KILN_COORDINATOR");
  auto remote = std::make_unique<Remote>(options.coordinator, std::chrono::milliseconds(2000));
  remote->use_key(options.key);
  return remote;
}

Result<nlohmann::ordered_json> ask_admin(const Options& options, AdminRequest request,
                                         std::chrono::seconds patience) {
  TRY(const auto service, service_of(options));
  return ask_admin(*service, std::move(request), patience);
}

Result<nlohmann::ordered_json> ask_admin(Remote& service, AdminRequest request,
                                         std::chrono::seconds patience) {
  TRY(const std::string text, service.admin(std::move(request), Remote::Clock::now() + patience));
  auto json = nlohmann::ordered_json::parse(text, nullptr, false);
  if (json.is_discarded()) return fail(Code::kInternal, "the coordinator's answer is no JSON");
  return json;
}

Result<Path> index_file(const Options& options, std::string_view or_else) {
  Path file = Path(options.data_dir) / "index.sqlite";
  std::error_code ignored;
  if (std::filesystem::exists(file, ignored)) return file;
  return fail(Code::kNotFound, fmt::format("{} holds no store; name one with --data-dir{}",
                                           options.data_dir, or_else));
}

Result<std::optional<Digest>> parse_key(const std::string& text, const char* what) {
  if (text.empty()) return std::nullopt;
  const auto key = Digest::parse(text);
  if (key) return *key;
  return fail(Code::kInvalidArgument,
              fmt::format("a {}'s key has 64 hex digits; `kiln cache ls` prints it", what));
}

Result<int64_t> parse_since(const std::string& text) {
  if (text.empty()) return 0;
  size_t digits = 0;
  while (digits < text.size() && std::isdigit(static_cast<unsigned char>(text[digits])) != 0)
    ++digits;
  constexpr std::string_view kUnits = "mhd";
  constexpr int64_t kMinutes[] = {1, 60, 24 * 60};
  if (digits > 0 && digits < 7 && digits + 1 == text.size())
    if (const size_t unit = kUnits.find(text.back()); unit != std::string_view::npos)
      return (std::time(nullptr) - 60 * kMinutes[unit] * std::stoll(text)) * 1000;
  for (const char* format : {"%Y-%m-%dT%H:%M:%SZ", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%d"}) {
    std::tm time{};
    const char* end = ::strptime(text.c_str(), format, &time);
    if (end != nullptr && *end == '\0') return static_cast<int64_t>(::timegm(&time)) * 1000;
  }
  return fail(Code::kInvalidArgument,
              fmt::format("--since {} is no time: 2026-11-23T06:00:00 (UTC), or so long ago: 90m, "
                          "12h, 7d",
                          text));
}

}  // namespace kiln::cli
