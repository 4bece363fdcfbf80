// Random custom sources, made of pieces that attack: whatever the check accepts is compiled and run
// in the sandbox, and no file, process or socket is left.
//
//   KILN_CUSTOM_SOURCES   how many; default 60
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <random>

#include "compiler_core/ir/custom_source.h"
#include "tests/worker/kernels.h"
#include "worker/jobs/evaluation.h"
#include "worker/readable_files.h"
#include "worker/runner/runner_process.h"

namespace kiln {
namespace {

using namespace test;

int sources() {
  const char* const wanted = std::getenv("KILN_CUSTOM_SOURCES");
  return wanted == nullptr ? 60 : std::atoi(wanted);
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
                 "for (;;) syscall(24);",
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

  // A source that may be refused by the check or by the compiler.
  std::string make(std::mt19937& random) const {
    const auto some = [&](size_t most) {
      std::string text;
      for (size_t n = random() % (most + 1); n > 0; --n)
        text += random() % 3 == 0 ? any_call(random) : pieces_[random() % pieces_.size()];
      return text;
    };
    return "extern \"C\" long syscall(long, ...);\nstatic int pair[2], many[4096];\n"
           "__attribute__((constructor)) static void at_load() { " +
           some(2) + " }\n__attribute__((destructor)) static void at_end() { " +
           some(random() % 4 == 0) + " }\nstatic void work() { " + some(1) + " }\n";
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

TEST(CustomSourceFuzz, NoFileProcessOrSocketIsLeft) {
  const TempDir scratch = *TempDir::create("kiln-fuzz-scratch");
  const TempDir outside = *TempDir::create("kiln-fuzz-outside");
  std::filesystem::permissions(outside.path(), std::filesystem::perms::all);
  ASSERT_EQ(::prctl(PR_SET_CHILD_SUBREAPER, 1), 0);
  const std::string before = std::filesystem::temp_directory_path().string();
  ::setenv("TMPDIR", scratch.path().c_str(), 1);  // TempDir follows it
  const auto sandbox = open_sandbox();
  ASSERT_NE(sandbox, nullptr);
  const HostCompiler confined = compiler().confined([&](const std::vector<std::string>& words,
                                                        const std::vector<std::string>& environment,
                                                        const Path& directory, int output) {
    return sandbox->spawn({SandboxKind::kCompiler, words, environment, directory, output});
  });
  const SourceMaker maker(outside.path());
  std::mt19937 random(23);
  const size_t descriptors = entries_of("/proc/self/fd");
  const int processes = children();
  int accepted = 0, ran = 0, right = 0;
  for (int i = 0; i < sources(); ++i) {
    const std::string text = maker.make(random);
    if (!verify_custom_source(text, "cpu")) continue;
    ++accepted;
    const auto kernel = confined.compile(kernel_source("work();" + std::string(kRight), text),
                                         host_cpu_target(), 20'000);
    if (!kernel) continue;
    ++ran;
    RunnerProcess::Options options{runner_path(), 2, {}};
    options.sandbox = sandbox;
    RunnerProcess runner(options);
    Job job = add_job(Job::Kind::kCompile);
    job.policy.launch_timeout_ms = 200;
    right += evaluate_candidate(runner, job, *kernel, 0).verdict == Verdict::kOk;
  }
  ::setenv("TMPDIR", before.c_str(), 1);
  EXPECT_EQ(entries_of("/proc/self/fd"), descriptors);
  EXPECT_EQ(children(), processes);
  EXPECT_EQ(entries_of(scratch.path()), 0u);
  EXPECT_EQ(entries_of(outside.path()), 0u) << "a source wrote outside";
  EXPECT_GT(ran, 0);
  EXPECT_GT(right, 0) << "attempts that are refused leave a right kernel right";
  EXPECT_LT(right, ran) << "some pieces end their runner";
  std::printf("%d sources: %d accepted, %d compiled and run, %d right\n", sources(), accepted, ran,
              right);
}

}  // namespace
}  // namespace kiln
