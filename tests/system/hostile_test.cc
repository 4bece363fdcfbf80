// Forty custom kernels that attack the machine, through the real service: coordinator, worker in
// its sandbox, client. Each tries something when its library is loaded, and is wrong if that
// succeeded, so a kernel that is served has found nothing. What a kernel of each kind leaves behind
// is looked for outside, and an honest kernel is tuned in between.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <ostream>
#include <regex>

#include "client/client.h"
#include "compiler_core/ir/custom_op.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/program/program.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

constexpr char kDeclarations[] = R"(
extern "C" {
long syscall(long, ...); int open(const char*, int, ...); long read(int, void*, unsigned long);
long write(int, const void*, unsigned long); int close(int); int access(const char*, int);
int socket(int, int, int); int fork(); int vfork(); int getpid(); int getppid(); int kill(int, int);
int mkdir(const char*, int); int symlink(const char*, const char*); int unlink(const char*);
int setuid(int); int getuid(); int chmod(const char*, int); int rename(const char*, const char*);
int pthread_create(unsigned long*, const void*, void* (*)(void*), void*);
int pause(); void* malloc(unsigned long); int fcntl(int, int, ...); int dup2(int, int);
void* mmap(void*, unsigned long, int, int, int, long); int mprotect(void*, unsigned long, int);
}
[[maybe_unused]] static bool reads(const char* path) {
  char byte; const int fd = open(path, 0);
  return fd >= 0 && read(fd, &byte, 1) == 1;
}
[[maybe_unused]] static bool writes(const char* path) {
  const int fd = open(path, 0101, 0644);
  return fd >= 0 && write(fd, "x", 1) == 1;
}
static bool succeeded;
)";

// A string as a source may write it: strings with '.' and '/' are refused before any compiler.
std::string spelled(const std::string& text) {
  std::string numbers;
  for (const char c : text) numbers += std::to_string(static_cast<int>(c)) + ",";
  return "(const char[]){" + numbers + "0}";
}

struct Attempt {
  const char* name;
  std::string what;  // an expression, true when it succeeded; FILE(path) and MARK stand for strings
  bool refused = false;   // wrong, or the end of its runner
  std::string body = "";  // instead of 2 x
};

void PrintTo(const Attempt& attempt, std::ostream* out) {
  *out << attempt.what << " " << attempt.body;
}

std::vector<Attempt> attempts() {
  return {
      // Sockets.
      {"SocketUnix", "socket(1, 1, 0) >= 0"},
      {"SocketTcp", "socket(2, 1, 0) >= 0"},
      {"SocketUdp", "socket(2, 2, 0) >= 0"},
      {"SocketNetlink", "socket(16, 3, 0) >= 0"},
      {"SocketRaw", "socket(17, 3, 0) >= 0"},
      {"SocketPair", "syscall(53, 1, 1, 0, &succeeded) == 0"},
      {"IoUring", "syscall(425, 1, &succeeded) >= 0"},
      // Other processes.
      {"PtraceParent", "syscall(101, 16, getppid(), 0, 0) == 0"},
      {"PtraceInit", "syscall(101, 16, 1, 0, 0) == 0"},
      {"ReadParentsMemory", "syscall(310, getppid(), 0, 0, 0, 0, 0) == 0"},
      {"PidfdOfInit", "syscall(434, 1, 0) >= 0"},
      {"SignalEverybody", "kill(-1, 9) == 0"},
      {"SignalParent", "kill(getppid(), 19) == 0"},
      {"QueueSignal", "syscall(129, 1, 10, &succeeded) == 0"},
      // Fork bombs.
      {"Fork", "fork() >= 0"},
      {"Vfork", "syscall(58) >= 0"},
      {"Clone", "syscall(56, 17, 0, 0, 0, 0) >= 0"},
      {"Clone3", "syscall(435, 0, 0) >= 0"},
      {"Execute", "syscall(59, FILE(/bin/true), 0, 0) == 0"},
      {"ThreadBomb",
       "({ int n = 0; unsigned long t; while (n < 5000 && pthread_create(&t, 0, [](void*) -> void* "
       "{ pause(); return 0; }, 0) == 0) ++n; n >= 5000; })"},
      // Privileges and namespaces.
      {"Setuid", "setuid(0) == 0 || getuid() == 0"},
      {"UserNamespace", "syscall(272, 0x10000000) == 0"},
      {"Mount", "syscall(165, FILE(x), FILE(/), FILE(tmpfs), 0, 0) == 0"},
      {"Bpf", "syscall(321, 0, 0, 0) >= 0"},
      {"Perf", "syscall(298, 0, 0, 0, 0, 0) >= 0"},
      {"Keyring", "syscall(250, 0, 0) >= 0"},
      {"KernelModule", "syscall(313, 0, FILE(x), 0) == 0"},
      // Memory.
      {"MemoryOfTerabytes", "mmap(0, 1ul << 46, 3, 0x22, -1, 0) != (void*)-1"},
      {"FileInMemory",
       "({ int fd = syscall(319, FILE(x), 0); long n = 0; static char zeros[1 << 20]; while (n < "
       "1024 && write(fd, zeros, 1 << 20) == 1 << 20) ++n; n >= 1024; })",
       true},
      // Files.
      {"ReadPasswords", "reads(FILE(/etc/passwd)) || access(FILE(/etc/shadow), 0) == 0"},
      {"ReadTheSigningKey", "reads(FILE(/KEY)) || access(FILE(/KEY), 0) == 0"},
      {"ReadThroughProc", "reads(FILE(/proc/1/root/KEY)) || reads(FILE(/proc/self/cwd/../../KEY))"},
      {"WriteAMark", "writes(FILE(MARK))"},
      {"WriteBesideLibraries", "writes(FILE(/usr/lib/kiln-mark))"},
      {"LinkAMark", "symlink(FILE(/etc/passwd), FILE(MARK)) == 0"},
      {"WriteSysctl", "writes(FILE(/proc/sys/kernel/core_pattern))"},
      {"ReadDevices",
       "reads(FILE(/dev/mem)) || reads(FILE(/dev/sda)) || reads(FILE(/sys/kernel/notes))"},
      {"SeeProcesses", "access(FILE(/proc/PARENT), 0) == 0"},
      {"UseOpenDescriptors", "fcntl(777, 1) >= 0 || (fcntl(4, 1) >= 0 && fcntl(5, 1) >= 0)"},
      // Signals of its own.
      {"Abort", "(syscall(234, getpid(), getpid(), 6), true)", true},
      {"Exit", "(syscall(231, 0), true)", true},
      {"Trap", "({ __builtin_trap(); true; })", true},
      // Clocks.
      {"SetTheClock",
       "({ long t[2] = {0, 0}; syscall(227, 0, t) == 0 || syscall(164, t, 0) == 0; })"},
      // Its own text.
      {"RewriteItself",
       "(mprotect((void*)((unsigned long)&reads & ~4095ul), 4096, 7) == 0 && "
       "(*(volatile char*)&reads = (char)0xcc, reads(FILE(/dev/zero))))",
       true},
      // Wrong, sometimes.
      {"WrongTheSecondTime", "false", true,
       "static int n; out0[i] = in0[i] + (i == 0 && ++n > 1 ? 0 : in0[i]);"},
      {"WrongAtOneElement", "false", true, "out0[i] = in0[i] + (i == 63 ? 0 : in0[i]);"},
      {"WrongNowAndThen", "false", true,
       "out0[i] = in0[i] + (__builtin_ia32_rdtsc() * 0x9e3779b97f4a7c15 >> 63 ? 0 : in0[i]);"},
      {"WrongByTheClock", "({ long t[2]; syscall(228, 1, t); t[0] >= 0; })", true},
  };
}

// FILE(path) becomes the bytes of the path, with KEY, MARK and PARENT filled in.
std::string filled_in(std::string text, const std::map<std::string, std::string>& words) {
  const std::regex file(R"(FILE\(([^)]*)\))");
  for (std::smatch match; std::regex_search(text, match, file);) {
    std::string path = match[1];
    for (const auto& [word, value] : words)
      if (const size_t at = path.find(word); at != std::string::npos)
        path.replace(at, word.size(), value);
    text = match.prefix().str() + spelled(path) + match.suffix().str();
  }
  return text;
}

// y = 2 x over 64 elements, by a kernel of `source`.
Graph program_of(const std::string& source) {
  CustomOp op;
  op.name = "tests::attempt";
  op.shape = [](std::span<const OperandType> operands) { return operands[0]; };
  op.reference = [](GraphBuilder& b, std::span<const NodeId> in) {
    return b.binary(Op::kAdd, in[0], in[0]);
  };
  op.kernels = {{"cpu", source, "attempt", {}, 0, "64", "256", "0"}};
  GraphBuilder b;
  const NodeId x[] = {b.input(DType::kF32, {64})};
  auto graph = b.finish({op.call(b, x)});
  EXPECT_TRUE(graph.has_value()) << graph.error().message;
  return *std::move(graph);
}

std::string source_of(const std::string& attempt, const std::string& body) {
  return std::string(kDeclarations) +
         "__attribute__((constructor)) static void at_load() { succeeded = (" + attempt +
         "); }\n"
         "static void attempt(const float* in0, float* out0, int64_t begin, int64_t end) {\n"
         "  for (int64_t i = begin; i < end; ++i) {\n    " +
         body + "\n    if (succeeded) out0[i] = 12345;\n  }\n}\n";
}

// One service for all of them: what one leaves would meet the next.
class Hostile : public ::testing::TestWithParam<Attempt> {
 protected:
  static void SetUpTestSuite() {
    dir_ = new TempDir(*TempDir::create());
    std::filesystem::permissions(dir_->path(), std::filesystem::perms(0755));
    ::setenv("KILN_SANDBOX", "require", 1);
    service_ = new Service(dir_->path() / "data", {"--device", "cpu"});
    ::unsetenv("KILN_SANDBOX");
    ASSERT_FALSE(service_->endpoint().empty()) << service_->log();
    expect_an_honest_kernel_is_served("the first");
    worker_ = std::ranges::min(descendants(service_->child().pid(), "kiln-worker"));
  }
  static void TearDownTestSuite() {
    EXPECT_EQ(service_->stop(), 0);
    delete service_;
    delete dir_;
  }
  static Client::Compiled fetch(const std::string& source) {
    ClientOptions options;
    options.coordinator = service_->endpoint();
    options.allow_fallback = false;
    options.connect_timeout = std::chrono::seconds(60);
    CompileOptions wanted;
    wanted.deadline = std::chrono::seconds(100);
    // Nothing is loaded here.
    return (*Client::create(std::move(options)))->fetch(program_of(source), wanted);
  }
  static void expect_an_honest_kernel_is_served(const std::string& about) {
    const auto honest = fetch("// " + about + "\n" + source_of("false", kRight));
    EXPECT_TRUE(honest.has_value()) << honest.error().message << service_->log();
  }

  static constexpr char kRight[] = "out0[i] = in0[i] + in0[i];";
  static inline TempDir* dir_ = nullptr;
  static inline Service* service_ = nullptr;
  static inline pid_t worker_ = 0;
};

TEST_P(Hostile, FindsNothingAndLeavesNothing) {
  const Attempt& attempt = GetParam();
  const Path mark = dir_->path() / "mark";
  const std::string key = (dir_->path() / "data" / "signing" / "ed25519.key").string();
  ASSERT_TRUE(std::filesystem::exists(key));
  const std::string what =
      filled_in(attempt.what, {{"KEY", key.substr(1)},
                               {"MARK", mark.string()},
                               {"PARENT", std::to_string(service_->child().pid())}});
  const std::string body = attempt.body.empty() ? kRight : attempt.body;
  const auto got = fetch(source_of(what, body));
  EXPECT_EQ(got.has_value(), !attempt.refused)
      << (got ? "it was served" : got.error().message) << service_->log();
  EXPECT_FALSE(std::filesystem::exists(mark));
  EXPECT_FALSE(std::filesystem::exists("/usr/lib/kiln-mark"));
  EXPECT_TRUE(service_->child().running());
  const auto workers = descendants(service_->child().pid(), "kiln-worker");
  EXPECT_TRUE(std::ranges::count(workers, worker_)) << "the worker died of it";
  if (attempt.refused) expect_an_honest_kernel_is_served(attempt.name);
}

INSTANTIATE_TEST_SUITE_P(Kernels, Hostile, ::testing::ValuesIn(attempts()),
                         [](const auto& each) { return std::string(each.param.name); });

// The same attempts are seen where nothing confines them: the suite could fail.
TEST(HostileUnconfined, IsSeen) {
  const TempDir dir = *TempDir::create();
  ::setenv("KILN_SANDBOX", "off", 1);
  const Service service(dir.path() / "data", {"--device", "cpu"});
  ::unsetenv("KILN_SANDBOX");
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  ClientOptions options;
  options.coordinator = service.endpoint();
  options.allow_fallback = false;
  options.connect_timeout = std::chrono::seconds(60);
  const auto client = *Client::create(std::move(options));
  for (const std::string what : {"socket(2, 1, 0) >= 0", "reads(FILE(/etc/passwd))",
                                 "access(FILE(/proc/1), 0) == 0 && getppid() != 0"}) {
    const auto got =
        client->fetch(program_of(source_of(filled_in(what, {}), "out0[i] = in0[i] + in0[i];")), {});
    ASSERT_FALSE(got.has_value()) << what;
    EXPECT_NE(got.error().message.find("wrong_result"), std::string::npos) << got.error().message;
  }
}

// A constructor that leaves a mark is run by `kiln run`, and by nothing that only gets a program.
TEST(HostileClient, LoadsNothingBeforeItIsUsed) {
  const TempDir dir = *TempDir::create();
  const Service service(dir.path() / "data", {"--device", "cpu"});
  ASSERT_FALSE(service.endpoint().empty()) << service.log();
  const Path mark = dir.path() / "mark", file = dir.path() / "marking.kiln";
  const std::string attempt = filled_in("writes(FILE(MARK)) && false", {{"MARK", mark.string()}});
  ASSERT_TRUE(
      write_file(file, print(program_of(source_of(attempt, "out0[i] = in0[i] + in0[i];")))));
  const auto kiln = [&](std::vector<std::string> words) {
    words.insert(words.begin(), binary("kiln"));
    return run(words, {"KILN_COORDINATOR=" + service.endpoint()});
  };
  const std::string out = (dir.path() / "out").string(), cache = (dir.path() / "cache").string();
  for (const std::vector<std::string>& words : {std::vector<std::string>{"warm", file},
                                                {"compile", file},
                                                {"compile", file, "--check"},
                                                {"compile", file, "--out", out},
                                                {"compile", file, "--cache-dir", cache}}) {
    const Finished done = kiln(words);
    EXPECT_EQ(done.exit_code, 0) << done.err << service.log();
    EXPECT_FALSE(std::filesystem::exists(mark)) << words[0] << " " << words.back();
  }
  EXPECT_EQ(kiln({"run", file}).exit_code, 0);
  EXPECT_TRUE(std::filesystem::exists(mark)) << "a program that is used is loaded";
}

}  // namespace
}  // namespace kiln::testing
