// `kiln audit`: what operators asked of the coordinators of a store (cache/admin_act.h), page by page
// from its directory or its database, the latest first.
#include <fmt/chrono.h>
#include <fmt/format.h>

#include <cstdio>
#include <functional>

#include "cache/index.h"
#include "cache/postgres/reads.h"
#include "cache/postgres/schema.h"
#include "client/cli/declare_commands.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"
#include "compiler_core/base/terminal_text.h"

namespace kiln::cli {
namespace {

constexpr int64_t kActsAPage = 200;

// The acts before a number, the latest first.
using ReadActs = std::function<Result<std::vector<AdminAct>>(int64_t before)>;

Result<ReadActs> acts_of_directory(const Options& options) {
  TRY(const Path file, index_file(options, ", or a database with --store"));
  TRY(CacheIndex opened, CacheIndex::open_for_reading(file));
  const auto index = std::make_shared<CacheIndex>(std::move(opened));
  return ReadActs([index](int64_t before) { return index->acts(before, kActsAPage); });
}

Result<ReadActs> acts_of_database(const Options& options) {
  const auto connection = std::make_shared<PgConnection>(options.store, "kiln audit");
  TRY_STATUS(check_postgres_schema(*connection, SchemaUse::kRead));
  TRY(const bool there, reads::has_acts(*connection));
  if (!there)
    return fail(
        Code::kUnsupported,
        "the database's tables have no audit trail yet: a coordinator of this release brings "
        "them up to date when it starts");
  return ReadActs(
      [connection](int64_t before) { return reads::acts(*connection, before, kActsAPage); });
}

std::string line_of(const AdminAct& act) {
  return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}  {:<12}  {}  {}: {}\n",
                     fmt::gmtime(static_cast<std::time_t>(act.at_ms / 1000)),
                     act.who.empty() ? "-" : terminal_text(act.who), terminal_text(act.request),
                     act.done ? "done" : "not done", terminal_text(act.outcome));
}

Status print_acts(const Options& options) {
  TRY(const int64_t since_ms, parse_since(options.since));
  TRY(const ReadActs read,
      options.store.empty() ? acts_of_directory(options) : acts_of_database(options));
  int64_t printed = 0;
  for (int64_t before = INT64_MAX;;) {
    TRY(const std::vector<AdminAct> page, read(before));
    for (const AdminAct& act : page) {
      if (act.at_ms < since_ms) continue;
      if (options.limit > 0 && printed == options.limit) return {};
      const std::string line = options.json ? to_json(act) + "\n" : line_of(act);
      if (std::fputs(line.c_str(), stdout) == EOF)
        return fail(Code::kInvalidArgument, "stdout takes no more");
      ++printed;
    }
    if (page.empty()) break;
    before = page.back().number;
    if (before <= 1) break;
  }
  if (printed == 0 && !options.json) std::fputs("kiln: nobody asked for anything\n", stderr);
  return {};
}

}  // namespace

int audit_command(const Options& options) {
  const Status done = print_acts(options);
  if (done) return kDone;
  print_error(options.store.empty() ? options.data_dir : "", done.error());
  return exit_code_of_store(done.error());
}

}  // namespace kiln::cli
