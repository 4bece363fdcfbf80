// Kernels that attack the machine from kiln-runner, in the sandbox that a worker starts it in. Each
// tries something when it is loaded, and is wrong if that succeeded.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/worker/kernels.h"
#include "worker/jobs/evaluation.h"
#include "worker/readable_files.h"
#include "worker/runner/runner_process.h"

namespace kiln {
namespace {

using namespace test;

constexpr char kDeclarations[] = R"(
extern "C" {
long syscall(long, ...); int open(const char*, int, ...); long read(int, void*, unsigned long);
int socket(int, int, int); int fork(); int getpid(); int getppid(); int kill(int, int);
int access(const char*, int); int mkdir(const char*, int); int setuid(int); int getuid();
int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);
int pause(); void* malloc(unsigned long); int fcntl(int, int, ...); int unlink(const char*);
long write(int, const void*, unsigned long); int usleep(unsigned);
}
static bool reads(const char* path) {
  char byte; const int fd = open(path, 0);
  return fd >= 0 && read(fd, &byte, 1) == 1;
}
static bool succeeded;
)";

std::shared_ptr<const Sandbox> sandbox() {
  static const auto opened = [] {
    Sandbox::Options options;
    options.mode = Sandbox::Mode::kRequire;
    options.readable = files_of_program(runner_path().string());
    const auto libraries = library_folders();
    options.readable.insert(options.readable.end(), libraries.begin(), libraries.end());
    const auto made = Sandbox::open(options, {runner_path().string(), "--help"});
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return made ? *made : nullptr;
  }();
  return opened;
}

RunnerProcess::Options confined() {
  RunnerProcess::Options options{runner_path(), 2, {}};
  options.sandbox = sandbox();
  return options;
}

// Evaluates a kernel that does `attempt` (an expression, true when it succeeded) when it is loaded,
// and computes what it should if it did not.
Evaluation attempt(RunnerProcess& runner, const std::string& attempt) {
  const Artifact kernel = compile_kernel(
      std::string(kRight) + "if (succeeded) out[first] = 12345;",
      std::string(kDeclarations) +
          "__attribute__((constructor)) static void at_load() { succeeded = (" + attempt + "); }");
  return evaluate_candidate(runner, add_job(Job::Kind::kCompile), kernel, 0);
}

class HostileKernels : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_NE(sandbox(), nullptr); }
  void expect_harmless(const std::string& what) {
    RunnerProcess runner(confined());
    const Evaluation evaluation = attempt(runner, what);
    EXPECT_EQ(evaluation.verdict, Verdict::kOk) << what << ": " << evaluation.log;
  }
};

TEST_F(HostileKernels, ASessionOfItsOwnIsAsNiceAsItsProcess) {
  RunnerProcess::Options options = confined();
  options.niceness = 13;
  RunnerProcess runner(options);
  ASSERT_TRUE(runner.make_ready());
  const std::string session = "/proc/" + std::to_string(runner.pid()) + "/autogroup";
  if (!read_file(session)) GTEST_SKIP() << "this kernel has no sessions that share cores";
  // The kernel takes one request in a tenth of a second, from all processes together.
  std::string said;
  for (int round = 0; round < 200 && said.find("nice 13") == std::string::npos; ++round) {
    ASSERT_TRUE(runner.call(runner::OpenWorkload{1, kAddGraph}, 60'000).has_value());
    said = read_file(session).value_or("");
    ::usleep(50'000);
  }
  EXPECT_NE(said.find("nice 13"), std::string::npos) << said;
}

TEST_F(HostileKernels, TheAttemptsAreSeenWhereNothingConfinesThem) {
  RunnerProcess runner({runner_path(), 2, {}});
  EXPECT_EQ(attempt(runner, "socket(2, 1, 0) >= 0").verdict, Verdict::kWrongResult);
  EXPECT_EQ(attempt(runner, "reads(\"/etc/passwd\")").verdict, Verdict::kWrongResult);
}

TEST_F(HostileKernels, ReadNoFileOfTheWorkers) {
  const TempDir dir = *TempDir::create("kiln-worker-files");
  const Path key = dir.path() / "worker.key";
  ASSERT_TRUE(write_file(key, "secret"));
  std::filesystem::permissions(key, std::filesystem::perms::all);
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  for (const std::string& path :
       {key.string(), std::string("/etc/passwd"), std::string("/proc/1/root") + key.string(),
        std::string("/proc/self/cwd/../..") + key.string(),
        "/proc/" + std::to_string(::getpid()) + "/cmdline", std::string("/old/etc/passwd"),
        std::string("/dev/shm/../../etc/shadow"), std::string("/dev/mem"),
        std::string("/sys/kernel/notes")})
    expect_harmless("reads(\"" + path + "\") || access(\"" + path + "\", 0) == 0");
}

// As a unit with ProtectKernelTunables= or a container does: then Linux lets nobody mount a /proc.
void mask_proc() {
  ASSERT_EQ(::unshare(CLONE_NEWNS), 0);
  ASSERT_EQ(::mount(nullptr, "/", nullptr, MS_PRIVATE | MS_REC, nullptr), 0);
  ASSERT_EQ(::mount("tmpfs", "/proc/sys", "tmpfs", 0, nullptr), 0);
}

TEST_F(HostileKernels, SeeOnlyThemselvesWherePartsOfProcAreMasked) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can mask parts of /proc";
  const std::string ours = std::to_string(::getpid());
  const auto body = [&] {
    mask_proc();
    for (const std::string& path :
         {std::string("/proc/1/cmdline"), "/proc/" + ours + "/cmdline", std::string("/proc/mounts"),
          std::string("/proc/self/root/etc/passwd"), std::string("/proc/self/cwd/../etc/passwd")})
      expect_harmless("reads(\"" + path + "\")");
    expect_harmless("open(\"/proc/self/oom_score_adj\", 1) >= 0");
    expect_harmless("!reads(\"/proc/self/maps\") || !reads(\"/proc/cpuinfo\")");
    ::_exit(HasFailure() ? 1 : 0);
  };
  EXPECT_EXIT(body(), ::testing::ExitedWithCode(0), "");
}

TEST_F(HostileKernels, WriteNowhereThatLasts) {
  const TempDir dir = *TempDir::create("kiln-worker-files");
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  for (const char* path : {"/usr/lib/x", "/x", "/etc/x", "/dev/x", "/proc/sys/kernel/core_pattern"})
    expect_harmless("open(\"" + std::string(path) + "\", 0101, 0644) >= 0");
  const std::string mark = (dir.path() / "mark").string();
  expect_harmless("open(\"" + mark + "\", 0101, 0644) >= 0");
  EXPECT_FALSE(std::filesystem::exists(mark));
}

TEST_F(HostileKernels, ReachNoNetworkAndNoOtherProcess) {
  for (const char* what :
       {"socket(1, 1, 0) >= 0", "socket(2, 1, 0) >= 0", "socket(2, 2, 0) >= 0",
        "socket(16, 3, 0) >= 0", "socket(17, 3, 0) >= 0", "syscall(53, 1, 1, 0, &succeeded) == 0",
        "kill(-1, 9) == 0", "kill(1, 0) == 0", "kill(getppid(), 0) == 0", "getppid() != 0",
        "syscall(101, 16, 1, 0, 0) == 0" /* ptrace */,
        "syscall(310, 1, 0, 0, 0, 0, 0) == 0" /* process_vm_readv */,
        "syscall(434, 1, 0) >= 0" /* pidfd_open */})
    expect_harmless(what);
}

TEST_F(HostileKernels, StartNothingAndGainNothing) {
  for (const char* what :
       {"fork() >= 0", "syscall(58) >= 0" /* vfork */, "syscall(56, 17, 0, 0, 0, 0) >= 0",
        "syscall(56, 0x10000011, 0, 0, 0, 0) >= 0" /* a user namespace */,
        "syscall(435, 0, 0) >= 0" /* clone3 */, "syscall(59, \"/bin/true\", 0, 0) == 0",
        "syscall(322, -100, \"/bin/true\", 0, 0, 0) == 0" /* execveat */,
        "syscall(272, 0x10000000) == 0" /* unshare */, "syscall(308, 3, 0) == 0" /* setns */,
        "setuid(0) == 0", "getuid() == 0", "syscall(165, \"x\", \"/\", \"tmpfs\", 0, 0) == 0",
        "syscall(161, \"/\") == 0" /* chroot */, "syscall(321, 0, 0, 0) >= 0" /* bpf */,
        "syscall(425, 1, 0) >= 0" /* io_uring */, "syscall(298, 0, 0, 0, 0, 0) >= 0" /* perf */,
        "syscall(250, 0, 0) >= 0" /* keyctl */, "syscall(323, 0) >= 0" /* userfaultfd */})
    expect_harmless(what);
}

TEST_F(HostileKernels, FindNoDescriptorButTheirOwn) {
  const int leaked = ::dup2(1, 777);  // without O_CLOEXEC
  expect_harmless("fcntl(777, 1) >= 0 || fcntl(4, 1) >= 0 && fcntl(5, 1) >= 0 && fcntl(6, 1) >= 0");
  ::close(leaked);
}

TEST_F(HostileKernels, TakeNoMoreThanTheirLimits) {
  expect_harmless(
      "({ int n = 0; unsigned long t; while (n < 5000 && pthread_create(&t, 0, "
      "[](void*) -> void* { pause(); return 0; }, 0) == 0) ++n; n >= 5000; })");
  RunnerProcess runner(confined());
  const Evaluation file =
      attempt(runner,
              "({ int fd = syscall(319, \"x\", 0); long n = 0; static char zeros[1 << 20]; "
              "while (n < 1024 && write(fd, zeros, 1 << 20) == 1 << 20) ++n; n >= 1024; })");
  EXPECT_EQ(file.verdict, Verdict::kRunnerDied);
  EXPECT_NE(file.log.find("File size limit"), std::string::npos) << file.log;
  expect_harmless("malloc(1ul << 46) != 0");
}

TEST_F(HostileKernels, DieByNameAndAnotherRunnerFollows) {
  RunnerProcess runner(confined());
  const auto verdict = [&](const char* what) { return attempt(runner, what); };
  const Evaluation aborted = verdict("(syscall(234, getpid(), getpid(), 6), true)");
  EXPECT_EQ(aborted.verdict, Verdict::kRunnerDied);
  EXPECT_NE(aborted.log.find("signal 6"), std::string::npos) << aborted.log;
  EXPECT_EQ(verdict("({ __builtin_trap(); true; })").verdict, Verdict::kRunnerDied);
  EXPECT_EQ(verdict("(syscall(231, 0), true)").verdict, Verdict::kRunnerDied);
  EXPECT_EQ(verdict("false").verdict, Verdict::kOk);
}

}  // namespace
}  // namespace kiln
