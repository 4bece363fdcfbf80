// Look-ups of one coordinator beside those of several on one store: the one that leads, then followers
// together. The generator runs on the same cores, so what counts is the CPU time of the coordinators
// a look-up: N of them with a core each answer N times what one does if that stays the same.
//   follower_bench [--followers N] [--seconds S] [--programs N]
#include <fmt/format.h>
#include <time.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <thread>

#include "tests/cache/objects/places.h"
#include "tests/coordinator/fake_fleet.h"
#include "tests/support/loopback.h"
#include "tests/support/postgres_server.h"

namespace kiln {
namespace {

constexpr int kWindow = 64;  // look-ups under way on a connection

struct Coordinator {
  testing::Child child = testing::Child::none();
  std::string endpoint;

  double cpu_s() const {
    clockid_t clock{};
    timespec cpu{};
    if (clock_getcpuclockid(child.pid(), &clock) == 0) clock_gettime(clock, &cpu);
    return static_cast<double>(cpu.tv_sec) + 1e-9 * static_cast<double>(cpu.tv_nsec);
  }
};

Coordinator start(const Path& directory, const std::string& store, const std::string& objects,
                  const char* how) {
  Coordinator started;
  started.endpoint = fmt::format("tcp://127.0.0.1:{}", free_port());
  const Path out = Path(directory) += ".out";
  started.child = testing::Child::start(
      {testing::binary("kiln-coordinator"), "--data-dir", directory, "--store", store, "--blobs",
       objects, "--listen", started.endpoint, "--http", "none", "--log-level", "warn", how},
      out, Path(directory) += ".err");
  CHECK(eventually([&] { return read_file(out).value_or("").ends_with("\n"); }, 60),
        "the coordinator starts");
  return started;
}

// Asks for programs in turn until `stop`; how many answers were hits.
int64_t ask(const std::string& endpoint, int programs, const std::atomic<bool>& stop) {
  ConnectOptions options;
  options.follower_will_do = true;
  TestClient client(Connection::open(endpoint, Role::kClient, 10'000, options).value());
  std::vector<CompileRequest> requests;
  for (int n = 0; n < programs; ++n) requests.push_back(client.request_for(test_graph(n)));
  int64_t hits = 0, under_way = 0;
  for (uint64_t next = 0; !stop || under_way > 0;) {
    while (!stop && under_way < kWindow) {
      CompileRequest& request = requests[next++ % requests.size()];
      request.request = next;
      CHECK(client.connection->send(request), "it takes look-ups");
      ++under_way;
    }
    const auto message = client.connection->receive(10'000);
    CHECK(message.has_value(), "it answers");
    const auto* reply = std::get_if<CompileReply>(&*message);
    CHECK(reply != nullptr && reply->outcome, "each is a hit");
    ++hits;
    --under_way;
  }
  return hits;
}

void measure(const char* what, const std::vector<const Coordinator*>& coordinators, int programs,
             double seconds) {
  std::atomic<bool> stop{false};
  std::atomic<int64_t> hits{0};
  double cpu_s = 0;
  for (const Coordinator* each : coordinators) cpu_s -= each->cpu_s();
  std::vector<std::thread> threads;
  for (const Coordinator* each : coordinators)
    threads.emplace_back([&, each] { hits += ask(each->endpoint, programs, stop); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (const Coordinator* each : coordinators) cpu_s += each->cpu_s();
  const auto count = static_cast<double>(hits);
  fmt::print(
      "{:>12}: {:>8.0f} look-ups, {:.2f} us of CPU each: {:.0f} a CPU-second, {:.0f} with a core "
      "for each\n",
      what, count, 1e6 * cpu_s / count, count / cpu_s,
      count / cpu_s * static_cast<double>(coordinators.size()));
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  using namespace kiln;  // NOLINT(google-build-using-namespace)
  int followers = 3, programs = 32;
  double seconds = 5;
  CLI::App app("Look-ups of one coordinator, and of several that follow");
  app.add_option("--followers", followers);
  app.add_option("--programs", programs);
  app.add_option("--seconds", seconds);
  CLI11_PARSE(app, argc, argv);
  const TempDir dir = TempDir::create("kiln-followers").value();
  FolderPlace objects;
  const auto server = testing::PostgresServer::start();
  CHECK(server.has_value(), server ? "" : server.error().message);
  const std::string store = (*server)->new_database();
  const Coordinator leader = start(dir.path() / "leader", store, objects.url(), "--standby");
  {
    Tally tally;
    const FakeWorker worker(leader.endpoint, tally, FakeWorkerOptions{});
    for (int n = 0; n < programs; ++n)
      CHECK(TestClient(leader.endpoint).compile(test_graph(n)).outcome.has_value(), "it is tuned");
  }
  std::vector<Coordinator> following;
  for (int n = 0; n < followers; ++n)
    following.push_back(
        start(dir.path() / fmt::format("follower{}", n), store, objects.url(), "--follow"));
  std::vector<const Coordinator*> all;
  for (const Coordinator& each : following) all.push_back(&each);
  for (int round = 0; round < 3; ++round) {
    measure("the leader", {&leader}, programs, seconds);
    measure("1 follower", {all.front()}, programs, seconds);
    measure(fmt::format("{} followers", followers).c_str(), all, programs, seconds);
  }
}
