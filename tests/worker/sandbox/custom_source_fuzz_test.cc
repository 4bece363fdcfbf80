// Random custom sources, made of pieces that attack: whatever the check accepts is compiled and run
// in the sandbox, and no file, process or socket is left.
//
//   KILN_CUSTOM_SOURCES   how many; default 200
//   KILN_CUSTOM_SEED      which; default 23
//
// A compiler's start costs more than all else, so sources that are whole share one: each is a case
// of a common source, and each case has a binary of its own, which differs in the number of the case
// that its constructor, its destructor and its kernel do. Sources that would break those beside them
// (braces, directives), and those of a batch that does not compile, are compiled by themselves.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <list>
#include <random>
#include <span>
#include <thread>

#include "compiler_core/ir/custom_source.h"
#include "tests/worker/kernels.h"
#include "worker/jobs/evaluation.h"
#include "worker/readable_files.h"
#include "worker/runner/runner_process.h"

namespace kiln {
namespace {

using namespace test;

int number(const char* name, int otherwise) {
  const char* const wanted = std::getenv(name);
  return wanted == nullptr ? otherwise : std::atoi(wanted);
}

std::shared_ptr<const Sandbox> open_sandbox() {
  Sandbox::Options options;
  options.mode = Sandbox::Mode::kRequire;
  options.readable = files_of_program(runner_path().string());
  const auto libraries = library_folders();
  options.readable.insert(options.readable.end(), libraries.begin(), libraries.end());
  const auto made = Sandbox::open(options, {runner_path().string(), "--help"});
  EXPECT_TRUE(made.has_value()) << made.error().message;
  return made ? *made : nullptr;
}

// The bytes of `text`, since strings of sources have neither '.' nor '/'.
std::string spelled(const std::string& text) {
  std::string numbers;
  for (const char c : text) numbers += std::to_string(static_cast<int>(c)) + ",";
  return "(const char[]){" + numbers + "0}";
}

constexpr char kDeclared[] =
    "extern \"C\" long syscall(long, ...);\nstatic int pair[2], many[4096];\n";
constexpr int64_t kMark = 0x65736143'6e6c694b;  // before the number of the case, in a binary
constexpr size_t kBatch = 50;
constexpr int kThreads = 6;  // most of which wait for kernels that hang

// What one source does when it is loaded, when it is unloaded, and in its kernel.
struct CustomCase {
  std::string at_load, at_end, work;

  std::string functions(const std::string& constructor, const std::string& destructor) const {
    return constructor + "static void at_load() { " + at_load + " }\n" + destructor +
           "static void at_end() { " + at_end + " }\nstatic void work() { " + work + " }\n";
  }
  // As a user would write it.
  std::string alone() const {
    return kDeclared + functions("__attribute__((constructor)) ", "__attribute__((destructor)) ");
  }
  bool is_whole() const {
    return functions("", "").find('#') == std::string::npos &&
           std::ranges::none_of(std::array{at_load, at_end, work}, [](const std::string& text) {
             return std::ranges::count(text, '{') != std::ranges::count(text, '}') ||
                    text.find("}{") != std::string::npos || text.starts_with("}");
           });
  }
};

// One source with all of them, of which a binary does the one whose number it has.
std::string together(std::span<const CustomCase> cases) {
  std::string text = kDeclared, loads, ends, works;
  for (size_t i = 0; i < cases.size(); ++i) {
    const std::string name = "case" + std::to_string(i);
    text += "namespace " + name + " {\n" + cases[i].functions("", "") + "}\n";
    loads += name + "::at_load, ";
    ends += name + "::at_end, ";
    works += name + "::work, ";
  }
  const auto table = [](const std::string& name, const std::string& entries) {
    return "static void (*const " + name + "[])() = {" + entries + "};\n";
  };
  return text + table("loads", loads) + table("ends", ends) + table("works", works) +
         "static volatile long chosen[2] = {" + std::to_string(kMark) +
         ", 0};\n"
         "__attribute__((constructor)) static void at_load() { loads[chosen[1]](); }\n"
         "__attribute__((destructor)) static void at_end() { ends[chosen[1]](); }\n"
         "static void work() { works[chosen[1]](); }\n";
}

// The binary of case `number` of what was compiled from together().
Artifact chosen(Artifact artifact, int64_t number) {
  const std::string mark(reinterpret_cast<const char*>(&kMark), sizeof kMark);
  const size_t at = artifact.binary.find(mark);
  EXPECT_NE(at, std::string::npos);
  EXPECT_EQ(artifact.binary.find(mark, at + 1), std::string::npos);
  std::memcpy(artifact.binary.data() + at + sizeof kMark, &number, sizeof number);
  artifact.digest = Digest::of(artifact.binary);
  return artifact;
}

class SourceMaker {
 public:
  explicit SourceMaker(const Path& outside)
      : mark_(spelled((outside / "mark").string())),
        pieces_({"syscall(2, " + mark_ + ", 0101, 0644);",
                 "syscall(83, " + mark_ + ", 0755);",
                 "syscall(41, 1, 1, 0);",
                 "syscall(41, 2, 1, 0);",
                 "syscall(53, 1, 1, 0, pair);",
                 "syscall(57);",
                 "syscall(58);",
                 "syscall(56, 17, 0, 0, 0, 0);",
                 "syscall(319, " + spelled("x") + ", 0);",
                 "syscall(62, -1, 9);",
                 "syscall(112);",
                 "syscall(109, 0, 0);",
                 "syscall(37, 1);",
                 "syscall(231, 0);",
                 "syscall(9, 0, 1 << 20, 7, 0x22, -1, 0);",
                 "*(volatile int*)0 = 1;",
                 "__builtin_trap();",
                 "syscall(32, 3); syscall(3, 3);",
                 "syscall(161, " + spelled("/") + ");",
                 "syscall(272, 0x10000000);",
                 "pair[0] = pair[1];",
                 "if (pair[0]) return;",
                 "#include \"x\"\n",
                 "#if 1\n",
                 "\n#endif\n",
                 "asm(\"nop\");",
                 "asm(\"syscall\");",
                 "{",
                 "}",
                 "int a = __LINE__;",
                 "\"x\";",
                 "// \\\n"}) {}

  // Pieces that may be refused by the check or by the compiler.
  CustomCase make(std::mt19937& random) const {
    const auto some = [&](size_t most) {
      std::string text;
      for (size_t n = random() % (most + 1); n > 0; --n)
        text += random() % 64 == 0  ? "for (;;) syscall(24);"
                : random() % 3 == 0 ? any_call(random)
                                    : pieces_[random() % pieces_.size()];
      return text;
    };
    CustomCase made;
    made.at_load = some(2);
    made.at_end = some(random() % 4 == 0);
    made.work = some(1);
    return made;
  }

 private:
  // Any system call, with arguments that mean something to many of them.
  std::string any_call(std::mt19937& random) const {
    const std::vector<std::string> arguments = {
        "0",    "1",    "2",        "3",          "-1",    "-100",  "64",       "0101",
        "0777", "4096", "1L << 32", "0x7e020000", "&pair", "&many", "&syscall", mark_};
    std::string call = "syscall(" + std::to_string(random() % 452);
    for (int i = 0; i < 6; ++i) call += ", " + arguments[random() % arguments.size()];
    return call + ");";
  }

  const std::string mark_;
  const std::vector<std::string> pieces_;
};

size_t entries_of(const Path& folder) {
  return static_cast<size_t>(std::distance(std::filesystem::directory_iterator(folder),
                                           std::filesystem::directory_iterator()));
}

// Processes whose parent is this one; those whose parent ended, too.
int children() {
  int count = 0;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    std::ifstream file(entry.path() / "status");
    for (std::string line; std::getline(file, line);)
      count += line == "PPid:\t" + std::to_string(::getpid());
  }
  return count;
}

struct Counts {
  std::atomic<int> accepted = 0, refused = 0, ran = 0, right = 0;
};

// Compiles and runs sources, several in a runner, which lives as long as nothing ends it.
class Bench {
 public:
  Bench(std::shared_ptr<const Sandbox> sandbox, Counts& counts)
      : compiler_(compiler().confined([sandbox](const std::vector<std::string>& words,
                                                const std::vector<std::string>& environment,
                                                const Path& directory, int output) {
          return sandbox->spawn({SandboxKind::kCompiler, words, environment, directory, output});
        })),
        runner_(options(sandbox)),
        counts_(counts) {}

  // Each of `cases`, compiled together; where that fails, its halves.
  void run(std::span<const CustomCase> cases) {
    if (cases.empty()) return;
    if (cases.size() == 1) return run_alone(cases[0]);
    const std::string text = together(cases);
    const Status accepted = verify_custom_source(text, "cpu");
    EXPECT_TRUE(accepted.has_value()) << text;
    if (const auto kernel = compile(text)) {
      for (size_t i = 0; i < cases.size(); ++i) judge(chosen(*kernel, static_cast<int64_t>(i)));
      return;
    }
    run(cases.first(cases.size() / 2));
    run(cases.subspan(cases.size() / 2));
  }
  void run_alone(const CustomCase& one) {
    if (const auto kernel = compile(one.alone()))
      judge(*kernel);
    else
      ++counts_.refused;
  }
  void end() { runner_.end(); }
  // A runner that a kernel was in may hang where it opens the next workload, for minutes; those of
  // users have one for each kernel (worker/jobs/evaluation.cc).
  void end_what_hangs() {
    const int64_t since = judging_since_ms_;
    if (since != 0 && now_ms() - since > 10'000) runner_.kill();
  }
  Verdict judge(const Artifact& kernel, int64_t launch_timeout_ms = 200) {
    judging_since_ms_ = now_ms();
    Job job = add_job(Job::Kind::kCompile);
    job.policy.launch_timeout_ms = launch_timeout_ms;
    const Verdict verdict = evaluate_candidate(runner_, job, kernel, 0).verdict;
    judging_since_ms_ = 0;
    ++counts_.ran;
    counts_.right += verdict == Verdict::kOk;
    return verdict;
  }
  Result<Artifact> compile(const std::string& text) const {
    return compiler_.compile(kernel_source("work();" + std::string(kRight), text),
                             host_cpu_target(), 20'000);
  }

 private:
  static RunnerProcess::Options options(const std::shared_ptr<const Sandbox>& sandbox) {
    RunnerProcess::Options options{runner_path(), 2, {}};
    options.sandbox = sandbox;
    return options;
  }

  static int64_t now_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::steady_clock::now().time_since_epoch())
        .count();
  }

  const HostCompiler compiler_;
  RunnerProcess runner_;
  Counts& counts_;
  std::atomic<int64_t> judging_since_ms_ = 0;  // 0: nothing
};

TEST(CustomSourceFuzz, ABinaryDoesTheCaseWhoseNumberItHas) {
  const auto sandbox = open_sandbox();
  ASSERT_NE(sandbox, nullptr);
  Counts counts;
  Bench bench(sandbox, counts);
  const std::vector<CustomCase> cases = {{"", "", ""},
                                         {"__builtin_trap();", "", ""},
                                         {"", "__builtin_trap();", ""},
                                         {"", "", "__builtin_trap();"}};
  const auto kernel = bench.compile(together(cases));
  ASSERT_TRUE(kernel.has_value()) << kernel.error().message;
  const auto judge = [&](int64_t which) { return bench.judge(chosen(*kernel, which), 60'000); };
  EXPECT_EQ(judge(0), Verdict::kOk);
  EXPECT_EQ(judge(1), Verdict::kRunnerDied);
  EXPECT_EQ(judge(3), Verdict::kRunnerDied);
  EXPECT_EQ(judge(0), Verdict::kOk);
  judge(2);
  EXPECT_EQ(judge(0), Verdict::kRunnerDied) << "the one before is unloaded";
}

TEST(CustomSourceFuzz, NoFileProcessOrSocketIsLeft) {
  const TempDir scratch = *TempDir::create("kiln-fuzz-scratch");
  const TempDir outside = *TempDir::create("kiln-fuzz-outside");
  std::filesystem::permissions(outside.path(), std::filesystem::perms::all);
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const std::string before = std::filesystem::temp_directory_path().string();
  ::setenv("TMPDIR", scratch.path().c_str(), 1);  // TempDir follows it
  const auto sandbox = open_sandbox();
  ASSERT_NE(sandbox, nullptr);
  const SourceMaker maker(outside.path());
  const size_t descriptors = entries_of("/proc/self/fd");
  const int processes = children();
  const int total = number("KILN_CUSTOM_SOURCES", 200), seed = number("KILN_CUSTOM_SEED", 23);
  Counts counts;
  std::atomic<int> next = 0, working = kThreads;
  std::list<Bench> benches;
  for (int i = 0; i < kThreads; ++i) benches.emplace_back(sandbox, counts);
  const auto work = [&](Bench& bench) {
    for (int first; (first = next.fetch_add(kBatch)) < total;) {
      std::seed_seq numbers{seed, first};
      std::mt19937 random(numbers);
      std::vector<CustomCase> whole;
      for (int i = first; i < std::min<int>(total, first + kBatch); ++i) {
        const CustomCase made = maker.make(random);
        if (!verify_custom_source(made.alone(), "cpu")) continue;
        ++counts.accepted;
        if (made.is_whole())
          whole.push_back(made);
        else
          bench.run_alone(made);
      }
      bench.run(whole);
      EXPECT_EQ(entries_of(outside.path()), 0u) << "written outside by one of 50 from " << first;
      if (first % 5000 == 0 && first > 0)
        std::printf("%d sources: %d compiled and run\n", first, counts.ran.load());
      std::fflush(stdout);
    }
    bench.end();
    --working;
  };
  std::vector<std::thread> threads;
  for (Bench& bench : benches) threads.emplace_back([&work, &bench] { work(bench); });
  while (working > 0) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    for (Bench& bench : benches) bench.end_what_hangs();
  }
  for (std::thread& thread : threads) thread.join();
  ::setenv("TMPDIR", before.c_str(), 1);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(children(), processes);
  EXPECT_EQ(entries_of(scratch.path()), 0u);
  EXPECT_EQ(counts.ran + counts.refused, counts.accepted);
  EXPECT_GT(counts.right, 0) << "attempts that are refused leave a right kernel right";
  EXPECT_LT(counts.right, counts.ran) << "some pieces end their runner";
  std::printf(
      "%d sources: %d accepted, %d compiled and run, %d right, %d refused by the compiler\n", total,
      counts.accepted.load(), counts.ran.load(), counts.right.load(), counts.refused.load());
}

}  // namespace
}  // namespace kiln
