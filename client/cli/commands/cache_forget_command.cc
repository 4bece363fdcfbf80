// `kiln cache forget`: takes results back (cache/taking_back.h), through the coordinator alone: it
// must end what it is doing with them, and tell the clients. Without --yes it only says what would
// go.
#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

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
