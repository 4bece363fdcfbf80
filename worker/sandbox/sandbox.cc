#include "worker/sandbox/sandbox.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/filter.h>
#include <linux/landlock.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <deque>
#include <thread>

#include "worker/sandbox/confinement.h"

namespace kiln {
namespace {

constexpr int kOwnNamespaces = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET;
constexpr uid_t kNobody = 65534;
constexpr size_t kStackBytes = 64 << 10;
constexpr rlim_t kCompilerBytes = rlim_t{4} << 30;  // of addresses, its libraries' among them
constexpr rlim_t kCompilerSeconds = 90;             // beyond the compile's own deadline
constexpr rlim_t kFileBytes = 256 << 20;
constexpr const char* kAnyFolder = "/usr";  // its own root is mounted over it
constexpr const char* kRunnerScratch = "mode=0700,size=64m,nr_inodes=4k,uid=65534,gid=65534";
constexpr const char* kSharedMemory = "mode=1777,size=64m,nr_inodes=4k";

struct Fd {
  int fd = -1;
  Fd() = default;
  explicit Fd(int opened) : fd(opened) {}
  Fd(const Fd&) = delete;
  Fd& operator=(const Fd&) = delete;
  ~Fd() { close(); }
  void close() {
    if (fd >= 0) ::close(std::exchange(fd, -1));
  }
};

struct Pipe {
  Fd read, write;
  Pipe() {
    int ends[2];
    if (::pipe2(ends, O_CLOEXEC) != 0) return;
    read.fd = ends[0];
    write.fd = ends[1];
  }
};

// The stack of a child until execve().
class ChildStack {
 public:
  ChildStack()
      : memory_(::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0)) {}
  ChildStack(const ChildStack&) = delete;
  ~ChildStack() {
    if (memory_ != MAP_FAILED) ::munmap(memory_, kStackBytes);
  }
  void* top() const {
    return memory_ == MAP_FAILED ? nullptr : static_cast<char*>(memory_) + kStackBytes;
  }

 private:
  void* memory_;
};

// Signals wait while a child shares our memory and our handlers.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  NoSignals(const NoSignals&) = delete;
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_;
};

// The child's file system, and the memory of its words.
class MountList {
 public:
  using Kind = SandboxMount::Kind;
  void add(Kind kind, const Path& path, std::string source = {}) {
    std::error_code error;
    const auto status = std::filesystem::status(path, error);
    const bool made = kind == Kind::kLink || kind == Kind::kScratch || kind == Kind::kProc;
    if (!made && (error || !std::filesystem::exists(status))) return;
    if (source.empty()) source = "/old" + path.string();
    SandboxMount mount;
    mount.kind = kind;
    mount.is_file = !made && !std::filesystem::is_directory(status);
    mount.path = keep(path.string());
    mount.source = keep(std::move(source));
    mounts_.push_back(mount);
  }
  // /lib as it is: a folder, or a link to usr/lib.
  void add_as_it_is(const Path& path) {
    std::error_code error;
    const Path link = std::filesystem::read_symlink(path, error);
    if (error)
      add(Kind::kReadOnly, path);
    else
      add(Kind::kLink, path, link.string());
  }
  // A folder or file, under its name and its real one.
  void add_readable(const Path& path) {
    std::error_code error;
    const Path real = std::filesystem::canonical(path, error);
    if (error || real == "/" || !path.is_absolute()) return;
    for (const Path& name : {path.lexically_normal(), real})
      if (!is_system(name) &&
          std::ranges::none_of(mounts_, [&](const SandboxMount& m) { return name == m.path; }))
        add(Kind::kReadOnly, name);
  }
  // Puts folders before what lies in them: a mount hides what was mounted below it.
  void sort() {
    std::ranges::stable_sort(mounts_, {}, [](const SandboxMount& m) { return Path(m.path); });
  }
  std::span<const SandboxMount> mounts() const { return mounts_; }

 private:
  static bool is_system(const Path& path) {
    constexpr std::string_view kSystem[] = {"/usr/", "/lib/", "/lib64/", "/lib32/", "/bin/"};
    return std::ranges::any_of(
        kSystem, [&](std::string_view folder) { return path.string().starts_with(folder); });
  }
  const char* keep(std::string text) { return texts_.emplace_back(std::move(text)).c_str(); }

  std::deque<std::string> texts_;
  std::vector<SandboxMount> mounts_;
};

// Every node of NVIDIA's driver; /dev has no others that a GPU's runner needs.
void add_gpu_nodes(MountList& list) {
  std::error_code error;
  for (std::filesystem::directory_iterator at("/dev", error), end; !error && at != end;
       at.increment(error))
    if (at->path().filename().string().starts_with("nvidia"))
      list.add(MountList::Kind::kDevice, at->path());
  list.add(MountList::Kind::kReadOnly, "/sys");
}

MountList file_system(const Sandbox::Options& options, const Sandbox::Command& command) {
  using Kind = MountList::Kind;
  MountList list;
  for (const char* folder : {"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"})
    list.add_as_it_is(folder);
  for (const char* part : {"/etc/ld.so.cache", "/etc/alternatives", "/sys/devices/system/cpu"})
    list.add(Kind::kReadOnly, part);
  for (const char* node : {"/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom"})
    list.add(Kind::kDevice, node);
  list.add(Kind::kScratch, "/dev/shm", kSharedMemory);
  list.add(Kind::kProc, "/proc");
  if (options.gpu) add_gpu_nodes(list);
  for (const Path& path : options.readable) list.add_readable(path);
  const bool compiler = command.kind == SandboxKind::kCompiler && command.socket < 0;
  if (compiler)
    list.add(Kind::kWritable, command.directory);
  else
    list.add(Kind::kScratch, command.directory, kRunnerScratch);
  list.sort();
  return list;
}

std::vector<SandboxLimit> limits_of(const Sandbox::Command& command) {
  std::vector<SandboxLimit> limits = {{RLIMIT_CORE, 0}, {RLIMIT_FSIZE, kFileBytes}};
  if (command.kind == SandboxKind::kGpuRunner) return limits;
  // Counted for each user namespace since Linux 5.14, for all of a user's processes before.
  const auto threads = static_cast<rlim_t>(std::thread::hardware_concurrency());
  limits.push_back({RLIMIT_NPROC, 256 + 4 * threads});
  limits.push_back({RLIMIT_NOFILE, 512});
  if (command.kind != SandboxKind::kCompiler) return limits;  // the runner knows the rest
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  limits.push_back({RLIMIT_AS, kCompilerBytes});
#endif
  if (command.socket < 0) limits.push_back({RLIMIT_CPU, kCompilerSeconds});
  return limits;
}

Result<std::string> find_program(const std::string& name, std::string_view search_path) {
  if (name.find('/') != std::string::npos) return name;
  for (std::string_view rest = search_path; !rest.empty();) {
    const std::string_view folder = rest.substr(0, rest.find(':'));
    rest.remove_prefix(std::min(rest.size(), folder.size() + 1));
    std::string program = std::string(folder) + "/" + name;
    if (!folder.empty() && ::access(program.c_str(), X_OK) == 0) return program;
  }
  return fail(Code::kNotFound, fmt::format("cannot start {}: it is not on PATH", name));
}

std::vector<char*> pointers(const std::vector<std::string>& words) {
  std::vector<char*> result;
  for (const std::string& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

Status write_map(pid_t child, const char* file, const std::string& text) {
  const std::string path = fmt::format("/proc/{}/{}", child, file);
  const Fd opened(::open(path.c_str(), O_WRONLY | O_CLOEXEC));
  if (opened.fd < 0 || ::write(opened.fd, text.data(), text.size()) != std::ssize(text))
    return fail(Code::kUnavailable, fmt::format("cannot write {}: {}", file, std::strerror(errno)));
  return {};
}

// The child is nobody in its namespace: us by another name, or, when we are root, nobody outside
// too, once it has made its file system as root.
Status map_ids(pid_t child) {
  if (::geteuid() == 0) {
    const std::string both = fmt::format("0 0 1\n{0} {0} 1\n", kNobody);
    TRY_STATUS(write_map(child, "uid_map", both));
    return write_map(child, "gid_map", both);
  }
  TRY_STATUS(write_map(child, "setgroups", "deny"));
  TRY_STATUS(write_map(child, "uid_map", fmt::format("{} {} 1\n", kNobody, ::geteuid())));
  return write_map(child, "gid_map", fmt::format("{} {} 1\n", kNobody, ::getegid()));
}

int landlock_abi() {
  const long abi =
      ::syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION);
  return abi > 0 ? static_cast<int>(abi) : 0;
}

// Starts the child and lets it go; what it fails at before its program runs.
Result<pid_t> start(Confinement& plan, int flags) {
  const ChildStack stack;
  Pipe go, report;
  if (stack.top() == nullptr || go.write.fd < 0 || report.write.fd < 0)
    return fail(Code::kUnavailable, "no memory or descriptors for a process");
  plan.go = go.read.fd;
  plan.report = report.write.fd;
  const NoSignals quiet;
  const pid_t child = ::clone(confine_and_execute, stack.top(), CLONE_VM | SIGCHLD | flags, &plan);
  if (child < 0) return fail(Code::kUnavailable, fmt::format("clone: {}", std::strerror(errno)));
  Status mapped;
  if (plan.namespaces) mapped = map_ids(child);
  if (mapped && ::write(go.write.fd, "", 1) != 1)
    mapped = fail(Code::kUnavailable, "a process ended early");
  if (!mapped) ::kill(child, SIGKILL);
  go.write.close();
  report.write.close();
  ConfinementFailure failure;
  ssize_t got = 0;  // until it has called execve() or is gone: `plan` and the stack are ours again
  do got = ::read(report.read.fd, &failure, sizeof failure);
  while (got < 0 && errno == EINTR);
  if (mapped && got == 0) return child;
  ::waitpid(child, nullptr, 0);
  TRY_STATUS(mapped);
  const bool absent = std::string_view(failure.step) == "start" &&
                      (failure.error == ENOENT || failure.error == EACCES ||
                       failure.error == ENOTDIR || failure.error == ENOEXEC);
  return fail(absent ? Code::kNotFound : Code::kUnavailable,
              fmt::format("{}: {}", failure.step, std::strerror(failure.error)));
}

}  // namespace

Sandbox::Sandbox(Options options, SandboxPieces pieces)
    : options_(std::move(options)), pieces_(pieces), landlock_abi_(landlock_abi()) {
  if (landlock_abi_ == 0) pieces_.landlock = false;
}

Status Sandbox::make_filters() {
  for (const SandboxKind kind :
       {SandboxKind::kCompiler, SandboxKind::kRunner, SandboxKind::kGpuRunner}) {
    TRY(filters_[static_cast<size_t>(kind)], make_filter(kind));
  }
  return {};
}

Result<std::shared_ptr<const Sandbox>> Sandbox::open(Options options,
                                                     const std::vector<std::string>& probe) {
  if (options.mode == Mode::kOff) return nullptr;
  std::shared_ptr<Sandbox> sandbox(new Sandbox(std::move(options), {}));
  if (!sandbox->pieces_.landlock) sandbox->why_ = "this kernel has no Landlock";
  if (const Status made = sandbox->make_filters(); !made) {
    sandbox->pieces_.filter = false;
    sandbox->why_ = made.error().message;
  }
  const auto works = [&]() -> Status {
    const Path directory = std::filesystem::temp_directory_path();
    TRY(const pid_t child, sandbox->spawn({SandboxKind::kRunner, probe, {}, directory}));
    int status = 0;
    while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
    }
    if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return {};
    return fail(Code::kUnavailable, fmt::format("{} does not run in it", probe.front()));
  };
  for (bool* piece :
       {&sandbox->pieces_.namespaces, &sandbox->pieces_.landlock, &sandbox->pieces_.filter}) {
    const Status worked = works();
    if (worked) break;
    if (!*piece) continue;
    *piece = false;
    sandbox->why_ = worked.error().message;
  }
  if (sandbox->options_.mode == Mode::kRequire && !sandbox->pieces_.whole())
    return fail(Code::kUnsupported,
                fmt::format("--sandbox require, but this machine gives less: {}; docs/security.md "
                            "says what it takes",
                            sandbox->describe()));
  return sandbox;
}

std::shared_ptr<const Sandbox> Sandbox::reduced(SandboxPieces pieces,
                                                const std::string& why) const {
  auto other = std::make_shared<Sandbox>(*this);
  other->pieces_ = {pieces_.namespaces && pieces.namespaces, pieces_.landlock && pieces.landlock,
                    pieces_.filter && pieces.filter};
  other->why_ = why;
  return other;
}

std::string Sandbox::describe() const {
  std::string there, missing;
  const auto list = [&](bool given, std::string_view name) {
    std::string& names = given ? there : missing;
    names += names.empty() ? "" : ", ";
    names += name;
  };
  list(pieces_.namespaces, "namespaces");
  list(pieces_.landlock, "landlock");
  list(pieces_.filter, "filter");
  list(true, "limits");
  return missing.empty() ? there : fmt::format("{}; without {} ({})", there, missing, why_);
}

Result<pid_t> Sandbox::spawn(const Command& command) const {
  TRY(const std::string program, find_program(command.words.front(), options_.search_path));
  const MountList files = file_system(options_, command);
  const std::vector<SandboxLimit> limits = limits_of(command);
  const std::vector<char*> arguments = pointers(command.words);
  const std::vector<char*> environment = pointers(command.environment);
  const Fd null(::open("/dev/null", O_RDWR | O_CLOEXEC));
  const bool root = ::geteuid() == 0;

  Confinement plan;
  plan.program = program.c_str();
  plan.arguments = arguments.data();
  plan.environment = environment.data();
  plan.directory = command.directory.c_str();
  plan.input = null.fd;
  plan.output = plan.error = command.output >= 0 ? command.output : null.fd;
  plan.socket = command.socket;
  plan.namespaces = pieces_.namespaces;
  plan.base = kAnyFolder;
  plan.mounts = files.mounts();
  plan.landlock = pieces_.landlock;
  plan.landlock_abi = landlock_abi_;
  plan.uid = plan.gid = kNobody;
  plan.change_ids = pieces_.namespaces;
  plan.is_root = root;
  plan.limits = limits;
  const std::string& filter = filters_[static_cast<size_t>(command.kind)];
  if (pieces_.filter)
    plan.filter = {static_cast<unsigned short>(filter.size() / sizeof(sock_filter)),
                   reinterpret_cast<sock_filter*>(const_cast<char*>(filter.data()))};
  const bool compiler = command.kind == SandboxKind::kCompiler && command.socket < 0;
  if (root && compiler && pieces_.namespaces &&
      ::chown(command.directory.c_str(), kNobody, kNobody) != 0)
    return fail(Code::kUnavailable, "cannot hand a folder to a compiler");
  auto child = start(plan, pieces_.namespaces ? kOwnNamespaces : 0);
  if (!child)
    return fail(child.error().within(fmt::format("cannot start {} in the sandbox", program)));
  return child;
}

}  // namespace kiln
