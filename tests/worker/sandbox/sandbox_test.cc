// Compilers in the sandbox: what they can read, and what they may cost.
#include "worker/sandbox/sandbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <fstream>

#include "compiler_core/compile/child_process.h"
#include "compiler_core/compile/compiler.h"
#include "tests/worker/kernels.h"
#include "worker/sandbox/confinement.h"

namespace kiln {
namespace {

std::shared_ptr<const Sandbox> plain_sandbox() {
  static const auto opened = Sandbox::open({Sandbox::Mode::kRequire, {}}, {"true"});
  EXPECT_TRUE(opened.has_value()) << opened.error().message;
  return opened ? *opened : nullptr;
}

HostCompiler confined_compiler() {
  return test::compiler().confined([](const std::vector<std::string>& words,
                                      const std::vector<std::string>& environment,
                                      const Path& directory, int output) {
    return plain_sandbox()->spawn({SandboxKind::kCompiler, words, environment, directory, output});
  });
}

Result<Artifact> compile(const std::string& text) {
  return confined_compiler().compile({text, {}}, host_cpu_target(), 60'000);
}

struct Ran {
  int status = -1;
  std::string output;
};
Ran run_words(std::vector<std::string> command, SandboxKind kind) {
  const TempDir dir = *TempDir::create();
  const auto outcome = run_child(
      command, dir.path(), 60'000,
      [kind](const std::vector<std::string>& words, const std::vector<std::string>& environment,
             const Path& directory, int output) {
        return plain_sandbox()->spawn({kind, words, environment, directory, output});
      });
  EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  return outcome ? Ran{outcome->exit_status, outcome->output} : Ran{};
}
Ran run_script(const std::string& script) {
  return run_words({"sh", "-c", script}, SandboxKind::kCompiler);
}

TEST(Sandbox, ACompilerMakesTheSameObjectInIt) {
  const Source source = test::kernel_source(test::kRight);
  const auto inside = confined_compiler().compile(source, host_cpu_target(), 60'000);
  const auto outside = test::compiler().compile(source, host_cpu_target(), 60'000);
  ASSERT_TRUE(inside.has_value()) << inside.error().message;
  ASSERT_TRUE(outside.has_value());
  EXPECT_EQ(inside->digest, outside->digest);
}

TEST(Sandbox, ACompilerReadsNoFileThatASourceNames) {
  const TempDir dir = *TempDir::create();
  ASSERT_TRUE(write_file(dir.path() / "key", "int secret;\n"));
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  for (const std::string& path : {(dir.path() / "key").string(), std::string("/etc/passwd")}) {
    const auto included = compile("#include \"" + path + "\"\n");
    ASSERT_FALSE(included.has_value());
    EXPECT_EQ(included.error().code, Code::kInvalidArgument);
    EXPECT_EQ(included.error().message.find("secret"), std::string::npos);
    EXPECT_FALSE(compile("__asm__(\".incbin \\\"" + path + "\\\"\");\n").has_value());
    EXPECT_TRUE(compile("#if __has_include(\"" + path + "\")\n#error there\n#endif\n").has_value());
  }
}

TEST(Sandbox, WhatACompileMayCostIsBounded) {
  const auto large = compile("__asm__(\".data\\n.zero 1500000000\\n\");\n");
  ASSERT_FALSE(large.has_value());
  EXPECT_EQ(large.error().code, Code::kInvalidArgument) << large.error().message;
  const auto object = compile("__asm__(\".data\\n.zero 100000000\\n\");\n");
  ASSERT_FALSE(object.has_value());
  EXPECT_NE(object.error().message.find("object of"), std::string::npos) << object.error().message;
}

// Eight gigabytes of templates, or a file without end: the most that any process of the compile had
// is its limit of addresses.
TEST(Sandbox, ACompilerTakesNoMoreMemoryThanItsLimit) {
  for (const char* source : {"template <int... N> struct S {};\ntemplate <int K> struct M { using "
                             "T = S<__integer_pack(K)...>; };\n"
                             "M<260000000>::T t;\n",
                             "#include \"/dev/zero\"\n"}) {
    const auto refused = confined_compiler().compile({source, {}}, host_cpu_target(), 10'000);
    ASSERT_FALSE(refused.has_value());
    const Error& why = refused.error();
    EXPECT_TRUE(
        why.code == Code::kDeadlineExceeded ||
        (why.code == Code::kInvalidArgument && why.message.find("memory") != std::string::npos))
        << why.message;
  }
  rusage used{};
  ASSERT_EQ(::getrusage(RUSAGE_CHILDREN, &used), 0);
  EXPECT_LT(used.ru_maxrss, (int64_t{4} << 30) / 1024);
}

// What NVIDIA's driver needs, which starts with nothing less: see cuInit() of the fake one.
TEST(Sandbox, AGpusRunnerNamesItsThreadsAndListensAtALocalSocketAlone) {
  const auto gives = [](const std::string& words) {
    return run_words({"perl", "-e", "exit(" + words + " ? 0 : 7)"}, SandboxKind::kGpuRunner).status;
  };
  EXPECT_EQ(gives("open(F, '>', \"/proc/self/task/$$/comm\")"), 0);
  EXPECT_EQ(gives("socket(S, 1, 1, 0) && bind(S, pack('S', 1)) && listen(S, 1)"), 0);
  for (const char* refused :
       {"socket(S, 2, 1, 0)", "socket(S, 10, 1, 0)", "socket(S, 16, 3, 0)", "socket(S, 17, 3, 0)",
        "socket(S, 1, 2, 0)", "socket(S, 1, 2 | 02000000, 0)",
        "socket(S, 1, 1, 0) && bind(S, pack('S', 1)) && listen(S, 1) && socket(C, 1, 1, 0) && "
        "connect(C, getsockname(S))",
        "open(F, '>', '/proc/self/oom_score_adj')"})
    EXPECT_EQ(gives(refused), 7) << refused;
}

int64_t cpu_us(int who) {
  rusage used{};
  ::getrusage(who, &used);
  return (used.ru_utime.tv_sec + used.ru_stime.tv_sec) * 1'000'000 + used.ru_utime.tv_usec +
         used.ru_stime.tv_usec;
}

// What the sandbox adds to a candidate: its compiler's start, and a runner's, which a custom kernel
// has of its own. Prints medians of starts in turn, by the wall's clock and by processor time of
// this process and its children; timing decides nothing.
TEST(Sandbox, DISABLED_WhatAStartCosts) {
  constexpr int kStarts = 300;
  const StartChild inside = [](const std::vector<std::string>& words,
                               const std::vector<std::string>& environment, const Path& directory,
                               int output) {
    return plain_sandbox()->spawn({SandboxKind::kCompiler, words, environment, directory, output});
  };
  struct Cost {
    std::vector<double> wall_ms, cpu_ms;
  };
  const auto run_once = [](const StartChild& start, Cost& cost) {
    const TempDir dir = *TempDir::create();
    const int64_t cpu = cpu_us(RUSAGE_SELF) + cpu_us(RUSAGE_CHILDREN);
    const auto begin = std::chrono::steady_clock::now();
    EXPECT_TRUE(run_child({"true"}, dir.path(), 60'000, start).has_value());
    cost.wall_ms.push_back(
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin)
            .count());
    const int64_t after = cpu_us(RUSAGE_SELF) + cpu_us(RUSAGE_CHILDREN);
    cost.cpu_ms.push_back(static_cast<double>(after - cpu) / 1000);
  };
  Cost with, without;
  for (int i = 0; i < kStarts; ++i) {
    run_once(inside, with);
    run_once({}, without);
  }
  for (auto* numbers : {&with.wall_ms, &with.cpu_ms, &without.wall_ms, &without.cpu_ms})
    std::ranges::sort(*numbers);
  const auto print = [](const char* what, const std::vector<double>& in,
                        const std::vector<double>& out) {
    for (const size_t percent : {25, 50, 75})
      std::printf("%s, percentile %zu: %.2f ms in the sandbox, %.2f ms without\n", what, percent,
                  in[kStarts * percent / 100], out[kStarts * percent / 100]);
  };
  print("the wall's clock", with.wall_ms, without.wall_ms);
  print("processor time", with.cpu_ms, without.cpu_ms);
}

TEST(Sandbox, AForkBombEndsAtTheLimitAndWithItsFirstProcess) {
  const std::string seconds = std::to_string(1'000'000 + ::getpid());  // by which they are known
  const Ran bomb = run_script("i=0; while [ $i -lt 3000 ]; do sleep " + seconds +
                              " & i=$((i+1)); done; echo all");
  EXPECT_EQ(bomb.output.find("all\n"), std::string::npos);
  int sleepers = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "cmdline");
    std::string words;
    std::getline(file, words);
    sleepers += words.find(std::string("sleep\0", 6) + seconds) != std::string::npos;
  }
  EXPECT_EQ(sleepers, 0);
}

TEST(Sandbox, ItsProgramsHaveNoPrivilegesAndSeeNobody) {
  const Ran ran = run_script(
      "cat /proc/self/status; id -u; cd /proc; echo [0-9]*; ls -d /root /home "
      "/etc/passwd /var; cat /proc/net/dev; touch /usr/x /dev/shm/y");
  for (const char* line : {"CapEff:\t0000000000000000\n", "CapBnd:\t0000000000000000\n",
                           "NoNewPrivs:\t1\n", "Seccomp:\t2\n", "\n65534\n1\n"})
    EXPECT_NE(ran.output.find(line), std::string::npos) << line << ran.output;
  for (const char* word : {"\n/root", "\n/home", "\n/etc/passwd", "\n/var", "eth0:", "lo: 1"})
    EXPECT_EQ(ran.output.find(word), std::string::npos) << word << ran.output;
}

// A worker may be killed between the clone of a child and the word that lets it go. The child has begun
// with copies of all that the worker had open: a lock among it, and the end of the pipe that it waits at.
TEST(Sandbox, AChildThatNobodyLetsGoKeepsNothingOpenAndEnds) {
  int go[2], report[2];
  ASSERT_EQ(::pipe2(go, O_CLOEXEC), 0);
  ASSERT_EQ(::pipe2(report, O_CLOEXEC), 0);
  const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
  char name[] = "true";
  char* const words[] = {name, nullptr};
  char* const environment[] = {nullptr};
  Confinement plan;
  plan.program = "/bin/true";
  plan.arguments = words;
  plan.environment = environment;
  plan.directory = "/";
  plan.input = plan.output = plan.error = null;
  plan.go = go[0];
  plan.report = report[1];
  std::vector<char> stack(size_t{256} << 10);
  const pid_t child =
      ::clone(confine_and_execute, stack.data() + stack.size(), CLONE_VM | SIGCHLD, &plan);
  ASSERT_GT(child, 0);
  const auto open_files = [&] {
    const std::filesystem::directory_iterator files("/proc/" + std::to_string(child) + "/fd");
    return std::distance(begin(files), end(files));
  };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (open_files() > 5 && std::chrono::steady_clock::now() < until) ::usleep(1000);
  EXPECT_EQ(open_files(), 5) << "0, 1, 2, and what it waits at and reports to";
  for (const int end : {go[0], go[1], report[1], null}) ::close(end);
  pollfd heard{report[0], POLLIN, 0};
  if (::poll(&heard, 1, 10'000) != 1) {
    ADD_FAILURE() << "it waits for ever";
    ::kill(child, SIGKILL);
  }
  ConfinementFailure failure;
  EXPECT_EQ(::read(report[0], &failure, sizeof failure), ssize_t{sizeof failure});
  EXPECT_STREQ(failure.step, "parent");
  EXPECT_EQ(::waitpid(child, nullptr, 0), child);
  ::close(report[0]);
}

TEST(Sandbox, SaysWhatIsMissing) {
  EXPECT_EQ(plain_sandbox()->describe(), "namespaces, landlock, filter, limits");
  const auto fewer = plain_sandbox()->reduced({false, true, true}, "the reason");
  EXPECT_EQ(fewer->describe(), "landlock, filter, limits; without namespaces (the reason)");
  EXPECT_EQ(Sandbox::open({Sandbox::Mode::kOff, {}}, {"true"}).value(), nullptr);
  const auto absent =
      plain_sandbox()->spawn({SandboxKind::kCompiler, {"/no/such/program"}, {}, "/usr"});
  EXPECT_EQ(absent.error().code, Code::kNotFound) << absent.error().message;
}

// Without namespaces, as in a container that forbids them, Landlock and the filter still hold.
TEST(Sandbox, WithoutNamespacesFilesAreStillKept) {
  const auto bare = plain_sandbox()->reduced({false, true, true}, "test");
  const TempDir dir = *TempDir::create();
  const auto outcome = run_child(
      {"sh", "-c", "cat /etc/passwd /proc/1/cmdline; echo x > out; cat out; : > /tmp/kiln-escaped"},
      dir.path(), 60'000,
      [&](const std::vector<std::string>& words, const std::vector<std::string>& environment,
          const Path& directory, int output) {
        return bare->spawn({SandboxKind::kCompiler, words, environment, directory, output});
      });
  ASSERT_TRUE(outcome.has_value()) << outcome.error().message;
  EXPECT_EQ(outcome->output.find("root:"), std::string::npos) << outcome->output;
  EXPECT_NE(outcome->output.find("x\n"), std::string::npos) << outcome->output;
  EXPECT_FALSE(std::filesystem::exists("/tmp/kiln-escaped"));
}

}  // namespace
}  // namespace kiln
