// `kiln cache forget`: takes results back (cache/taking_back.h), through the coordinator alone: it
// must end what it is doing with them, and tell the clients. Without --yes it only says what would
// go.
#include <fmt/format.h>
#include <time.h>

#include <cstdio>
#include <ctime>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

Result<std::optional<Digest>> parse_key(const std::string& text, const char* what) {
  if (text.empty()) return std::nullopt;
  const auto key = Digest::parse(text);
  if (key) return *key;
  return fail(Code::kInvalidArgument,
              fmt::format("a {}'s key has 64 hex digits; `kiln cache ls` prints it", what));
}

// "2026-11-23T06:00:00" or "2026-11-23" (UTC), or "90m", "12h", "7d" ago. Unix time in ms.
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

Result<nlohmann::ordered_json> forget(const Options& options) {
  AdminRequest request;
  request.kind = AdminRequest::Kind::kForget;
  TRY(request.key, parse_key(options.program_key, "program"));
  TRY(request.kernel, parse_key(options.kernel_key, "kernel"));
  TRY(request.since_ms, parse_since(options.since));
  request.worker = options.worker;
  request.dry_run = !options.yes;
  const bool reports = !request.worker.empty() || request.since_ms > 0;
  if ((request.key ? 1 : 0) + (request.kernel ? 1 : 0) + (reports ? 1 : 0) != 1)
    return fail(Code::kInvalidArgument,
                "forget what? --program KEY, --kernel KEY, or --worker NAME and --since TIME (one "
                "of them, or both)");
  if (options.coordinator.empty())
    return fail(Code::kInvalidArgument,
                "which service? name it with --coordinator: it ends what it does with those "
                "results, and tells the clients");
  return ask_admin(options, std::move(request), std::chrono::minutes(10));
}

}  // namespace

int cache_forget_command(const Options& options) {
  const auto done = forget(options);
  if (!done) {
    print_error(options, "", done.error());
    return exit_code_of(done.error());
  }
  if (options.json) {
    std::printf("%s\n", done->dump().c_str());
    return kDone;
  }
  const auto count = [&](const char* name) { return done->value(name, int64_t{0}); };
  std::fputs(fmt::format("{} {} programs, {} kernels, {} tuning records{}\n",
                         options.yes ? "forgot" : "would forget", count("programs"),
                         count("kernels"), count("records"), options.yes ? "" : "; --yes does it")
                 .c_str(),
             stdout);
  return kDone;
}

}  // namespace kiln::cli
