// The kernel cache alone, on this machine's disk: look-ups and durable writes a second.
//   cache_bench [DIRECTORY]        a scratch directory is made below it (default: the temporary
//   one)
#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "cache/kernel_cache.h"
#include "compiler_core/base/check.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

constexpr int kPrograms = 1000;
constexpr int kLookups = 200'000;
constexpr int kRecords = 20'000;

template <class Work>
double seconds(Work work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void report(const char* what, int count, double took) {
  fmt::print("{:<44} {:>9.0f} /s  ({} in {:.3f} s)\n", what, count / took, count, took);
}

// Every look-up must hit: a rate of misses would say nothing.
template <class Lookup>
void look_up(const char* what, int threads, Lookup lookup) {
  std::atomic<int> missed{0};
  const double took = seconds([&] {
    std::vector<std::thread> pool;
    for (int thread = 0; thread < threads; ++thread)
      pool.emplace_back([&, thread] {
        for (int i = 0; i < kLookups / threads; ++i)
          if (!lookup((i * 7 + thread) % kPrograms)) ++missed;
      });
    for (std::thread& thread : pool) thread.join();
  });
  CHECK(missed == 0, "everything asked for was put");
  report(fmt::format("{}, {} thread(s)", what, threads).c_str(), kLookups, took);
}

int run(const Path& base) {
  const Path directory = base / fmt::format("kiln-cache-bench-{}", ::getpid());
  auto opened = KernelCache::open(directory);
  if (!opened) {
    fmt::print(stderr, "{}\n", opened.error().message);
    return 1;
  }
  const std::unique_ptr<KernelCache> cache = *std::move(opened);
  std::vector<Digest> programs, kernels, blobs;
  report("put blob + kernel + program, queued", kPrograms, seconds([&] {
           for (int n = 0; n < kPrograms; ++n) {
             programs.push_back(samples::key("program", n));
             kernels.push_back(samples::key("kernel", n));
             blobs.push_back(Digest::of(samples::blob(n)));
             cache->put_blob(samples::blob(n), nullptr);
             cache->put_kernel(samples::kernel(n), nullptr);
             cache->put_program(samples::program(n), nullptr);
           }
           cache->flush();
         }));
  report("put record, queued (group commit)", kRecords, seconds([&] {
           for (int n = 0; n < kRecords; ++n) cache->put_record(samples::record(n), nullptr);
           cache->flush();
         }));
  report("put record, one at a time", 500, seconds([&] {
           for (int n = 0; n < 500; ++n) (void)samples::put_record(*cache, kRecords + n);
         }));
  for (int threads : {1, 2}) {
    look_up("look up a program", threads,
            [&](int n) { return cache->program(programs[static_cast<size_t>(n)]).has_value(); });
    look_up("look up a kernel", threads,
            [&](int n) { return cache->kernel(kernels[static_cast<size_t>(n)]).has_value(); });
    look_up("read a blob (some 20 KB, checked)", threads,
            [&](int n) { return cache->blob(blobs[static_cast<size_t>(n)]).has_value(); });
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  return kiln::run(argc > 1 ? kiln::Path(argv[1]) : std::filesystem::temp_directory_path());
}
