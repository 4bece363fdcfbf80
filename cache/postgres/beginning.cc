#include "cache/postgres/beginning.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cache/postgres/reads.h"
#include "cache/postgres/schema.h"

namespace kiln {
namespace {

constexpr auto kAgain = std::chrono::milliseconds(200);

// Whether to wait on for the term; why not yet is logged once for each reason.
std::function<bool(const std::string&)> patience_of(const PostgresStoreOptions& options) {
  const auto until = std::chrono::steady_clock::now() + options.wait_for_term;
  return [&options, until, said = std::string()](const std::string& why) mutable {
    const bool waits =
        options.stands_by ? options.stands_by() : std::chrono::steady_clock::now() < until;
    if (waits && options.stands_by && options.log && said != why)
      options.log("stands by: " + (said = why));
    return waits;
  };
}

// Told from other processes, of other machines and of later times.
std::string name_of_this_process(int64_t now_ms) {
  static std::atomic<int> stores{0};
  char host[256] = "";
  (void)gethostname(host, sizeof host - 1);
  return fmt::format("{}.{}.{}.{}", host, getpid(), now_ms, ++stores);
}

Result<Beginning> begin_once(const std::string& url, const std::string& name,
                             const PostgresStoreOptions& options,
                             const std::function<void()>& lost) {
  PgConnection connection(url, name + " term");
  TRY_STATUS(prepare_postgres_schema(connection));
  TRY(auto term, Term::take(std::move(connection),
                            {"kiln", name_of_this_process(options.now_ms()), options.address},
                            patience_of(options), lost));
  PgConnection reader(url, name + " reader");
  // Another build may have taken the tables further while this one waited.
  TRY_STATUS(check_postgres_schema(reader, SchemaUse::kWrite));
  TRY(auto revoked, reads::revocations(reader));
  return Beginning{std::move(term), std::move(revoked)};
}

}  // namespace

Result<Beginning> begin_writing(const std::string& url, const std::string& name,
                                const PostgresStoreOptions& options) {
  const auto lost = [log = options.log, tell = options.lost] {
    if (log) log("another coordinator writes the store by now: this one stores nothing any more");
    if (tell) tell();
  };
  const auto waits = patience_of(options);
  for (;;) {
    auto begun = begin_once(url, name, options, lost);
    if (begun || !options.stands_by || begun.error().code != Code::kUnavailable) return begun;
    if (!waits(begun.error().message)) return begun;
    std::this_thread::sleep_for(kAgain);
  }
}

}  // namespace kiln
