// A large store: how long a coordinator takes from exec to its first answered look-up, with the
// page cache of the index dropped, and what a look-up costs in the cache itself.
//   cache_restart [--entries N] [--records N] [--directory DIR] [--keep] [--json]
// The directory is filled through the index's own code, many rows to a transaction; half of the
// entries are programs, half the kernels they name, each with a file of its own. A directory that
// was kept is used again. --drop-caches drops the whole machine's (root), directories included.
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <csignal>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "cache/index.h"
#include "cache/kernel_cache.h"
#include "compiler_core/base/check.h"
#include "compiler_core/base/clock.h"
#include "schema/zmq/transport.h"
#include "tests/cache/samples.h"
#include "tests/support/process.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRowsATransaction = 20'000;
constexpr int kLookUps = 20'000;
constexpr int kRecordsAKernel = 20;

struct Flags {
  int entries = 1'000'000, records = 1'000'000;
  std::string directory;
  bool keep = false, json = false, drop_caches = false;
};

const Target kTarget{Backend::kCpu, "x86-64-v3", "model", 2, {}};

Digest program_key_of(int n) {
  return program_key(samples::key("graph", n), kTarget, Mode::kMaxAutotune);
}

std::string small_blob(int n) {
  return fmt::format("the binary of kernel {:>1000}", n);
}

// Not synced: nobody answered that it is stored.
void write_blob(const Path& root, const std::string& bytes) {
  const std::string name = Digest::of(bytes).hex();
  CHECK(write_file(root / name.substr(0, 2) / name, bytes), "the disk takes the blobs");
}

template <class Row>
void in_transactions(CacheIndex& index, int count, Row row) {
  for (int first = 0; first < count; first += kRowsATransaction) {
    CHECK(index.begin(), "the index is ours");
    for (int n = first; n < std::min(count, first + kRowsATransaction); ++n)
      CHECK(row(n), "the index takes the row");
    CHECK(index.commit(), "the disk takes the rows");
  }
}

void fill(const Path& directory, const Digest& stamp, const Flags& flags) {
  const auto start = Clock::now();
  for (int shelf = 0; shelf < BlobStore::kShards; ++shelf)
    CHECK(make_directories(directory / "blobs" / fmt::format("{:02x}", shelf)), "a directory");
  auto index = CacheIndex::open_for_writing(directory / "index.sqlite").value();
  const int kernels = flags.entries / 2;
  in_transactions(index, kernels, [&](int n) -> Status {
    const std::string bytes = small_blob(n);
    write_blob(directory / "blobs", bytes);
    StoredKernel kernel = samples::kernel(n);
    kernel.kernel.blob = Digest::of(bytes);
    TRY_STATUS(index.put_blob(kernel.kernel.blob, static_cast<int64_t>(bytes.size())));
    TRY_STATUS(index.put_kernel({kernel.kernel, kernel.tuned_on}));
    Program program = samples::program(n);
    program.key = program_key_of(n);
    program.template_stamp = stamp;
    program.kernels = {kernel.kernel};
    return index.put_program(program.key, {program_to_json(program), {kernel.kernel.blob}});
  });
  in_transactions(index, flags.records, [&](int n) {
    TuningRecord record = samples::record(n);
    record.kernel_key = samples::key("kernel", n / kRecordsAKernel);
    return index.put_record(record);
  });
  fmt::print(stderr, "filled in {:.0f} s\n", seconds_since(start));
}

// As after a reboot, for the index alone or for everything.
void forget_pages(const Path& directory, const Flags& flags) {
  ::sync();
  if (flags.drop_caches) {
    CHECK(write_file("/proc/sys/vm/drop_caches", "3"), "--drop-caches is for root");
    return;
  }
  for (const char* name : {"index.sqlite", "index.sqlite-wal"}) {
    const int fd = ::open((directory / name).c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) continue;
    ::posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    ::close(fd);
  }
}

struct Start {
  double ready_s = 0, answered_s = 0, stop_s = 0;
};

testing::Child run_coordinator(const Path& directory, std::string& endpoint) {
  const Path out = directory / "coordinator.out";
  std::filesystem::remove(out);  // of an earlier start
  auto child = testing::Child::start(
      {testing::binary("kiln-coordinator"), "--data-dir", directory.string(), "--listen",
       "tcp://127.0.0.1:0", "--http", "none", "--log-level", "warn"},
      out, directory / "coordinator.err");
  while (endpoint.empty()) {
    CHECK(child.running(), "the coordinator starts");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::string text = read_file(out).value_or("");
    if (text.starts_with("ready ") && text.ends_with('\n'))
      endpoint = text.substr(6, text.size() - 7);
  }
  return child;
}

// Programs hold it: of another one they are stale for that coordinator.
Digest stamp_of_coordinator() {
  const TempDir empty = TempDir::create("kiln-cache-restart").value();
  std::string endpoint;
  const auto child = run_coordinator(empty.path(), endpoint);
  return Connection::open(endpoint, Role::kClient, 10'000).value()->welcome().template_stamp;
}

// From exec to the ready line, and to the answer to a look-up that was sent right after.
Start start_coordinator(const Path& directory, const Digest& stamp, int program) {
  const auto start = Clock::now();
  std::string endpoint;
  auto child = run_coordinator(directory, endpoint);
  Start result;
  result.ready_s = seconds_since(start);
  const auto connection = Connection::open(endpoint, Role::kClient, 10'000).value();
  CHECK(connection->welcome().template_stamp == stamp, "the same coordinator");
  CompileRequest request;
  request.request = 1;
  request.graph = samples::key("graph", program);
  request.target = kTarget;
  request.mode = Mode::kMaxAutotune;
  request.check_only = true;
  CHECK(connection->send(request), "it listens");
  const Message answer = connection->receive(60'000).value();
  result.answered_s = seconds_since(start);
  const auto* reply = std::get_if<CompileReply>(&answer);
  CHECK(reply != nullptr && reply->outcome == CacheOutcome::kHit, "what is stored is a hit");
  const auto stop = Clock::now();
  child.signal(SIGTERM);
  child.wait();
  result.stop_s = seconds_since(stop);
  return result;
}

struct LookUps {
  double p50_us = 0, p99_us = 0;
};

// Programs at random, each found, on one thread.
LookUps look_up(KernelCache& cache, int programs) {
  std::mt19937 random(11);
  std::vector<double> times_us;
  for (int i = 0; i < kLookUps; ++i) {
    const auto n = static_cast<int>(random() % static_cast<unsigned>(programs));
    const Digest key = program_key_of(n);
    const auto start = Clock::now();
    CHECK(cache.program(key), "what is stored is found");
    times_us.push_back(1e6 * seconds_since(start));
  }
  std::ranges::sort(times_us);
  return {times_us[kLookUps / 2], times_us[kLookUps * 99 / 100]};
}

int run(const Flags& flags) {
  const Path base = flags.directory.empty()
                        ? std::filesystem::temp_directory_path() / "kiln-cache-restart"
                        : Path(flags.directory);
  const Digest stamp = stamp_of_coordinator();
  const Path directory = base / fmt::format("{}", flags.entries);
  if (!std::filesystem::exists(directory / "index.sqlite")) {
    CHECK(make_directories(directory), "a directory");
    fill(directory, stamp, flags);
  }
  nlohmann::ordered_json report = {
      {"entries", flags.entries},
      {"records", flags.records},
      {"index_bytes", std::filesystem::file_size(directory / "index.sqlite")}};
  for (const bool cold : {true, false}) {
    if (cold) forget_pages(directory, flags);
    const Start start = start_coordinator(directory, stamp, flags.entries / 3);
    const char* how = cold ? "cold" : "warm";
    report[how] = {
        {"ready_s", start.ready_s}, {"first_answer_s", start.answered_s}, {"stop_s", start.stop_s}};
  }
  {
    const auto cache = KernelCache::open(directory).value();
    for (const char* pass : {"first_pass", "second_pass"}) {
      const LookUps times = look_up(*cache, flags.entries / 2);
      report[pass] = {{"look_up_p50_us", times.p50_us}, {"look_up_p99_us", times.p99_us}};
    }
    const auto totals = Clock::now();
    CHECK(cache->totals().records == flags.records, "every record is counted");
    report["totals_us"] = 1e6 * seconds_since(totals);
  }
  fmt::print("{}\n", report.dump(flags.json ? -1 : 2));
  std::error_code ignored;
  if (!flags.keep) std::filesystem::remove_all(directory, ignored);
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  kiln::Flags flags;
  CLI::App app("Restart and look-ups of a large store.", "cache_restart");
  app.add_option("--entries", flags.entries, "programs and kernels together")
      ->capture_default_str();
  app.add_option("--records", flags.records, "tuning records")->capture_default_str();
  app.add_option("--directory", flags.directory, "where it is filled (default: below /tmp)");
  app.add_flag("--keep", flags.keep, "leave the directory, and use one that was left");
  app.add_flag("--drop-caches", flags.drop_caches, "drop the whole machine's page cache first");
  app.add_flag("--json", flags.json, "one line");
  CLI11_PARSE(app, argc, argv);
  return kiln::run(flags);
}
