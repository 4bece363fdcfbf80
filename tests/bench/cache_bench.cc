// A store alone: look-ups and durable writes a second.
//   cache_bench [DIRECTORY]           a KernelCache, in a scratch directory made below it (default: the
//                                     temporary one)
//   cache_bench DIRECTORY URL BLOBS   a PostgresStore: postgresql://... of an empty database, and
//                                     s3://BUCKET/PREFIX or a folder
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <semaphore>
#include <vector>

#include "cache/kernel_cache.h"
#include "cache/objects/s3_settings.h"
#include "cache/postgres/postgres_store.h"
#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrograms = 1000;
constexpr int kLookups = 20'000;
constexpr int kRecords = 20'000;

template <class Work>
void report(const char* what, int count, Work work) {
  const auto start = Clock::now();
  work();
  const double took = seconds_since(start);
  fmt::print("{:<48} {:>9.0f} /s  ({} in {:.3f} s)\n", what, count / took, count, took);
}

// `ask(n, then)`, so many at once. Every look-up must hit: a rate of misses would say nothing.
template <class Ask>
void look_up(const char* what, int outstanding, Ask ask) {
  std::counting_semaphore<> places(outstanding);
  std::atomic<int> missed{0};
  std::vector<double> took_us(kLookups);
  const auto begun = Clock::now();
  for (int i = 0; i < kLookups; ++i) {
    places.acquire();
    ask(i * 7 % kPrograms, [&, i, start = Clock::now()](bool hit) {
      took_us[static_cast<size_t>(i)] = seconds_since(start) * 1e6;
      missed += hit ? 0 : 1;
      places.release();
    });
  }
  for (int i = 0; i < outstanding; ++i) places.acquire();
  const double took = seconds_since(begun);
  CHECK(missed == 0, "everything asked for was put");
  std::ranges::sort(took_us);
  fmt::print("{:<48} {:>9.0f} /s  (p50 {:.0f} us, p99 {:.0f} us)\n",
             fmt::format("{}, {} at once", what, outstanding), kLookups / took,
             took_us[kLookups / 2], took_us[kLookups * 99 / 100]);
}

void run(Store& store) {
  report("put blob + kernel + program, queued", kPrograms, [&] {
    for (int n = 0; n < kPrograms; ++n) {
      store.put_blob(samples::blob(n), nullptr);
      store.put_kernel(samples::kernel(n), nullptr);
      store.put_program(samples::program(n), nullptr);
    }
    store.flush();
  });
  report("put record, queued (group commit)", kRecords, [&] {
    for (int n = 0; n < kRecords; ++n) store.put_record(samples::record(n), nullptr);
    store.flush();
  });
  report("put record, one at a time", 200, [&] {
    for (int n = 0; n < 200; ++n) (void)samples::put_record(store, kRecords + n);
  });
  std::vector<Digest> programs, blobs;
  for (int n = 0; n < kPrograms; ++n) {
    programs.push_back(samples::key("program", n));
    blobs.push_back(Digest::of(samples::blob(n)));
  }
  for (const int outstanding : {1, 64}) {
    look_up("look up a program", outstanding, [&](int n, auto then) {
      store.look_up_program(
          programs[static_cast<size_t>(n)],
          [then](const Result<StoredProgram>& found) { then(found.has_value()); });
    });
    look_up("read a blob (some 20 KB, checked)", outstanding, [&](int n, auto then) {
      store.look_up_blob(blobs[static_cast<size_t>(n)],
                         [then](const Result<std::string>& found) { then(found.has_value()); });
    });
  }
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

Result<std::unique_ptr<Store>> open(const Path& directory, const char* url, const char* blobs) {
  if (url == nullptr) {
    TRY(auto cache, KernelCache::open(directory));
    return std::unique_ptr<Store>(std::move(cache));
  }
  TRY(auto objects, open_objects(blobs, {s3_settings(environment)}));
  TRY(auto store, PostgresStore::open(url, std::move(objects)));
  return std::unique_ptr<Store>(std::move(store));
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  using namespace kiln;  // NOLINT(google-build-using-namespace)
  const Path base = argc > 1 ? Path(argv[1]) : std::filesystem::temp_directory_path();
  const Path directory = base / fmt::format("kiln-cache-bench-{}", ::getpid());
  {
    const auto store = open(directory, argc > 3 ? argv[2] : nullptr, argc > 3 ? argv[3] : nullptr);
    if (!store) {
      fmt::print(stderr, "{}\n", store.error().message);
      return 1;
    }
    run(**store);
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return 0;
}
