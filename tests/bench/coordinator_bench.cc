// What a coordinator does for those who ask for something it has, over loopback, CURVE off:
//   fetch     a fresh connection fetches a cached program: hello, look-up, manifest, blobs;
//   look-ups  keys looked up a second, pipelined over several connections, load generator beside
//   it.
// The programs were "tuned" by a scripted worker: what is in the binaries does not matter here.
// `--json` prints one object. Goals: fetch p50 under 1 ms, p99 under 5 ms; 30,000 look-ups a
// second.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "compiler_core/base/clock.h"
#include "compiler_core/ir/builder.h"
#include "coordinator/service/service.h"
#include "tests/coordinator/fake_fleet.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kBinaryBytes = 24'000;  // what a CPU kernel's shared object weighs
constexpr int kPrograms = 64;            // distinct keys of the look-ups
constexpr int kConnections = 4, kWindow = 64;
constexpr int kFetches = 2'000;
constexpr auto kLookUpTime = std::chrono::seconds(3);

// `layers` matmuls of different sizes in a row: as many kernels.
NormalForm chain(int layers) {
  GraphBuilder builder;
  NodeId x = builder.input(DType::kF32, {32, 64});
  for (int i = 1; i <= layers; ++i) {
    const Shape weight = {builder.shape(x)[1], 64 + 16 * i};
    x = builder.matmul(x, builder.input(DType::kF32, weight));
  }
  auto graph = builder.finish({x});
  CHECK(graph.has_value(), graph ? "" : graph.error().message);
  auto form = normalise(*graph);
  CHECK(form.has_value(), form ? "" : form.error().message);
  return *std::move(form);
}

Program tuned(TestClient& client, const NormalForm& graph) {
  const CompileReply reply = client.compile(graph, client.request_for(graph, Mode::kDefault));
  CHECK(reply.outcome.has_value(), reply.outcome ? "" : reply.outcome.error().message);
  auto program = program_from_json(reply.program_json);
  CHECK(program.has_value(), program ? "" : program.error().message);
  return *std::move(program);
}

struct Fetches {
  double p50_ms = 0, p99_ms = 0, max_ms = 0;
  size_t kernels = 0, bytes = 0;
};

Fetches fetch_afresh(const std::string& endpoint, const NormalForm& graph, const Program& program) {
  std::vector<Digest> digests;
  for (const ProgramKernel& kernel : program.kernels) digests.push_back(kernel.blob);
  Fetches result;
  result.kernels = digests.size();
  std::vector<double> times_ms;
  for (int i = 0; i < kFetches; ++i) {
    const auto start = Clock::now();
    TestClient client(endpoint);
    const CompileReply reply = client.compile(graph, client.request_for(graph, Mode::kDefault));
    const auto blobs = client.fetch(digests);
    times_ms.push_back(1000 * seconds_since(start));
    CHECK(reply.outcome == CacheOutcome::kHit, "the program is cached");
    CHECK(blobs.blobs.size() == digests.size(), "every blob came");
    result.bytes = reply.program_json.size();
    for (const std::string& blob : blobs.blobs) result.bytes += blob.size();
  }
  std::ranges::sort(times_ms);
  result.p50_ms = times_ms[times_ms.size() / 2];
  result.p99_ms = times_ms[times_ms.size() * 99 / 100];
  result.max_ms = times_ms.back();
  return result;
}

// One connection that keeps kWindow look-ups in flight until `end`; how many were answered.
int64_t look_up(const std::string& endpoint, const std::vector<NormalForm>& graphs,
                Clock::time_point end) {
  TestClient client(endpoint);
  size_t next = 0;
  const auto ask = [&] {
    CompileRequest request = client.request_for(graphs[next++ % graphs.size()], Mode::kDefault);
    request.check_only = true;
    CHECK(client.connection->send(request).has_value(), "the coordinator takes requests");
  };
  for (int i = 0; i < kWindow; ++i) ask();
  int64_t answered = 0;
  while (Clock::now() < end) {
    const auto message = client.connection->receive(5'000);
    const auto* reply = message ? std::get_if<CompileReply>(&*message) : nullptr;
    CHECK(reply != nullptr && reply->outcome == CacheOutcome::kHit, "a look-up hits");
    ++answered;
    ask();
  }
  return answered;
}

double look_ups_per_s(const std::string& endpoint, const std::vector<NormalForm>& graphs) {
  std::atomic<int64_t> answered = 0;
  const auto start = Clock::now();
  std::vector<std::thread> threads;
  for (int i = 0; i < kConnections; ++i) {
    threads.emplace_back([&] { answered += look_up(endpoint, graphs, start + kLookUpTime); });
  }
  for (std::thread& thread : threads) thread.join();
  return static_cast<double>(answered) / seconds_since(start);
}

int run(bool json) {
  const auto dir = TempDir::create("kiln-bench");
  CHECK(dir.has_value(), "there is a temporary directory");
  ServiceOptions options;
  options.data_dir = dir->path();
  auto service = Service::start(std::move(options));
  CHECK(service.has_value(), service ? "" : service.error().message);
  const std::string& endpoint = (*service)->endpoint();

  const NormalForm layers = chain(6);
  std::vector<NormalForm> graphs;
  Program program;
  {
    Tally tally;
    FakeWorkerOptions worker_options;
    worker_options.binary_bytes = kBinaryBytes;
    const FakeWorker worker(endpoint, tally, worker_options);
    TestClient client(endpoint);
    program = tuned(client, layers);
    for (int i = 0; i < kPrograms; ++i) {
      graphs.push_back(test_graph(i + 3));
      tuned(client, graphs.back());
    }
  }
  const Fetches fetches = fetch_afresh(endpoint, layers, program);
  const double rate = look_ups_per_s(endpoint, graphs);
  if (json) {
    fmt::print(
        "{{\"fetch_p50_ms\": {:.3f}, \"fetch_p99_ms\": {:.3f}, \"fetch_max_ms\": {:.3f}, "
        "\"fetch_kernels\": {}, \"fetch_bytes\": {}, \"look_ups_per_s\": {:.0f}}}\n",
        fetches.p50_ms, fetches.p99_ms, fetches.max_ms, fetches.kernels, fetches.bytes, rate);
    return 0;
  }
  fmt::print("cached program, fresh connection ({} kernels, {} bytes, {} fetches)\n",
             fetches.kernels, fetches.bytes, kFetches);
  fmt::print("  p50 {:.3f} ms ({:.2f}x of the goal of 1 ms)\n", fetches.p50_ms, fetches.p50_ms);
  fmt::print("  p99 {:.3f} ms ({:.2f}x of the goal of 5 ms), max {:.3f} ms\n", fetches.p99_ms,
             fetches.p99_ms / 5, fetches.max_ms);
  fmt::print("look-ups ({} connections, {} in flight each)\n", kConnections, kWindow);
  fmt::print("  {:.0f}/s ({:.2f}x of the goal of 30,000/s)\n", rate, rate / 30'000);
  return 0;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  const bool json = argc == 2 && std::string_view(argv[1]) == "--json";
  if (argc > 1 && !json) {
    fmt::print(stderr, "usage: {} [--json]\n", argv[0]);
    return 2;
  }
  return kiln::run(json);
}
