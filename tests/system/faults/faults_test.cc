// Real processes, really hurt: killed at every named point of the publish path, stopped past their
// leases, starved of disk and pipes, cut off. docs/faults.md says what is promised of each.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <unistd.h>

#include <cerrno>
#include <fstream>
#include <sstream>

#include "tests/system/faults/drill.h"

namespace kiln::testing {
namespace {

constexpr uint64_t kSeed = 5;

// A service in a directory of its own, and rounds on it.
class House {
 public:
  explicit House(LiveService::Options options = {})
      : dir_(TempDir::create("kiln-faults").value()),
        faults_(dir_.path() / "board"),
        service_(placed(std::move(options)), faults_),
        drill_(service_, faults_, kSeed) {
    adopt_orphans();
    EXPECT_TRUE(service_.await()) << log();
    play({});  // something to look up, and it works
  }

  void play(const Trouble& trouble) {
    for (const std::string& complaint : drill_.round(trouble))
      ADD_FAILURE() << describe(trouble) << "\n  " << complaint << "\n  replay: " << replay(trouble)
                    << "\n"
                    << log();
  }
  // Until the point was reached: what comes before it may have been lost to the last round.
  void play_point(const Trouble& trouble) {
    for (int tries = 0; tries < 3 && (tries == 0 || faults_.struck() == 0); ++tries) play(trouble);
    EXPECT_GE(faults_.struck(), 1) << describe(trouble) << ": it was not reached";
  }
  void end() {
    for (const std::string& complaint : drill_.after_kill()) ADD_FAILURE() << complaint << log();
    for (const std::string& complaint : drill_.after_stop()) ADD_FAILURE() << complaint << log();
  }

  LiveService& service() { return service_; }
  FaultControl& faults() { return faults_; }
  Drill& drill() { return drill_; }

 private:
  LiveService::Options placed(LiveService::Options options) const {
    if (options.root.empty()) options.root = dir_.path();
    return options;
  }
  std::string log() const {
    const std::string text = read_file(service_.log("coordinator")).value_or("") +
                             read_file(service_.log("worker0")).value_or("");
    return ::testing::Test::HasFailure()
               ? ""
               : text.substr(text.size() - std::min<size_t>(text.size(), 3000));
  }

  const TempDir dir_;
  FaultControl faults_;
  LiveService service_;
  Drill drill_;
};

Trouble at(std::string_view point, FaultAction action, bool after, int error = 0, int skip = 0,
           int times = 1) {
  Trouble trouble;
  trouble.at_point = true;
  trouble.fault.point = fault_point(point);
  EXPECT_GE(trouble.fault.point, 0) << point;
  trouble.fault.action = action;
  trouble.fault.after = after;
  trouble.fault.error = error;
  trouble.fault.skip = skip;
  trouble.fault.times = times;
  trouble.for_ms = 1500;
  if (trouble.fault.point >= 0)
    trouble.restarts = kFaultPoints[static_cast<size_t>(trouble.fault.point)].needs_restart;
  return trouble;
}

// Killed at each of them, before or after the call in turn; and each was really reached.
TEST(Points, AKillAtAnyOfThemLosesNothing) {
  House house;
  for (size_t i = 0; i < kFaultPoints.size(); ++i) {
    const std::string_view name = kFaultPoints[i].name;
    const bool writes = kFaultPoints[i].call == FaultCall::kWrite;
    house.play_point(
        at(name, writes && i % 2 == 0 ? FaultAction::kTorn : FaultAction::kKill, i % 2 == 1));
  }
  house.end();
}

TEST(Points, AreThoseOfTheDocument) {
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/faults.md");
  std::vector<std::string> listed;
  for (std::string line; std::getline(in, line);) {
    const size_t from = line.find("| `"), to = line.find('`', from + 3);
    if (from == 0 && to != std::string::npos) listed.push_back(line.substr(3, to - 3));
  }
  std::vector<std::string> points;
  for (const FaultPoint& point : kFaultPoints) points.emplace_back(point.name);
  EXPECT_EQ(listed, points);
}

TEST(Starved, RefusedWritesCostTheCacheNotTheAnswer) {
  House house;
  for (const auto& [point, error] :
       std::initializer_list<std::pair<const char*, int>>{{"coordinator.blob.create", ENOSPC},
                                                          {"coordinator.blob.write", ENOSPC},
                                                          {"coordinator.blob.sync", EIO},
                                                          {"coordinator.blob.rename", EIO},
                                                          {"coordinator.log.write", ENOSPC},
                                                          {"coordinator.log.sync", EIO},
                                                          {"coordinator.blob.read", EIO},
                                                          {"coordinator.index.read", EIO},
                                                          {"worker.source.write", ENOSPC},
                                                          {"worker.object.write", ENOSPC},
                                                          {"worker.object.sync", EIO},
                                                          {"worker.compiler.start", EAGAIN},
                                                          {"worker.runner.start", EAGAIN},
                                                          {"runner.binary.write", ENOSPC},
                                                          {"client.blob.write", ENOSPC},
                                                          {"client.manifest.sync", EIO}}) {
    house.play_point(at(point, FaultAction::kFail, false, error, 0, 3));
  }
  house.end();
}

TEST(Starved, ShortWritesAndSendsAreGoneOnWith) {
  House house;
  for (const char* point : {"coordinator.blob.write", "coordinator.log.write", "coordinator.answer",
                            "worker.object.write", "worker.runner.send", "worker.report",
                            "runner.send", "client.request", "client.blob.write"}) {
    house.play_point(at(point, FaultAction::kShort, false, 0, 0, 20));
  }
  house.end();
}

// A disk of its own for one of the service's directories, where we may mount.
class TinyDisk {
 public:
  TinyDisk(const Path& directory, const char* size) : directory_(directory) {
    std::filesystem::create_directories(directory);
    mounted_ =
        ::mount("tmpfs", directory.c_str(), "tmpfs", 0, fmt::format("size={}", size).c_str()) == 0;
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

TEST(Starved, ACoordinatorsFullDiskCostsTheCacheNotTheAnswer) {
  play_on_a_full_disk("data", 2);
}

// Nothing can be compiled: a clear error, forgotten some seconds after there is room.
TEST(Starved, AWorkersFullScratchIsNotHeldAgainstTheKernels) {
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
  const SmallProgram program = small_program(house.drill().programs(), 900);
  Child stuck = house.service().start_client({"compile", program.graph.string(), "--json"}, pipe,
                                             house.service().root() / "stuck.err");
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
TEST(Starved, AKilledCompilerIsNotHeldAgainstTheKernel) {
  House house;
  for (const int after_ms : {20, 45, 70}) {
    Trouble trouble;
    trouble.killed = Victim::kCompiler;
    trouble.after_ms = after_ms;
    house.play(trouble);
  }
  house.end();
}

// Past its lease: another worker does the work, and what the stopped one brings late changes
// nothing.
TEST(Stopped, WhoeverStopsPastItsLeaseIsReplacedAndChangesNothingLater) {
  LiveService::Options options;
  options.workers = 2;
  options.coordinator_flags = {"--lease-timeout-ms", "700", "--worker-timeout-ms", "1500"};
  House house(options);
  for (const char* point : {"worker.runner.receive", "runner.send", "coordinator.log.sync"}) {
    Trouble trouble = at(point, FaultAction::kStop, true);
    trouble.for_ms = 2500;
    house.play_point(trouble);
  }
  house.end();
}

TEST(CutOff, AWireThatIsCutHeals) {
  LiveService::Options options;
  options.proxied = true;
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
  options.workers = 2;
  options.coordinator_flags = {"--lease-timeout-ms", "1500", "--worker-timeout-ms", "2500"};
  House house(options);
  std::mt19937_64 random(kSeed);
  for (int round = 0; round < 5; ++round) house.play(draw(random, true));
  house.end();
}

}  // namespace
}  // namespace kiln::testing
