// A large store: how fast `kiln cache import` takes it from SQLite to PostgreSQL, `kiln cache export`
// back, and what a look-up costs in it on both engines. PostgreSQL is its own, on the loopback, with
// fsync; binaries are shared by ten kernels, so that rows are what is measured.
//   import_bench [--programs N] [--kernels N] [--lookups N]
// Fewer kernels than programs are shared.
#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <random>
#include <semaphore>
#include <vector>

#include "cache/kernel_cache.h"
#include "cache/postgres/postgres_store.h"
#include "cache/transfer/transfer.h"
#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "tests/cache/samples.h"
#include "tests/support/postgres_server.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kAhead = 10'000;     // puts
constexpr int kShareABinary = 10;  // kernels

StoredKernel kernel_of(int n, const std::vector<Digest>& binaries) {
  const int binary = n % static_cast<int>(binaries.size());
  StoredKernel stored = samples::kernel(binary);
  stored.kernel.key = samples::key("kernel", n);
  stored.kernel.workload = samples::key("workload", n);
  stored.kernel.blob = binaries[static_cast<size_t>(binary)];
  return stored;
}

// Each program has one of the kernels, each kernel a record.
void fill(Store& store, int programs, int kernels) {
  std::vector<Digest> binaries;
  for (int n = 0; n <= kernels / kShareABinary; ++n) {
    binaries.push_back(Digest::of(samples::blob(n)));
    CHECK(samples::put_blob(store, n), "a binary is put");
  }
  std::atomic<int> failed{0};
  const auto counting = [&](const Status& status) { failed += status ? 0 : 1; };
  for (int n = 0; n < programs; ++n) {
    const StoredKernel kernel = kernel_of(n % kernels, binaries);
    Program program = samples::program(0);
    program.key = samples::key("program", n);
    program.kernels = {kernel.kernel};
    if (n < kernels) {
      TuningRecord record = samples::record(n);
      record.kernel_key = kernel.kernel.key;
      store.put_kernel(kernel, counting);
      store.put_record(record, counting);
    }
    store.put_program(program, counting);
    if (n % kAhead == 0) store.flush();
  }
  store.flush();
  CHECK(failed == 0, "everything is put");
}

// Every look-up must hit: a rate of misses would say nothing.
void look_up(const char* engine, Store& store, int programs, int lookups, int outstanding) {
  std::counting_semaphore<> places(outstanding);
  std::atomic<int> missed{0};
  std::vector<double> took_us(static_cast<size_t>(lookups));
  std::minstd_rand random(7);
  const auto begun = Clock::now();
  for (double& took : took_us) {
    const Digest key =
        samples::key("program", static_cast<int>(random() % static_cast<unsigned>(programs)));
    places.acquire();
    store.look_up_program(key, [&, start = Clock::now()](const Result<StoredProgram>& found) {
      took = seconds_since(start) * 1e6;
      missed += found ? 0 : 1;
      places.release();
    });
  }
  for (int i = 0; i < outstanding; ++i) places.acquire();
  const double took = seconds_since(begun);
  CHECK(missed == 0, "everything asked for was put");
  std::ranges::sort(took_us);
  fmt::print("look-ups on {:<10} {:>2} at once: {:>7.0f} /s, p50 {:.0f} us, p99 {:.0f} us\n",
             engine, outstanding, lookups / took, took_us[took_us.size() / 2],
             took_us[took_us.size() * 99 / 100]);
}

Status run(int programs, int kernels, int lookups) {
  TRY(const TempDir dir, TempDir::create("kiln-import-bench"));
  TRY(const auto server, testing::PostgresServer::start());
  const std::string url = server->new_database();
  const int64_t rows = int64_t{programs} + 2 * int64_t{kernels};
  CacheOptions options;
  options.sweeps = false;
  TRY(const auto one_disk, KernelCache::open(dir.path() / "from", std::move(options)));
  auto started = Clock::now();
  fill(*one_disk, programs, kernels);
  fmt::print("{} programs, {} kernels and as many records, into SQLite: {:.0f} rows/s ({:.1f} s)\n",
             programs, kernels, static_cast<double>(rows) / seconds_since(started),
             seconds_since(started));
  const std::string folder = (dir.path() / "blobs").string();
  TRY(auto objects, open_objects(folder, {}));
  TRY(const auto several, PostgresStore::open(url, std::move(objects)));
  started = Clock::now();
  {
    TRY(StoreSource source, StoreSource::of_directory(dir.path() / "from"));
    TRY(const Imported done, merge_store(source, *several));
    CHECK(done.programs == programs && done.kernels == kernels, "all of it is taken over");
  }
  fmt::print("import, read back and checked: {:.0f} rows/s ({:.1f} s)\n",
             static_cast<double>(rows) / seconds_since(started), seconds_since(started));
  for (const int outstanding : {1, 64}) {
    look_up("SQLite", *one_disk, programs, lookups, outstanding);
    look_up("PostgreSQL", *several, programs, lookups, outstanding);
  }
  started = Clock::now();
  TRY(auto from, open_objects(folder, {}));
  TRY(const auto to, open_objects((dir.path() / "export").string(), {}));
  TRY(StoreSource source, StoreSource::of_postgres(url, std::move(from)));
  TRY(const Exported done, export_store(source, *to));
  CHECK(done.facts.programs == programs, "all of it is written out");
  fmt::print("export, beside the writer: {:.0f} rows/s ({:.1f} s)\n",
             static_cast<double>(rows) / seconds_since(started), seconds_since(started));
  return {};
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // it takes long
  int programs = 100'000, kernels = 0, lookups = 20'000;
  CLI::App app("Import, export and look-ups of a large store");
  app.add_option("--programs", programs)->check(CLI::PositiveNumber);
  app.add_option("--kernels", kernels, "default: one a program")->check(CLI::PositiveNumber);
  app.add_option("--lookups", lookups)->check(CLI::PositiveNumber);
  CLI11_PARSE(app, argc, argv);
  const kiln::Status done =
      kiln::run(programs, kernels > 0 ? std::min(kernels, programs) : programs, lookups);
  if (done) return 0;
  fmt::print(stderr, "{}\n", done.error().message);
  return 1;
}
