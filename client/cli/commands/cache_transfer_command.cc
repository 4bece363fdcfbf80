// `kiln cache export` and `import`: a store written out to a folder or a bucket, and read in again.
#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <future>
#include <nlohmann/json.hpp>

#include "cache/audit.h"
#include "cache/kernel_cache.h"
#include "cache/objects/s3_settings.h"
#include "cache/postgres/postgres_store.h"
#include "cache/transfer/transfer.h"
#include "client/cli/exit_code.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/base/clock.h"

namespace kiln::cli {
namespace {

using Clock = std::chrono::steady_clock;

ObjectStoreOptions objects_of(const Options& options) {
  ObjectStoreOptions objects{s3_settings(options.variable)};
  if (!options.s3_endpoint.empty()) objects.s3.endpoint = options.s3_endpoint;
  return objects;
}

// One line on a terminal, overwritten.
TransferProgress progress_line() {
  if (::isatty(STDERR_FILENO) == 0) return {};
  return [](int64_t done, int64_t total) {
    std::fputs(
        fmt::format("\r{} of {} binaries\033[K{}", done, total, done == total ? "\r\033[K" : "")
            .c_str(),
        stderr);
  };
}

double mib(int64_t bytes) {
  return static_cast<double>(bytes) / (1 << 20);
}

Result<Exported> export_to(const Options& options, const std::string& place) {
  TRY(const auto to, open_objects(place, objects_of(options)));
  if (!options.store.empty()) {
    TRY(auto blobs, open_objects(options.blobs, objects_of(options)));
    TRY(StoreSource source, StoreSource::of_postgres(options.store, std::move(blobs)));
    return export_store(source, *to, progress_line());
  }
  TRY(StoreSource source, StoreSource::of_directory(options.data_dir));
  return export_store(source, *to, progress_line());
}

struct ImportReport {
  Imported imported;
  bool restored = false;
  AuditReport audit;  // of the whole directory, afterwards; empty of another store
};

// Where to, for people; the URL of a database may hold a password.
std::string place_of(const Options& options) {
  return options.store.empty() ? options.data_dir : options.blobs + " and its database";
}

Status note_import(Store& store, const std::string& place, const Imported& done) {
  AdminAct act = act_of_now("kiln cache import", "", "import " + place);
  act.done = true;
  const nlohmann::ordered_json outcome = {
      {"programs", done.programs}, {"kernels", done.kernels}, {"records", done.records}};
  act.outcome = outcome.dump();
  std::promise<Status> noted;
  store.note(std::move(act), [&noted](Status status) { noted.set_value(std::move(status)); });
  return noted.get_future().get();
}

// A directory that lacks a store becomes one; to a store is added, while nobody serves it.
Result<ImportReport> import_from(const Options& options, const std::string& place) {
  const Path directory = options.data_dir;
  ImportReport report;
  TRY(StoreSource source, StoreSource::open(place, objects_of(options)));
  if (!options.store.empty()) {
    TRY(auto blobs, open_objects(options.blobs, objects_of(options)));
    PostgresStoreOptions store;
    store.address = "kiln cache import";
    TRY(const auto into, PostgresStore::open(options.store, std::move(blobs), std::move(store)));
    TRY(report.imported, merge_store(source, *into, progress_line()));
    TRY_STATUS(note_import(*into, place, report.imported));
    return report;
  }
  std::error_code ignored;
  report.restored = !std::filesystem::exists(directory / "index.sqlite", ignored);
  if (report.restored) {
    TRY(report.imported, restore_store(source, directory, progress_line()));
  } else {
    CacheOptions store;
    store.sweeps = false;
    store.refuse_damaged = true;
    auto cache = KernelCache::open(directory, std::move(store));
    if (!cache && cache.error().code == Code::kUnavailable)
      return fail(Code::kInvalidArgument,
                  cache.error().message + ": stop it first; only where from is read beside one");
    if (!cache) return fail(std::move(cache).error());
    TRY(report.imported, merge_store(source, **cache, progress_line()));
    TRY_STATUS(note_import(**cache, place, report.imported));
  }
  TRY(report.audit, audit(directory));
  return report;
}

nlohmann::ordered_json exported_json(const Options& options, const Exported& done, double seconds) {
  const ExportFacts& facts = done.facts;
  return {{"data_dir", options.store.empty() ? options.data_dir : ""},
          {"blobs_place", options.blobs},
          {"to", options.files.front()},
          {"programs", facts.programs},
          {"kernels", facts.kernels},
          {"blobs", facts.blobs},
          {"records", facts.records},
          {"blob_bytes", facts.blob_bytes},
          {"missing_blobs", facts.missing_blobs},
          {"written_blobs", done.written_blobs},
          {"written_bytes", done.written_bytes},
          {"read_back", done.read_back},
          {"seconds", seconds}};
}

nlohmann::ordered_json imported_json(const Options& options, const ImportReport& report,
                                     double seconds) {
  const Imported& done = report.imported;
  return {{"data_dir", options.store.empty() ? options.data_dir : ""},
          {"blobs_place", options.blobs},
          {"from", options.files.front()},
          {"restored", report.restored},
          {"programs", done.programs},
          {"kernels", done.kernels},
          {"blobs", done.blobs},
          {"records", done.records},
          {"blob_bytes", done.bytes},
          {"present", done.present},
          {"revoked", done.revoked},
          {"incomplete", done.incomplete},
          {"damaged", done.damaged},
          {"bad", report.audit.findings.size()},
          {"seconds", seconds}};
}

int failed(const Options& options, const Error& error) {
  (void)report_failure(options, "", error);
  return exit_code_of_store(error);
}

}  // namespace

int cache_export_command(const Options& options) {
  const auto started = Clock::now();
  const auto done = export_to(options, options.files.front());
  if (!done) return failed(options, done.error());
  const double seconds = ms_since(started) / 1000;
  if (options.json) {
    std::printf("%s\n", exported_json(options, *done, seconds).dump().c_str());
    return kDone;
  }
  const ExportFacts& facts = done->facts;
  fmt::print(
      "{}: {} programs, {} kernels, {} blobs ({:.1f} MiB), {} records; {} blobs written, the "
      "others "
      "were there; {} read back; {:.1f} s\n",
      options.files.front(), facts.programs, facts.kernels, facts.blobs, mib(facts.blob_bytes),
      facts.records, done->written_blobs, done->read_back, seconds);
  if (facts.missing_blobs > 0)
    fmt::print(
        "{} blobs were evicted meanwhile, or are damaged: what needs them will be left out\n",
        facts.missing_blobs);
  return kDone;
}

int cache_import_command(const Options& options) {
  const auto started = Clock::now();
  const auto report = import_from(options, options.files.front());
  if (!report) return failed(options, report.error());
  const double seconds = ms_since(started) / 1000;
  const Imported& done = report->imported;
  if (options.json) {
    std::printf("%s\n", imported_json(options, *report, seconds).dump().c_str());
  } else {
    fmt::print(
        "{}: {} {} programs and {} kernels; read {} blobs ({:.1f} MiB), {} records; {:.1f} s\n",
        place_of(options), report->restored ? "restored" : "added", done.programs, done.kernels,
        done.blobs, mib(done.bytes), done.records, seconds);
    if (done.present + done.revoked + done.incomplete + done.damaged > 0)
      fmt::print(
          "left out: {} that are there already, {} taken back here, {} without their blobs, {} "
          "damaged\n",
          done.present, done.revoked, done.incomplete, done.damaged);
  }
  if (report->audit.findings.empty()) return kDone;
  std::fprintf(stderr, "kiln: %s: %zu entries are bad: `kiln cache verify` lists them\n",
               options.data_dir.c_str(), report->audit.findings.size());
  return kAnswerIsNo;
}

}  // namespace kiln::cli
