// `kiln cache gc`, `pin` and `unpin`: what changes a store. With --coordinator the service does it;
// else the directory is opened here, which nobody may be serving. --data-dir means the directory,
// whatever KILN_COORDINATOR says: a scratch store's gc must not empty another one.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "cache/kernel_cache.h"
#include "cache/transfer/store_source.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "client/cli/service.h"

namespace kiln::cli {
namespace {

constexpr auto kPatience = std::chrono::minutes(10);  // a large store is swept meanwhile

// Everything may go, however lately it was used: nobody uses it now. Of a damaged index we touch
// nothing: without its rows every binary is an orphan, and would be swept up.
Result<std::unique_ptr<KernelCache>> open_here(const Options& options, bool sweeps) {
  TRY_STATUS(index_file(options));
  CacheOptions store;
  store.keep_used_ms = -1000;
  store.orphans_after_ms = 0;
  store.sweeps = sweeps;
  store.refuse_damaged = true;
  auto cache = KernelCache::open(options.data_dir, std::move(store));
  if (!cache && cache.error().code == Code::kUnavailable)
    return fail(Code::kInvalidArgument,
                cache.error().message + ": name it with --coordinator, and it does this itself");
  return cache;
}

AdminAct act_here(std::string request) {
  return act_of_now("kiln cache", "", std::move(request));
}

Result<nlohmann::ordered_json> collect_here(const Options& options) {
  TRY(const auto cache, open_here(options, true));
  cache->wait_for_first_round();  // orphans and leftovers
  cache->flush();
  KernelCache::Collected collected;
  const int64_t max_bytes =
      options.has_max_size ? static_cast<int64_t>(options.max_size) : INT64_MAX;
  const Status reached = wait_for_answer<void>([&](auto done) {
    cache->collect(max_bytes, [&collected, done](KernelCache::Collected got, Status status) {
      collected = got;
      done(std::move(status));
    });
  });
  cache->flush();
  const nlohmann::ordered_json report = {{"freed_bytes", collected.bytes},
                                         {"programs", collected.programs},
                                         {"entries", collected.entries},
                                         {"stored_bytes", cache->totals().stored_bytes},
                                         {"reached", reached.has_value()},
                                         {"reason", reached ? "" : reached.error().message},
                                         {"damaged_files", collected.damaged_files},
                                         {"damaged_bytes", collected.damaged_bytes}};
  AdminAct act =
      act_here(options.has_max_size ? fmt::format("collect down to {} bytes", max_bytes) : "sweep");
  act.done = true;
  act.outcome = report.dump();
  TRY_STATUS(wait_for_answer<void>([&](auto done) { cache->note(act, done); }));
  return report;
}

Result<nlohmann::ordered_json> collect(const Options& options) {
  if (options.coordinator.empty()) return collect_here(options);
  if (!options.has_max_size)
    return fail(Code::kInvalidArgument,
                "a coordinator sweeps by itself: say with --max-size how much may stay");
  AdminRequest request;
  request.kind = AdminRequest::Kind::kCollect;
  request.amount = static_cast<int64_t>(options.max_size);
  return ask_admin(options, std::move(request), kPatience);
}

Result<nlohmann::ordered_json> pin(const Options& options, bool pinned) {
  const auto key = Digest::parse(options.program_key);
  if (!key)
    return fail(Code::kInvalidArgument,
                "a program's key has 64 hex digits; `kiln cache ls` and `kiln compile --json` "
                "print it");
  if (!options.coordinator.empty()) {
    AdminRequest request;
    request.kind = pinned ? AdminRequest::Kind::kPin : AdminRequest::Kind::kUnpin;
    request.key = *key;
    return ask_admin(options, std::move(request), kPatience);
  }
  TRY(const auto cache, open_here(options, false));
  const nlohmann::ordered_json report = {{"program", key->hex()}, {"pinned", pinned}};
  AdminAct act = act_here((pinned ? "pin " : "unpin ") + key->short_hex());
  act.done = true;
  act.outcome = report.dump();
  TRY_STATUS(wait_for_answer<void>([&](auto done) {
    if (pinned)
      cache->pin(*key, done, act);
    else
      cache->unpin(*key, done, act);
  }));
  return report;
}

double mib(const nlohmann::ordered_json& report, const char* bytes) {
  return static_cast<double>(report.value(bytes, int64_t{0})) / (1 << 20);
}

int failed(const Error& error) {
  print_error("", error);
  return exit_code_of_store(error);
}

int set_pin(const Options& options, bool pinned) {
  const auto done = pin(options, pinned);
  if (!done) return failed(done.error());
  if (options.json)
    std::printf("%s\n", done->dump().c_str());
  else
    std::printf("%s %s\n", options.program_key.c_str(),
                pinned ? "is pinned" : "is not pinned any more");
  return kDone;
}

}  // namespace

int cache_gc_command(const Options& options) {
  const auto done = collect(options);
  if (!done) return failed(done.error());
  const bool reached = done->value("reached", false);
  if (options.json) {
    std::printf("%s\n", done->dump().c_str());
  } else {
    std::fputs(fmt::format("freed {:.1f} MiB: {} programs, {} entries; {:.1f} MiB stored\n",
                           mib(*done, "freed_bytes"), done->value("programs", int64_t{0}),
                           done->value("entries", int64_t{0}), mib(*done, "stored_bytes"))
                   .c_str(),
               stdout);
    if (const auto files = done->value("damaged_files", int64_t{0}); files > 0)
      std::fputs(fmt::format("removed {} files ({:.1f} MiB) that were set aside as damaged more "
                             "than a week ago\n",
                             files, mib(*done, "damaged_bytes"))
                     .c_str(),
                 stdout);
    if (!reached) print_error("", {Code::kUnavailable, done->value("reason", ""), 0});
  }
  return reached ? kDone : kAnswerIsNo;
}

int cache_pin_command(const Options& options) {
  return set_pin(options, true);
}

int cache_unpin_command(const Options& options) {
  return set_pin(options, false);
}

}  // namespace kiln::cli
