// kiln-runner: the process in which kernels that nobody trusts yet are verified and timed; in the
// role `lower` one in which they are written, and in the role `compile` one in which NVRTC compiles
// them. Started by kiln-worker with one end of a
// socket pair; may be killed at any moment, and dies with its worker. Writes no files and prints
// nothing.
//
//   kiln-runner --socket FD --parent PID --threads N
//   kiln-runner --socket FD --parent PID --device cuda:0
//   kiln-runner --socket FD --parent PID --role lower
//   kiln-runner --socket FD --parent PID --role compile --libnvrtc FILE
#include <malloc.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <climits>
#include <functional>
#include <optional>

#include "compiler_core/base/text.h"
#include "compiler_core/command_line/command_line.h"
#include "worker/runner/compile_session.h"
#include "worker/runner/evaluator.h"
#include "worker/runner/lower_session.h"
#include "worker/sandbox/filter.h"

namespace {

using namespace kiln;
using namespace kiln::runner;

// Enough for any honest kernel; a kernel that spins without end is killed by the worker much
// sooner.
constexpr rlim_t kCpuSecondsPerRequest = 1800;
constexpr int kDeviceLostStatus = 3;
constexpr rlim_t kLowerBytes = rlim_t{2} << 30;  // of addresses, in the role `lower`

void limit(__rlimit_resource resource, rlim_t value) {
  rlimit current{};
  if (::getrlimit(resource, &current) != 0) return;
  current.rlim_cur = std::min(value, current.rlim_max);
  ::setrlimit(resource, &current);
}

// No core files, and no more memory than leaves the machine usable; a GPU's driver reserves as many
// addresses as host and card have memory together.
void limit_resources(bool for_gpu) {
  limit(RLIMIT_CORE, 0);
  if (for_gpu) return;
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)  // they reserve terabytes
  const auto physical =
      static_cast<rlim_t>(::sysconf(_SC_PHYS_PAGES)) * static_cast<rlim_t>(::sysconf(_SC_PAGESIZE));
  limit(RLIMIT_AS, std::max<rlim_t>(physical / 4 * 3, rlim_t{1} << 30));
#endif
}

// The kernel lets no signal without a handler reach the first process of a namespace, not even
// abort()'s own.
void die_of_own_signals() {
  if (::getpid() != 1) return;
  for (const int number : {SIGABRT, SIGXCPU, SIGXFSZ, SIGPIPE})
    ::signal(number, [](int received) { ::_exit(128 + received); });
}

void grant_cpu_time() {
  rusage used{};
  ::getrusage(RUSAGE_SELF, &used);
  limit(RLIMIT_CPU,
        static_cast<rlim_t>(used.ru_utime.tv_sec + used.ru_stime.tv_sec) + kCpuSecondsPerRequest);
}

// N of "cuda:N".
std::optional<int> gpu_number(std::string_view device) {
  constexpr std::string_view kPrefix = "cuda:";
  if (!device.starts_with(kPrefix)) return std::nullopt;
  device.remove_prefix(kPrefix.size());
  int number = 0;
  return read_count(device, number) ? std::optional(number) : std::nullopt;
}

using Handle = std::function<Reply(const Request&, const Alive&)>;

// Serves until the worker closes its end. Nonzero when the worker speaks another protocol.
int serve(int socket, const Handle& handle, const std::function<bool()>& is_over) {
  for (;;) {
    const auto body = receive_frame(socket, -1);
    if (!body) return body.error().code == Code::kUnavailable ? 0 : 1;
    const auto request = decode_request(*body);
    if (!request) return 1;
    if (std::holds_alternative<CancelCompile>(*request)) continue;  // it came too late
    grant_cpu_time();
    auto last = std::chrono::steady_clock::now();
    const auto alive = [&] {
      const auto now = std::chrono::steady_clock::now();
      if (now - last < std::chrono::milliseconds(kProgressPeriodMs)) return;
      last = now;
      (void)send_frame(socket, encode(Reply(Progress{})), -1);
    };
    const Reply reply = handle(*request, alive);
    if (is_over() && !send_frame(socket, encode(Reply(Leaving{})), -1)) return 0;
    if (!send_frame(socket, encode(reply), -1)) return 0;
    if (is_over()) ::_exit(kDeviceLostStatus);  // there is nothing left that could be cleaned up
  }
}

}  // namespace

int main(int argc, char** argv) {
  int socket = -1, threads = 0, parent = 0;
  bool confined = false;
  std::string role = "bench", libnvrtc, device = "cpu", libcuda, libcublaslt;
  CLI::App app(
      "Verifies and times kernels for kiln-worker, which starts it. Not meant to be run by hand.");
  app.add_option("--socket", socket, "Connected socket that requests arrive on")->required();
  app.add_option("--parent", parent, "Process id of the worker; the runner dies with it")
      ->required();
  app.add_option("--threads", threads, "Threads a launch uses; 0: one per core");
  app.add_option("--role", role, "bench, lower (templates become source), or compile (with NVRTC)")
      ->check(CLI::IsMember({"bench", "lower", "compile"}));
  app.add_option("--libnvrtc", libnvrtc, "NVRTC's library");
  app.add_option("--device", device, "What kernels run on: cpu, or cuda:N for GPU number N");
  app.add_option("--libcuda", libcuda, "The GPU driver's library");
  app.add_option("--libcublaslt", libcublaslt, "Where cuBLASLt is; none: it is not called");
  app.add_flag("--confined", confined, "Started in a sandbox, which it is to narrow");
  app.name("kiln-runner");
  app.set_version_flag("--version", [] { return version_line("kiln-runner", {}); });
  if (const auto code = parse_command_line(app, argc, argv)) return *code;

  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  // It died before we asked. (In a namespace of our own no parent is seen.)
  if (::getpid() != 1 && ::getppid() != parent) return 1;
  die_of_own_signals();
  struct stat status {};
  if (::fstat(socket, &status) != 0 || !S_ISSOCK(status.st_mode)) {
    std::cerr << "kiln-runner is started by kiln-worker, with a socket\n";
    return 2;
  }
  const auto gpu = gpu_number(device);
  if (!gpu && device != "cpu") {
    std::cerr << "kiln-runner: no such device: " << device << "; cpu, or cuda:0, cuda:1, ...\n";
    return 2;
  }
  limit_resources(gpu.has_value());
  if (role == "compile") {
    CompileSession session(libnvrtc, socket);
    return serve(
        socket, [&](const Request& request, const Alive&) { return session.handle(request); },
        [] { return false; });
  }
  if (role == "lower") {
    limit(RLIMIT_AS, kLowerBytes);
    LowerSession session;
    return serve(
        socket, [&](const Request& request, const Alive&) { return session.handle(request); },
        [] { return false; });
  }
  if (confined) {
    if (const Status done = confine_runner(); !done) {
      std::cerr << "kiln-runner: " << done.error().message << '\n';
      return 2;
    }
  }
  // References are made of vectors of many megabytes, one after the other: given back to the kernel
  // each time, a third of the evaluation would be page faults. evaluate() gives back what is left.
  ::mallopt(M_MMAP_MAX, 0);
  ::mallopt(M_TRIM_THRESHOLD, INT_MAX);
  const auto evaluator = gpu ? std::make_unique<KernelEvaluator>(*gpu, libcuda, libcublaslt)
                             : std::make_unique<KernelEvaluator>(threads);
  return serve(
      socket,
      [&](const Request& request, const Alive& alive) { return evaluator->handle(request, alive); },
      [&] { return evaluator->is_lost(); });
}
