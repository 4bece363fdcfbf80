// kiln-coordinator: one coordinator on one data directory, until SIGTERM or SIGINT. The only output
// on stdout is the line `ready tcp://HOST:PORT`, once it serves; the log goes to stderr.
//
// Exit codes: 0 stopped as told; 2 it cannot start as it was told to (a flag, a data directory that
// another coordinator serves, a port that is taken), and says why.
#include <fmt/format.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <optional>

#include "coordinator/service.h"

namespace {

struct Flags {
  std::string data_dir;
  std::string listen = "tcp://127.0.0.1:7557";
  std::string log_level = "info";
  int planner_threads = 1;
  int64_t lease_timeout_ms = kiln::CoreOptions{}.lease_timeout_ms;
  int64_t worker_timeout_ms = kiln::CoreOptions{}.worker_timeout_ms;
};

constexpr char kAbout[] =
    "Kiln's coordinator: answers clients from its cache of tuned kernels; plans what is not "
    "there,\n"
    "has workers compile and time candidates, and stores the winners.\n"
    "\n"
    "  kiln-coordinator --data-dir /var/lib/kiln\n"
    "  kiln-worker --coordinator tcp://127.0.0.1:7557\n"
    "  kiln compile model.pt2 --coordinator tcp://127.0.0.1:7557\n"
    "\n"
    "(`kiln up` starts a coordinator and workers together.) Once it serves it prints a line\n"
    "`ready tcp://HOST:PORT` on stdout; its log, one line for each program that was tuned, goes "
    "to\n"
    "stderr. SIGTERM and SIGINT stop it cleanly; kill -9 loses nothing that was answered as "
    "stored.";

// Parses into `flags`; an exit code when the program should end now.
std::optional<int> parse(int argc, char** argv, Flags& flags) {
  CLI::App app(kAbout, "kiln-coordinator");
  app.add_option("--data-dir", flags.data_dir,
                 "where the cache lives: created when absent, used by one coordinator at a time")
      ->required();
  app.add_option("--listen", flags.listen,
                 "endpoint, on loopback; port 0 picks a free one (the ready line names it)")
      ->capture_default_str();
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--planner-threads", flags.planner_threads, "graphs planned at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--lease-timeout-ms", flags.lease_timeout_ms,
                 "work without progress for so long is given to somebody else")
      ->check(CLI::Range(100, 3'600'000))
      ->capture_default_str();
  app.add_option("--worker-timeout-ms", flags.worker_timeout_ms,
                 "a worker silent for so long is taken for gone; they report every second")
      ->check(CLI::Range(100, 3'600'000))
      ->capture_default_str();
  try {
    app.parse(argc, argv);
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : 2;
  }
}

// Each client and worker takes a descriptor; the soft limit is often as low as 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

int main(int argc, char** argv) {
  Flags flags;
  if (const auto code = parse(argc, argv, flags)) return *code;
  // Blocked before any thread starts, so that only sigwait below sees them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  raise_descriptor_limit();

  const auto logger = spdlog::stderr_logger_mt("coordinator");
  logger->set_level(spdlog::level::from_str(flags.log_level));
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e%z %l %v");

  kiln::ServiceOptions options;
  options.data_dir = flags.data_dir;
  options.endpoint = flags.listen;
  options.planner_threads = flags.planner_threads;
  options.core.lease_timeout_ms = flags.lease_timeout_ms;
  options.core.worker_timeout_ms = flags.worker_timeout_ms;
  options.log = [logger](std::string_view line) { logger->info(line); };
  const auto service = kiln::Service::start(std::move(options));
  if (!service) {
    fmt::print(stderr, "kiln-coordinator: {}\n", service.error().message);
    return 2;
  }
  fmt::print("ready {}\n", (*service)->endpoint());
  std::fflush(stdout);
  logger->info("coordinator state=serving endpoint={} data_dir={}", (*service)->endpoint(),
               flags.data_dir);

  int signal = 0;
  sigwait(&stop_signals, &signal);
  logger->info("coordinator state=stopping signal={}", signal);
  (*service)->stop();
  return 0;
}
