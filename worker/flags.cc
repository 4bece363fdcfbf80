#include "worker/flags.h"

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "compiler_core/base/file.h"
#include "compiler_core/command_line/command_line.h"
#include "compiler_core/kernels/registry.h"
#include "compiler_core/runtime/cuda_device.h"
#include "schema/messages.h"

namespace kiln {
namespace {

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

// Where only this user writes; empty when there is no such place.
Path default_cache_dir(Environment* environment) {
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

// Defaults that depend on the environment.
void fill_in_defaults(WorkerFlags& flags, Environment* environment) {
  char host[256] = "worker";
  ::gethostname(host, sizeof host - 1);
  if (flags.device.empty()) flags.device = flags.builds() ? "cuda" : "cpu";
  if (flags.name.empty()) flags.name = fmt::format("{}:{}", host, ::getpid());
  if (flags.cache_dir.empty()) flags.cache_dir = default_cache_dir(environment).string();
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

}  // namespace

std::optional<int> parse_flags(int argc, char** argv, Environment* environment,
                               WorkerFlags& flags) {
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
  fill_in_defaults(flags, environment);
  return std::nullopt;
}

}  // namespace kiln
