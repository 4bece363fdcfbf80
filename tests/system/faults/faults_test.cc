// Real processes, really hurt: killed at every named point of the publish path, stopped past their
// leases, starved of disk and pipes, cut off. docs/faults.md says what is promised of each.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "tests/system/faults/house.h"
#include "tests/system/faults/small_program.h"

namespace kiln::testing {
namespace {

using nlohmann::json;

// Every way to die at the points of some programs: before the call and after it, and of writes and
// sends half-way.
std::vector<Fault> deaths(std::initializer_list<std::string_view> programs) {
  std::vector<Fault> all;
  for (const FaultPoint& point : kFaultPoints) {
    if (std::ranges::find(programs, point.program) == programs.end()) continue;
    const bool halves = point.call == FaultCall::kWrite || point.call == FaultCall::kSend;
    all.push_back(fault_at(point.name, FaultAction::kKill, false));
    if (halves) all.push_back(fault_at(point.name, FaultAction::kTorn, false));
    all.push_back(fault_at(point.name, FaultAction::kKill, true));
  }
  return all;
}

// A coordinator, a worker or its runner, and a client die in each round, and each point was really
// reached. Every other round, so that two processes share the work.
void play_every_other_death(size_t first) {
  const std::vector<Fault> of_programs[] = {
      deaths({"kiln-coordinator"}), deaths({"kiln-worker", "kiln-runner"}), deaths({"kiln"})};
  size_t rounds = 0;
  for (const std::vector<Fault>& all : of_programs) rounds = std::max(rounds, all.size());
  House house;
  for (size_t i = first; i < rounds; i += 2) {
    Trouble trouble;
    for (const std::vector<Fault>& all : of_programs)
      if (i < all.size()) trouble.faults.push_back(all[i]);
    house.play_points(trouble);
  }
  house.end();
}

TEST(EvenPoints, ADeathAtAnyOfThemLosesNothing) {
  play_every_other_death(0);
}

TEST(OddPoints, ADeathAtAnyOfThemLosesNothing) {
  play_every_other_death(1);
}

TEST(Points, AreThoseOfTheDocument) {
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/faults.md");
  std::vector<std::string> listed;
  std::string line;
  while (line != "## The points" && std::getline(in, line)) continue;
  while (std::getline(in, line) && !line.starts_with("## ")) {
    const size_t from = line.find("| `"), to = line.find('`', from + 3);
    if (from == 0 && to != std::string::npos) listed.push_back(line.substr(3, to - 3));
  }
  std::vector<std::string> points;
  for (const FaultPoint& point : kFaultPoints) points.emplace_back(point.name);
  EXPECT_EQ(listed, points);
}

TEST(Points, FaultsAreWrittenAndReadAgain) {
  for (size_t point = 0; point < kFaultPoints.size(); ++point)
    for (Fault fault : faults_of(static_cast<int>(point))) {
      for (const int skip : {0, 3}) {
        fault.skip = skip;
        const auto again = parse_fault(to_text(fault));
        ASSERT_TRUE(again) << to_text(fault);
        EXPECT_EQ(to_text(*again), to_text(fault));
        EXPECT_EQ(again->error, fault.error);
      }
    }
  for (const char* wrong : {"", "kill", "kill:after:nowhere", "kill:now:client.request",
                            "burn:after:client.request", "kill:after:client.request:1"})
    EXPECT_FALSE(parse_fault(wrong)) << wrong;
}

TEST(Refused, WritesCostTheCacheNotTheAnswer) {
  House house;
  for (const auto& [point, error] : std::initializer_list<std::pair<const char*, int>>{
           {"coordinator.blob.create", ENOSPC},   {"coordinator.blob.write", ENOSPC},
           {"coordinator.blob.sync", EIO},        {"coordinator.blob.rename", EIO},
           {"coordinator.log.write", ENOSPC},     {"coordinator.log.sync", EIO},
           {"coordinator.blob.read", EIO},        {"coordinator.index.read", EIO},
           {"coordinator.flights.write", ENOSPC}, {"coordinator.flights.sync", EIO},
           {"coordinator.signing.write", ENOSPC}, {"coordinator.signing.read", EIO},
           {"coordinator.life.write", ENOSPC},    {"worker.source.write", ENOSPC},
           {"worker.object.write", ENOSPC},       {"worker.object.sync", EIO},
           {"worker.compiler.start", EAGAIN},     {"worker.runner.start", EAGAIN},
           {"runner.binary.write", ENOSPC},       {"client.blob.write", ENOSPC},
           {"client.signing.link", ENOSPC},       {"client.signature.write", ENOSPC},
           {"client.manifest.write", ENOSPC}}) {
    house.play_points(at(fault_at(point, FaultAction::kFail, false, error, 0, 3)));
  }
  // Not the first page, and in SQLite's own check, which takes what cannot be read for damaged.
  for (const int skip : {4, 6})
    house.play_points(
        at(fault_at("coordinator.index.read", FaultAction::kFail, false, EIO, skip, 2)));
  EXPECT_GE(house.drill().tally().memory_only, 1) << "who was answered from memory was told so";
  house.end();
}

TEST(Refused, ShortWritesAndSendsAreGoneOnWith) {
  House house;
  for (const char* point :
       {"coordinator.blob.write", "coordinator.log.write", "coordinator.answer",
        "coordinator.flights.write", "worker.object.write", "worker.runner.send", "worker.report",
        "runner.send", "client.request", "client.blob.write", "client.signing.write",
        "client.signature.write"}) {
    house.play_points(at(fault_at(point, FaultAction::kShort, false, 0, 0, 20)));
  }
  house.end();
}

// A disk of its own for one of the service's directories, where we may mount.
class TinyDisk {
 public:
  TinyDisk(const Path& directory, const char* size) : directory_(directory) {
    std::filesystem::create_directories(directory);
    // Ours alone, as the service demands of its directories: a tmpfs is everybody's otherwise.
    mounted_ = ::mount("tmpfs", directory.c_str(), "tmpfs", 0,
                       fmt::format("size={},mode=0700", size).c_str()) == 0;
  }
  ~TinyDisk() {
    if (mounted_) ::umount2(directory_.c_str(), MNT_DETACH);
  }
  TinyDisk(const TinyDisk&) = delete;
  TinyDisk& operator=(const TinyDisk&) = delete;
  bool mounted() const { return mounted_; }

 private:
  const Path directory_;
  bool mounted_ = false;
};

void play_on_a_full_disk(const char* name, int rounds) {
  const TempDir dir = TempDir::create("kiln-faults").value();
  const TinyDisk disk(dir.path() / name, "8m");
  if (!disk.mounted()) GTEST_SKIP() << "needs the right to mount";
  LiveService::Options options;
  options.root = dir.path();
  House house(options);
  for (int round = 0; round < rounds; ++round) {
    Trouble trouble;
    trouble.fills = (dir.path() / name).string();
    house.play(trouble);
    house.play({});  // there is room again
  }
  house.end();
}

TEST(FullDisk, OfACoordinatorCostsTheCacheNotTheAnswer) {
  play_on_a_full_disk("data", 2);
}

// Nothing can be compiled: a clear error, forgotten some seconds after there is room.
TEST(FullDisk, OfAWorkersScratchIsNotHeldAgainstKernels) {
  play_on_a_full_disk("tmp", 1);
}

TEST(Starved, LogsThatNobodyReadsHoldNobodyUp) {
  LiveService::Options options;
  options.unread_logs = true;
  House house(options);
  for (int round = 0; round < 2; ++round) house.play({});
  house.end();
}

TEST(Starved, AClientWhoseOutputNobodyReadsHoldsUpNobodyElse) {
  House house;
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC | O_NONBLOCK), 0);
  const std::string line(4096, '.');
  while (::write(ends[1], line.data(), line.size()) > 0) {
  }
  const Path pipe = "/proc/self/fd/" + std::to_string(ends[1]);
  const SmallProgram program = small_program(programs_of(house.service()), 900);
  Child stuck = house.service().start_client({"compile", program.graph.string(), "--json"}, pipe,
                                             house.service().root() / "stuck.err");
  house.drill().welcome(stuck.pid());
  house.play({});
  std::string read(1 << 20, ' ');
  while (stuck.running()) {
    (void)!::read(ends[0], read.data(), read.size());
    ::usleep(1000);
  }
  EXPECT_EQ(stuck.exit_code(), 0);
  for (const int fd : ends) ::close(fd);
  house.end();
}

// g++ itself survives and answers 1, as for a source that is wrong.
TEST(NotHeldAgainstKernels, AKilledCompiler) {
  House house;
  for (const int after_ms : {20, 45, 70}) {
    Trouble trouble;
    trouble.killed = Victim::kCompiler;
    trouble.after_ms = after_ms;
    house.play(trouble);
  }
  house.end();
}

json status_of_queue(const LiveService& service) {
  return service.run_client({"warm", "--status", "--json"}, 5).json();
}

// Queued while no worker works; then the coordinator ends by `signal`, and its disk errs `skip`
// reads into the next start.
void play_the_queue(House& house, int first_program, int signal, int skip) {
  LiveService& service = house.service();
  ASSERT_TRUE(service.await());
  service.worker(0).signal(SIGSTOP);
  std::vector<ClientAsk> asks;
  for (int n = 0; n < 2; ++n)
    asks.push_back(
        ClientAsk::queue(service, fmt::format("queued{}", n), {first_program + n, false}));
  for (ClientAsk& ask : asks) ask.finish();
  service.coordinator().signal(signal);
  service.coordinator().wait();
  house.faults().arm(
      {fault_at("coordinator.flights.read", FaultAction::kFail, false, EIO, skip, 2)});
  service.tend();
  service.wake();
  EXPECT_TRUE(service.await());
  EXPECT_GT(house.faults().struck(), 0) << "skip " << skip;
  house.faults().disarm();
  EXPECT_TRUE(eventually([&] {
    service.tend();
    const json queue = status_of_queue(service);
    return queue.is_object() && queue.value("queued", 1) + queue.value("running", 1) == 0;
  })) << status_of_queue(service);
  for (const ClientAsk& ask : asks) {
    EXPECT_EQ(ask.exit_code(), 0) << ask.told();
    ClientAsk again = ClientAsk::run(service, "again", ask.key(), false);
    again.finish();
    EXPECT_EQ(again.answer().value("cache", ""), "hit") << again.told();
  }
}

// At the first read of a start, and after an orderly end at those of SQLite's own check, which
// takes a page that cannot be read for a damaged one.
TEST(Queue, SurvivesAKillAndADiskThatErrsAtTheNextStart) {
  House house;
  play_the_queue(house, 700, SIGKILL, 0);
  play_the_queue(house, 710, SIGTERM, 3);
  play_the_queue(house, 720, SIGTERM, 5);
  house.end();
}

// Once the coordinator answers.
json stats_of(const LiveService& service) {
  json stats = json::object();
  EXPECT_TRUE(eventually([&] {
    const json said = service.run_client({"stats", "--json"}, 10).json();
    if (said.is_object()) stats = said;
    return said.is_object();
  }));
  return stats;
}

// All that a late result could change.
json stored(const LiveService& service) {
  const json all = stats_of(service);
  json some;
  for (const char* name : {"candidates_measured", "retries", "set_aside", "entries", "bytes",
                           "corrupt_blobs", "malformed_messages"})
    some[name] = all.value(name, -1);
  return some;
}

bool is_stopped(pid_t pid) {
  return read_file("/proc/" + std::to_string(pid) + "/stat").value_or("").find(") T ") !=
         std::string::npos;
}

// The only worker stops with a lease in its hands, and is left so until the client has its answer:
// it can only have it from another one, once the lease was over. Late, the stopped one changes
// nothing. (The other one comes after that, else it might be given the work as a straggler's.)
void play_a_stop(const char* point) {
  LiveService::Options options;
  options.coordinator_flags = {"--lease-timeout-ms", "2500", "--worker-timeout-ms", "60000"};
  House house(options);
  LiveService& service = house.service();
  const json before = stored(service);
  house.faults().arm({fault_at(point, FaultAction::kStop, true)});
  ClientAsk ask = ClientAsk::run(service, "waits", {800, true}, false);
  ASSERT_TRUE(eventually([&] { return stored(service)["retries"] > before["retries"]; })) << point;
  service.add_worker();
  ask.finish();
  EXPECT_EQ(ask.exit_code(), 0) << ask.told();
  ASSERT_EQ(house.faults().struck(), 1) << point;
  EXPECT_TRUE(is_stopped(house.faults().struck_pid(0))) << "answered by the one that stopped";

  const json answered = stored(service);
  house.faults().disarm();
  service.wake();
  EXPECT_TRUE(eventually([&] {
    const json stats = stats_of(service);
    return std::ranges::all_of(stats["workers"], [](const json& worker) {
      return worker["leases"] == 0 && worker["idle_s"] < 2;
    });
  })) << stats_of(service);
  EXPECT_EQ(stored(service), answered) << point;
  ClientAsk again = ClientAsk::run(service, "again", ask.key(), false);
  again.finish();
  EXPECT_EQ(again.answer().value("cache", ""), "hit") << again.told();
  house.play({});
  house.end();
}

TEST(Stopped, AWorkerThatCompilesPastItsLeaseIsReplacedAndChangesNothingLater) {
  play_a_stop("worker.compiler.start");
}

TEST(Stopped, AWorkerThatMeasuresPastItsLeaseIsReplacedAndChangesNothingLater) {
  play_a_stop("worker.runner.receive");
}

// Wherever they stop: a second and a half is past the lease, and past a worker's time.
TEST(Stopped, RunnersAndCoordinatorsGoOnWhereTheyWere) {
  LiveService::Options options;
  options.workers = 2;
  options.coordinator_flags = {"--lease-timeout-ms", "500", "--worker-timeout-ms", "1000"};
  House house(options);
  for (const char* point : {"runner.send", "coordinator.log.sync", "coordinator.blob.rename"})
    house.play_points(at(fault_at(point, FaultAction::kStop, true)));
  house.end();
}

// With keys: what is cut is CURVE's, handshakes too.
TEST(CutOff, AWireThatIsCutHeals) {
  LiveService::Options options;
  options.proxied = true;
  options.keyed = true;
  House house(options);
  for (int mode = 1; mode < TcpProxy::kModes; ++mode) {
    Trouble trouble;
    trouble.cut = static_cast<TcpProxy::Mode>(mode);
    trouble.for_ms = 700;
    house.play(trouble);
  }
  Trouble trouble;
  trouble.drops = true;
  trouble.after_ms = 40;
  house.play(trouble);
  house.end();
}

// What nobody thought of, from a seed; `soak` has more of it.
TEST(Chance, RoundsDrawnFromASeed) {
  LiveService::Options options;
  options.proxied = true;
  options.keyed = true;
  options.workers = 2;
  options.coordinator_flags = {"--lease-timeout-ms", "1500", "--worker-timeout-ms", "2500"};
  House house(options);
  std::mt19937_64 random(5);
  for (int round = 0; round < 5; ++round) house.play(draw(random, true));
  house.end();
}

}  // namespace
}  // namespace kiln::testing
