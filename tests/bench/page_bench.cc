// What the web page costs: a coordinator with many programs in its cache and many workers that
// report, each view asked for again and again over HTTP. Prints the median and the slowest of the
// times from the request to the last byte.
//
//   page_bench [PROGRAMS [WORKERS [ROUNDS]]]        10000 200 20
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "coordinator/service/http_front.h"
#include "coordinator/service/service.h"
#include "schema/metrics/metrics_text.h"
#include "schema/zmq/transport.h"
#include "tests/cache/samples.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/http_get.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// Programs of ten kernels each, one of which has records.
void fill(const Path& data_dir, int programs) {
  const auto cache = *KernelCache::open(data_dir);
  for (int n = 0; n < programs; ++n) {
    Program program = samples::program(n);
    for (int k = 1; k < 10; ++k) {
      program.kernels.push_back(program.kernels.front());
      program.kernels.back().key = samples::key("more", 10 * n + k);
      program.launches.push_back({k, {0, 1}});
    }
    CHECK(samples::put_blob(*cache, n).has_value(), "a blob is stored");
    cache->put_kernel(samples::kernel(n), nullptr);
    cache->put_program(program, nullptr);
    if (n < 500) cache->put_record(samples::record(n), nullptr);
  }
  cache->flush();
}

// Workers that report each second and get no work.
class Fleet {
 public:
  Fleet(const std::string& endpoint, int workers) {
    ConnectOptions how;
    how.templates = template_versions();
    for (int n = 0; n < workers; ++n)
      connections_.push_back(*Connection::open(endpoint, Role::kWorker, 5'000, how));
    thread_ = std::thread([this] { run(); });
  }
  ~Fleet() {
    stopping_ = true;
    thread_.join();
  }

 private:
  void run() {
    while (!stopping_) {
      for (size_t n = 0; n < connections_.size(); ++n) {
        WorkerReport report;
        report.worker = fmt::format("gpu-node-{}", n);
        report.target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
        report.toolkit = "NVRTC 13.0";
        report.sentinel_us = 80;
        report.sandbox = "namespaces, landlock, filter, limits";
        (void)connections_[n]->send(report);
        while (connections_[n]->receive(0)) {
        }
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  }
  std::vector<std::unique_ptr<Connection>> connections_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

void measure(const std::string& http, const std::string& path, int rounds) {
  std::vector<double> ms;
  size_t bytes = 0;
  for (int i = 0; i < rounds; ++i) {
    const auto start = Clock::now();
    const std::string said = http_get(http, path, "localhost");
    CHECK(said.starts_with("HTTP/1.1 200"), said.substr(0, 400));
    ms.push_back(std::chrono::duration<double, std::milli>(Clock::now() - start).count());
    bytes = said.size();
  }
  std::ranges::sort(ms);
  fmt::print("{:<44} {:8.1f} ms {:8.1f} ms {:8} bytes\n", path.substr(0, 44), ms[ms.size() / 2],
             ms.back(), bytes);
  std::fflush(stdout);
}

struct Spent {
  double loop_s = 0, process_s = 0;
};
Spent spent(const ServiceStatus& status) {
  return {status.latest()->loop.turn.sum_s(), process_use().cpu_s};
}

// What a second costs the loop, and the process, while somebody asks for `path` each second; with an
// empty path nobody does.
void measure_loop(const std::string& http, const ServiceStatus& status, const std::string& path) {
  constexpr int kSeconds = 10;
  const Spent before = spent(status);
  for (int s = 0; s < kSeconds; ++s) {
    if (!path.empty()) (void)http_get(http, path + "?x", "localhost");
    std::this_thread::sleep_for(std::chrono::seconds(1));
  }
  const Spent after = spent(status);
  fmt::print("{:<44} {:8.2f} ms of the loop and {:6.2f} ms of CPU a second\n",
             path.empty() ? "nobody looks" : path + " each second",
             1e3 * (after.loop_s - before.loop_s) / kSeconds,
             1e3 * (after.process_s - before.process_s) / kSeconds);
}

int run(int programs, int workers, int rounds) {
  const TempDir dir = *TempDir::create("kiln-page-bench");
  fill(dir.path(), programs);
  const auto status = std::make_shared<ServiceStatus>();
  const auto front = *HttpFront::open("127.0.0.1:0", status, [] { return 0; });
  ServiceOptions options;
  options.data_dir = dir.path();
  options.status = status;
  const auto service = *Service::start(std::move(options));
  front->attach(service->page());
  {
    const Fleet fleet(service->endpoint(), workers);
    std::this_thread::sleep_for(std::chrono::seconds(3));
    fmt::print("{} programs, {} workers: median and slowest of {}\n", programs, workers, rounds);
    const std::string kernel = samples::key("kernel", 0).hex();
    for (const std::string& path : std::vector<std::string>{
             "/", "/tuning", "/workers", "/workers?limit=200", "/workers?filter=node-7", "/misses",
             "/cache", "/cache?limit=250", "/cache?first=9000&sort=age", "/cache?sort=size",
             "/cache?filter=x86-64-v3", "/cache?filter=" + samples::key("graph", 7).hex(),
             "/program/" + samples::key("program", 7).hex(), "/kernel/" + kernel,
             "/kernel/" + kernel + "?limit=1000", "/cache?format=json", "/audit"})
      measure(front->endpoint(), path, rounds);
    for (const char* path : {"", "/", "", "/cache", ""})
      measure_loop(front->endpoint(), *status, path);
  }
  front->detach();
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  const auto number = [&](int i, int otherwise) {
    return argc > i ? std::atoi(argv[i]) : otherwise;
  };
  return kiln::run(number(1, 10'000), number(2, 200), number(3, 20));
}
