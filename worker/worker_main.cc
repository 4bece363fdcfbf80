// kiln-worker: compiles, verifies and times candidates for a coordinator, until SIGTERM or SIGINT.
//
// Exit codes: 0 stopped on request; 2 bad usage, no compiler, or a coordinator of another protocol.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "compiler_core/base/own_directory.h"
#include "compiler_core/base/service_manager.h"
#include "compiler_core/command_line/command_line.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/runtime/cuda_device.h"
#include "schema/keys/key_file.h"
#include "schema/metrics/http_port.h"
#include "worker/agent/agent.h"
#include "worker/agent/worker_status.h"
#include "worker/jobs/build_jobs.h"
#include "worker/jobs/job_runner.h"
#include "worker/local_device.h"
#include "worker/scratch.h"

namespace {

using namespace kiln;

constexpr int64_t kObjectCacheBytes = int64_t{1} << 30;
// Leases at once; more would wait here too long for the device. A GPU measures one while the
// compilers are busy with the others, each of which is some ten candidates.
constexpr int kMaxSlots = 4, kMaxGpuSlots = 8;
constexpr size_t kMostSandboxWords = 1000;  // bytes

struct Flags {
  std::string role = "measure";
  std::string device;  // empty: "cpu", or "cuda" for a builder
  std::string target;
  std::string libcuda;
  std::string libnvrtc;
  std::string libcublaslt;
  bool no_libraries = false;
  bool list_devices = false;
  bool check = false;
  std::string coordinator = "tcp://127.0.0.1:7557";
  std::string name;
  std::string key;
  std::string cache_dir;
  std::string runner;
  std::string device_lock;
  std::string lock_dir;  // empty: one of this user's in /tmp
  std::string compiler;
  std::string http = "none";
  std::string otlp_endpoint;
  std::string log_level = "info";
  std::string sandbox = "auto";
  std::vector<std::string> sandbox_read;
  int jobs = 0;
  int threads = 0;
  int drain_timeout_s = 20;
  bool builds() const { return role == "build"; }
};

constexpr char kAbout[] =
    "Kiln's worker: takes candidates from a coordinator, compiles them, checks each against an\n"
    "independent reference, and times the right ones on one device: this machine's CPU, or a GPU.\n"
    "\n"
    "  kiln-worker --coordinator tcp://127.0.0.1:7557\n"
    "  kiln-worker --coordinator tcp://127.0.0.1:7557 --device cuda:0\n"
    "\n"
    "On a machine without a GPU --role build compiles candidates that workers elsewhere try:\n"
    "\n"
    "  kiln-worker --coordinator tcp://... --role build\n"
    "\n"
    "(`kiln up` starts a coordinator and workers together.) Kernels run in kiln-runner, a process\n"
    "of its own that may crash or be killed at any moment; the worker starts another and goes on.\n"
    "When the coordinator is away the worker keeps its results and connects again. SIGTERM, like\n"
    "`kiln drain`, lets it finish the leases it has (--drain-timeout) and takes no new ones; "
    "SIGINT,\n"
    "or a second SIGTERM, gives unfinished work back and ends it within seconds. The log goes to\n"
    "stderr.";

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Where only this user writes; empty when there is no such place.
Path default_cache_dir() {
  // Set by systemd's CacheDirectory=; may list several directories, and names links of its own.
  const std::string service = environment("CACHE_DIRECTORY");
  if (!service.empty()) {
    const Path first = service.substr(0, service.find(':'));
    std::error_code error;
    const Path real = std::filesystem::canonical(first, error);
    return error ? first : real;
  }
  const std::string base = environment("XDG_CACHE_HOME"), home = environment("HOME");
  if (!base.empty()) return Path(base) / "kiln" / "worker";
  return home.empty() ? Path() : Path(home) / ".cache" / "kiln" / "worker";
}

// Defaults that depend on the environment. Only this function and the ones above read it.
void fill_in_defaults(Flags& flags) {
  char host[256] = "worker";
  ::gethostname(host, sizeof host - 1);
  if (flags.device.empty()) flags.device = flags.builds() ? "cuda" : "cpu";
  if (flags.name.empty()) flags.name = fmt::format("{}:{}", host, ::getpid());
  if (flags.cache_dir.empty()) flags.cache_dir = default_cache_dir().string();
  if (flags.runner.empty())
    flags.runner = std::filesystem::read_symlink("/proc/self/exe").replace_filename("kiln-runner");
  flags.lock_dir = environment("XDG_RUNTIME_DIR");
  if (flags.compiler.empty()) flags.compiler = environment("KILN_CXX");
  if (flags.libcuda.empty()) flags.libcuda = environment("KILN_LIBCUDA");
  if (flags.libnvrtc.empty()) flags.libnvrtc = environment("KILN_LIBNVRTC");
  if (flags.libnvrtc.empty()) flags.libnvrtc = environment("CUDA_HOME");
  for (const char* name : {"KILN_LIBCUBLASLT", "VIRTUAL_ENV", "CONDA_PREFIX", "CUDA_HOME"})
    if (flags.libcublaslt.empty()) flags.libcublaslt = environment(name);
  if (flags.no_libraries) flags.libcublaslt = kNoLibraries;
}

// Parses into `flags`; an exit code when the program should end now.
std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app(kAbout, "kiln-worker");
  app.add_option("--coordinator", flags.coordinator,
                 "where to take work from; several coordinators of one store with commas between")
      ->envname("KILN_COORDINATOR")
      ->capture_default_str();
  app.add_option(
         "--key", flags.key,
         "this worker's key, for a coordinator on another machine: what `kiln keys new NAME "
         "--role worker` wrote")
      ->envname("KILN_KEY");
  app.add_option("--name", flags.name, "as it appears in `kiln stats` (default: host:pid)");
  app.add_option(
         "--role", flags.role,
         "measure: try candidates on --device, and build; build: only build, with no device,\n"
         "for workers that measure: on any machine with NVRTC, or with --device cpu for\n"
         "workers with CPUs like this machine's")
      ->check(CLI::IsMember({"measure", "build"}))
      ->envname("KILN_ROLE")
      ->capture_default_str();
  app.add_option("--device", flags.device,
                 "cpu, cuda (the first GPU) or cuda:N (default: cpu; of a builder cuda)");
  app.add_option(
      "--target", flags.target,
      "of --role build: what to build for, as cuda:sm_80,cuda:sm_90a (default: all that\n"
      "NVRTC makes code for)");
  app.add_flag("--list-devices", flags.list_devices,
               "print this machine's GPUs, one a line, and end");
  app.add_flag("--check", flags.check,
               "open the device, its compiler and the sandbox, print what was found as JSON, and "
               "end;\nthe coordinator is not asked");
  app.add_option("--libcuda", flags.libcuda,
                 "the GPU driver's library (default: $KILN_LIBCUDA, then libcuda.so.1)");
  app.add_option("--libnvrtc", flags.libnvrtc,
                 "NVRTC's library, or the folder of a CUDA toolkit (default: $KILN_LIBNVRTC, then\n"
                 "$CUDA_HOME, then libnvrtc.so.13 or .12, also in /usr/local/cuda)");
  app.add_option(
      "--libcublaslt", flags.libcublaslt,
      "cuBLASLt's library, or the folder of a CUDA toolkit or Python environment to look\n"
      "in first (default: $KILN_LIBCUBLASLT, $VIRTUAL_ENV, $CONDA_PREFIX, $CUDA_HOME; then\n"
      "libcublasLt.so.13 or .12, also in /usr/local/cuda and Python's packages)");
  app.add_flag("--no-libraries", flags.no_libraries,
               "try no candidates that call a library of this machine");
  app.add_option("--jobs", flags.jobs, "compilers at once (default: one per core)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--threads", flags.threads, "threads a kernel runs on (default: one per core)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--drain-timeout", flags.drain_timeout_s,
                 "seconds that it may take to finish its leases after SIGTERM")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  app.add_option("--cache-dir", flags.cache_dir,
                 "compiled objects, up to 1 GiB, so that a restart compiles nothing again\n"
                 "(default: $CACHE_DIRECTORY, ~/.cache/kiln/worker, or none without a home);\n"
                 "nobody else may write there, since what lies there is run");
  app.add_option("--runner", flags.runner, "the kiln-runner to use (default: beside this program)");
  app.add_option("--device-lock", flags.device_lock,
                 "file that the workers of this host lock while they measure\n"
                 "(default: kiln-device-NAME.lock in $XDG_RUNTIME_DIR or /tmp/kiln-UID, where\n"
                 "nobody else may write; workers of several users share one by naming it)");
  app.add_option("--compiler", flags.compiler, "C++ compiler (default: $KILN_CXX, then g++)");
  app.add_option("--sandbox", flags.sandbox,
                 "how compilers and kernels are kept apart from this machine: auto (as far as its\n"
                 "kernel allows), require (else do not start) or off; docs/security.md")
      ->check(CLI::IsMember({"auto", "require", "off"}))
      ->envname("KILN_SANDBOX")
      ->capture_default_str();
  app.add_option("--sandbox-read", flags.sandbox_read,
                 "a file or folder that compilers and kernels may read, beside the system's and\n"
                 "those of the compiler and CUDA; may be given again, or separated by colons in\n"
                 "$KILN_SANDBOX_READ")
      ->envname("KILN_SANDBOX_READ")
      ->delimiter(':');
  app.add_option("--http", flags.http,
                 "where /metrics, /healthz and /readyz are served: ADDRESS:PORT, as "
                 "127.0.0.1:9558,\n"
                 "port 0 picks one and the log names it; none: nowhere. docs/operations.md says "
                 "what to watch")
      ->capture_default_str();
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "send spans of its work to an OpenTelemetry collector, as http://127.0.0.1:4318\n"
                 "(default: $OTEL_EXPORTER_OTLP_ENDPOINT, else nothing is sent)")
      ->type_name("URL");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.set_version_flag("--version", [] {
    return version_line("kiln-worker",
                        {{"protocol", std::to_string(kProtocolVersion)},
                         {"templates", template_stamp(template_versions()).short_hex()}});
  });
  if (const auto code = parse_command_line(app, argc, argv)) return code;
  fill_in_defaults(flags);
  return std::nullopt;
}

// Checks everything that can be known to fail before there is any work.
Status check_surroundings(const Flags& flags) {
  if (!flags.builds() && !flags.target.empty())
    return fail(
        Code::kInvalidArgument,
        "--target says what --role build builds for; a worker that measures has its device's");
  if (::access(flags.runner.c_str(), X_OK) != 0)
    return fail(Code::kNotFound, "no kiln-runner at " + flags.runner + "; --runner names it");
  if (flags.name.size() > kMaxLabelBytes)
    return fail(Code::kInvalidArgument,
                fmt::format("--name is longer than {} characters", kMaxLabelBytes));
  return {};
}

// Where nobody else can hold a lock, or put a link in its place.
Result<Path> lock_folder(const Flags& flags) {
  if (!flags.lock_dir.empty()) {
    TRY_STATUS(check_ours(flags.lock_dir));
    return Path(flags.lock_dir);
  }
  const Path folder = fmt::format("/tmp/kiln-{}", ::geteuid());
  TRY_STATUS(make_private_directory(folder));
  return folder;
}

Result<Path> device_lock(const Flags& flags, const LocalDevice& device) {
  Path path = flags.device_lock;
  if (path.empty()) {
    auto folder = lock_folder(flags);
    if (!folder) return fail(folder.error().within("the device's lock; --device-lock names one"));
    path = *folder / ("kiln-device-" + device.name + ".lock");
  }
  const auto lock = FileLock::try_acquire(path, FileLock::Mode::kShared);
  if (!lock && lock.error().code != Code::kUnavailable)
    return fail(lock.error().within("the device's lock; --device-lock names another"));
  return path;
}

std::optional<ObjectCache> open_cache(const Flags& flags) {
  if (flags.cache_dir.empty()) {
    spdlog::warn("no HOME to keep objects in; compiling again after each restart (--cache-dir)");
    return std::nullopt;
  }
  auto cache = ObjectCache::open(flags.cache_dir, kObjectCacheBytes);
  if (cache) return *std::move(cache);
  spdlog::warn("{}; compiling again after each restart", cache.error().message);
  return std::nullopt;
}

Agent::Options agent_options(const Flags& flags, const Toolchain& toolchain,
                             const std::string& sandbox, int jobs) {
  Agent::Options options;
  options.coordinator = flags.coordinator;
  options.key_file = flags.key;
  options.templates = template_versions();
  options.jitter_seed = std::random_device()();
  options.finish_timeout_ms = flags.drain_timeout_s * 1000;
  options.self.worker = flags.name;
  options.self.toolkit = toolchain.build;
  options.self.builds = true;
  options.self.compilers = jobs;
  options.self.sandbox = sandbox.substr(0, kMostSandboxWords);
  return options;
}

// Null when it was not asked for. The agent outlives it.
Result<std::unique_ptr<HttpPort>> open_http(const std::string& address, const Agent& agent,
                                            const SpanExporter* traces) {
  if (address.empty() || address == "none") return nullptr;
  return HttpPort::open(address, [&agent, traces](std::string_view path) {
    WorkerStatus status = agent.status();
    if (traces != nullptr) status.spans = traces->counts();
    return worker_page(status, WorkerStatus::Clock::now(), path);
  });
}

// Null when nothing is traced. A variable that cannot be read costs the traces alone.
Result<std::unique_ptr<SpanExporter>> open_traces(const Flags& flags) {
  auto settings = trace_settings(flags.otlp_endpoint, "kiln-worker", environment);
  if (!settings && !flags.otlp_endpoint.empty()) return fail(settings.error());
  if (!settings) {
    spdlog::warn("no traces are sent: {}", settings.error().message);
    return nullptr;
  }
  settings->resource.emplace_back("service.instance.id", flags.name);
  return SpanExporter::open(*std::move(settings));
}

int compilers_of(const Flags& flags) {
  return flags.jobs > 0 ? flags.jobs : std::max(1, host_cpu_target().units);
}

DeviceOptions device_options(const Flags& flags) {
  DeviceOptions options{flags.runner,  flags.threads,  flags.compiler,
                        flags.libcuda, flags.libnvrtc, flags.libcublaslt};
  options.sandbox = flags.sandbox == "off"       ? Sandbox::Mode::kOff
                    : flags.sandbox == "require" ? Sandbox::Mode::kRequire
                                                 : Sandbox::Mode::kAuto;
  options.readable.assign(flags.sandbox_read.begin(), flags.sandbox_read.end());
  options.search_path = environment("PATH");
  options.library_path = environment("LD_LIBRARY_PATH");
  return options;
}

// For `kiln doctor`, and for people who want to know before there is a coordinator.
Status check(const Flags& flags) {
  TRY_STATUS(check_surroundings(flags));
  if (flags.builds()) {
    TRY(const Builder builder, open_builder(flags.device, flags.target, device_options(flags)));
    const nlohmann::ordered_json found = {{"role", "build"},
                                          {"targets", list_of(builder.targets)},
                                          {"toolkit", builder.toolchain.build},
                                          {"sandbox", builder.sandbox}};
    fmt::print("{}\n", found.dump());
    return {};
  }
  TRY(const LocalDevice device, open_device(flags.device, device_options(flags)));
  TRY(const Path lock, device_lock(flags, device));
  auto libraries = nlohmann::ordered_json::array();
  for (const LibraryVersion& library : device.libraries)
    libraries.push_back({{"name", library.name}, {"version", library.version}});
  const nlohmann::ordered_json found = {{"device", device.name},
                                        {"target", device.target.to_string()},
                                        {"model", device.target.device_model},
                                        {"toolkit", device.toolchain.build},
                                        {"sandbox", device.sandbox},
                                        {"libraries", std::move(libraries)},
                                        {"lock", lock.string()}};
  fmt::print("{}\n", found.dump());
  return {};
}

// Runs the agent until a signal or the coordinator ends it.
Status converse(const Flags& flags, Agent& agent, const Agent::Work& work,
                const std::string& sandbox, const SpanExporter* traces, const Scratch& scratch,
                const sigset_t& stop_signals) {
  TRY(const std::unique_ptr<HttpPort> http, open_http(flags.http, agent, traces));
  const auto level = sandbox.find("without") == std::string::npos && sandbox != "off"
                         ? spdlog::level::info
                         : spdlog::level::warn;
  spdlog::log(level, "sandbox: {}", sandbox);
  if (http != nullptr) spdlog::info("metrics on {}", http->endpoint());
  std::atomic<bool> over{false};
  const ServiceManager manager(environment("NOTIFY_SOCKET"), environment("WATCHDOG_USEC"));
  std::thread listener([&] {
    const auto alive = [&agent] {
      return worker_page(agent.status(), WorkerStatus::Clock::now(), "/healthz").status == 200;
    };
    // The first SIGTERM lets it finish what it has; anything else, or another one, does not.
    if (manager.wait(stop_signals, alive) == SIGTERM && !over) {
      manager.stopping();
      agent.finish();
      manager.wait(stop_signals, alive);
    }
    agent.stop();
  });
  manager.ready();
  Status served = agent.run(work);
  over = true;
  ::pthread_kill(listener.native_handle(), SIGINT);  // when it was not a signal that ended us
  listener.join();
  scratch.evict();  // nobody waits for what they make
  spdlog::info("worker {} stopped", flags.name);
  return served;
}

SpanSink sink_of(SpanExporter* traces) {
  return traces == nullptr ? SpanSink() : [traces](Span span) { traces->add(std::move(span)); };
}

Status measure(const Flags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
  TRY(const LocalDevice device, open_device(flags.device, device_options(flags)));
  TRY(const Path lock, device_lock(flags, device));
  const int jobs = compilers_of(flags);
  TRY(const std::unique_ptr<SpanExporter> traces, open_traces(flags));
  CompilePool compilers(device.toolchain, jobs, open_cache(flags));
  Agent::Options options = agent_options(flags, device.toolchain, device.sandbox, jobs);
  options.self.target = device.target;
  options.self.slots = std::clamp(jobs, 1, device.compiling_disturbs ? kMaxSlots : kMaxGpuSlots);
  options.self.libraries = device.libraries;
  Agent agent(options);
  JobRunner job_runner(
      {prepared_runner(device, compilers), lock, device.compiling_disturbs}, compilers,
      {[&](uint64_t lease) { agent.stepped(lease); },
       [&](CandidateResult result) { agent.finished(std::move(result)); },
       [&](double us, int errors) { agent.health(us, errors); },
       [&](const std::string& what) { agent.waits(what); }, sink_of(traces.get())});
  spdlog::info("worker {} on {}, {} ({}), {} compilers at once", flags.name,
               device.target.to_string(), device.target.device_model, device.toolchain.build, jobs);
  for (const LibraryVersion& library : device.libraries)
    spdlog::info("candidates may call {} {}", library.name, library.version);
  return converse(flags, agent,
                  {[&](std::vector<Job> started) { job_runner.submit(std::move(started)); },
                   [&](uint64_t lease) { job_runner.drop(lease); }, [&] { job_runner.stop(); },
                   [&] { return compilers.compiled(); }},
                  device.sandbox, traces.get(), scratch, stop_signals);
}

Status build(const Flags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
  TRY(const Builder builder, open_builder(flags.device, flags.target, device_options(flags)));
  const int jobs = compilers_of(flags);
  TRY(const std::unique_ptr<SpanExporter> traces, open_traces(flags));
  CompilePool compilers(builder.toolchain, jobs, open_cache(flags));
  Agent::Options options = agent_options(flags, builder.toolchain, builder.sandbox, jobs);
  options.self.target.backend = builder.targets.front().backend;
  options.self.slots = 0;
  options.self.builds_for = builder.targets;
  Agent agent(options);
  CandidateLowering lowering(builder.runner);
  BuildJobs builds(
      lowering, compilers, [&](uint64_t lease) { agent.stepped(lease); },
      [&](CandidateResult result) { agent.finished(std::move(result)); }, sink_of(traces.get()));
  spdlog::info("worker {} only builds, for {} ({}), {} compilers at once", flags.name,
               list_of(builder.targets), builder.toolchain.build, jobs);
  return converse(flags, agent,
                  {[&](std::vector<Job> started) {
                     for (Job& job : started) builds.submit(std::move(job));
                   },
                   [&](uint64_t lease) {
                     builds.drop(lease);
                     compilers.cancel(lease);
                   },
                   [&] {
                     lowering.close();
                     compilers.stop();
                     builds.stop();
                   },
                   [&] { return compilers.compiled(); }},
                  builder.sandbox, traces.get(), scratch, stop_signals);
}

Status serve(const Flags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
  TRY_STATUS(check_surroundings(flags));
  if (!flags.key.empty()) TRY_STATUS(read_client_key(flags.key).map([](const ClientKey&) {}));
  return flags.builds() ? build(flags, scratch, stop_signals)
                        : measure(flags, scratch, stop_signals);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const auto code = parse(argc, argv, flags)) return *code;
  if (flags.list_devices) {
    for (const std::string& line : list_gpus(flags.libcuda)) fmt::print("{}\n", line);
    return 0;
  }
  never_wait_for_stderr();
  ::umask(::umask(0) | S_IWGRP | S_IWOTH);  // what the libraries make is nobody else's to write
  // Blocked before any thread starts, so that only sigwait sees them.
  sigset_t stop_signals;
  ::sigemptyset(&stop_signals);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&stop_signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  const auto scratch = Scratch::create();
  if (!scratch) {
    fmt::print(stderr, "kiln-worker: {}\n", scratch.error().message);
    return 2;
  }
  if (const Status ours = check_ours(scratch->path()); !ours) {
    fmt::print(stderr, "kiln-worker: {}: TMPDIR names another place\n", ours.error().message);
    return 2;
  }
  ::setenv("TMPDIR", scratch->path().c_str(), 1);  // compilers work there; TempDir follows it
  const auto logger = spdlog::stderr_logger_mt("worker");
  logger->set_level(spdlog::level::from_str(flags.log_level));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %n %v");
  spdlog::set_default_logger(logger);

  const Status served = flags.check ? check(flags) : serve(flags, *scratch, stop_signals);
  if (!served) {
    fmt::print(stderr, "kiln-worker: {}\n", served.error().message);
    return 2;
  }
  return 0;
}
