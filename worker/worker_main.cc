// kiln-worker: compiles, verifies and times candidates for a coordinator, until SIGTERM or SIGINT.
//
// Exit codes: 0 stopped on request; 2 bad usage, no compiler, or a coordinator of another protocol.
#include <fmt/format.h>
#include <signal.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "compiler_core/base/own_directory.h"
#include "compiler_core/base/service_manager.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/runtime/cuda_device.h"
#include "schema/keys/key_file.h"
#include "schema/metrics/http_port.h"
#include "worker/agent/agent.h"
#include "worker/agent/worker_status.h"
#include "worker/flags.h"
#include "worker/jobs/build_jobs.h"
#include "worker/jobs/job_runner.h"
#include "worker/local_device.h"
#include "worker/scratch.h"

namespace {

using namespace kiln;

constexpr int64_t kObjectCacheBytes = int64_t{1} << 30;
// Leases at once; more would wait here too long for the device. A GPU measures one while the
// compilers are busy with the others, each of which is some five candidates.
constexpr int kMaxSlots = 4, kMaxGpuSlots = 14;
constexpr size_t kMostSandboxWords = 1000;  // bytes

// Only main() and the functions that it hands this to read the environment.
std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Checks everything that can be known to fail before there is any work.
Status check_surroundings(const WorkerFlags& flags) {
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
Result<Path> lock_folder(const WorkerFlags& flags) {
  if (!flags.lock_dir.empty()) {
    TRY_STATUS(check_ours(flags.lock_dir));
    return Path(flags.lock_dir);
  }
  const Path folder = fmt::format("/tmp/kiln-{}", ::geteuid());
  TRY_STATUS(make_private_directory(folder));
  return folder;
}

Result<Path> device_lock(const WorkerFlags& flags, const LocalDevice& device) {
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

std::optional<ObjectCache> open_cache(const WorkerFlags& flags) {
  if (flags.cache_dir.empty()) {
    spdlog::warn("no HOME to keep objects in; compiling again after each restart (--cache-dir)");
    return std::nullopt;
  }
  auto cache = ObjectCache::open(flags.cache_dir, kObjectCacheBytes);
  if (cache) return *std::move(cache);
  spdlog::warn("{}; compiling again after each restart", cache.error().message);
  return std::nullopt;
}

Agent::Options agent_options(const WorkerFlags& flags, const Toolchain& toolchain,
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
Result<std::unique_ptr<SpanExporter>> open_traces(const WorkerFlags& flags) {
  auto settings = trace_settings(flags.otlp_endpoint, "kiln-worker", environment);
  if (!settings && !flags.otlp_endpoint.empty()) return fail(settings.error());
  if (!settings) {
    spdlog::warn("no traces are sent: {}", settings.error().message);
    return nullptr;
  }
  settings->resource.emplace_back("service.instance.id", flags.name);
  return SpanExporter::open(*std::move(settings));
}

int compilers_of(const WorkerFlags& flags) {
  return flags.jobs > 0 ? flags.jobs : std::max(1, host_cpu_target().units);
}

DeviceOptions device_options(const WorkerFlags& flags) {
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
Status check(const WorkerFlags& flags) {
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
Status converse(const WorkerFlags& flags, Agent& agent, const Agent::Work& work,
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

Status measure(const WorkerFlags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
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

Status build(const WorkerFlags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
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

Status serve(const WorkerFlags& flags, const Scratch& scratch, const sigset_t& stop_signals) {
  TRY_STATUS(check_surroundings(flags));
  if (!flags.key.empty()) TRY_STATUS(read_client_key(flags.key).map([](const ClientKey&) {}));
  return flags.builds() ? build(flags, scratch, stop_signals)
                        : measure(flags, scratch, stop_signals);
}

}  // namespace

int main(int argc, char** argv) {
  WorkerFlags flags;
  if (const auto code = parse_flags(argc, argv, environment, flags)) return *code;
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
