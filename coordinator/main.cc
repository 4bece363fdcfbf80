// kiln-coordinator: one coordinator on one data directory, until SIGTERM or SIGINT. The only output
// on stdout is the line `ready tcp://HOST:PORT`, once it serves; the log goes to stderr.
//
// Exit codes: 0 stopped on request; 3 another coordinator writes its store by now; 2 it cannot start as configured (a flag, a data directory that
// another coordinator serves, a store that does not answer, a port that is taken), and says why.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <malloc.h>
#include <sched.h>
#include <spdlog/async.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/spdlog.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "cache/objects/s3_settings.h"
#include "compiler_core/base/file.h"
#include "compiler_core/base/service_manager.h"
#include "compiler_core/command_line/command_line.h"
#include "compiler_core/kernels/registry.h"
#include "coordinator/service/follower.h"
#include "coordinator/service/http_front.h"
#include "coordinator/service/service.h"
#include "coordinator/status/status_pages.h"
#include "schema/messages.h"

namespace kiln {
namespace {

constexpr uint64_t kMostOfIndex = 64 << 20;  // of --memory

struct Flags {
  std::string data_dir;
  std::string store, blobs, s3_endpoint;
  bool standby = false, follow = false;
  std::string listen = "tcp://127.0.0.1:7557";
  std::string keys;
  std::string log_level = "info";
  std::string log_format = "text";
  std::string http = "127.0.0.1:9557";
  bool http_asked_for = false;
  std::string redis;
  std::string otlp_endpoint;
  std::string ready_file;
  int planner_threads = 1;
  uint64_t cache_bytes = 0;
  uint64_t artifact_bytes = uint64_t{4} << 30;
  uint64_t copies_bytes = uint64_t{4} << 30;
  uint64_t spool_bytes = uint64_t{1} << 30;
  bool blob_links = false;
  uint64_t memory_bytes = 512 << 20;
  int64_t lease_timeout_ms = CoreOptions{}.lease_timeout_ms;
  int64_t worker_timeout_ms = CoreOptions{}.worker_timeout_ms;
  int confirm = CoreOptions{}.confirm;
};

constexpr int kSampleOneIn = 100;  // winners that no other key can confirm

constexpr char kAbout[] =
    "Kiln's coordinator: answers clients from its cache of tuned kernels; plans what is not "
    "there,\n"
    "has workers compile and time candidates, and stores the winners.\n"
    "\n"
    "  kiln-coordinator --data-dir /var/lib/kiln\n"
    "  kiln-worker --coordinator tcp://127.0.0.1:7557\n"
    "  kiln compile model.pt2 --coordinator tcp://127.0.0.1:7557\n"
    "\n"
    "A page to look at, /metrics, /healthz and /readyz are served on --http: open\n"
    "http://127.0.0.1:9557 (docs/page.md and docs/operations.md say what is there).\n"
    "\n"
    "Other machines need a key each, then the connections are encrypted:\n"
    "  kiln keys new ci --role submit --data-dir /var/lib/kiln    # writes ci.key, for KILN_KEY\n"
    "  kiln-coordinator --data-dir /var/lib/kiln --listen tcp://0.0.0.0:7557\n"
    "The list of keys is read again when it changes.\n"
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
  app.add_option(
      "--store", flags.store,
      "keep programs and kernels in PostgreSQL instead, so that they outlive this machine: "
      "postgresql://USER@HOST/DATABASE, its password from ~/.pgpass or PGPASSWORD; with "
      "--blobs");
  app.add_option(
      "--blobs", flags.blobs,
      "with --store: where the binaries are kept: s3://BUCKET/PREFIX, with the credentials "
      "and the endpoint that AWS's tools use, or a folder that outlives this machine");
  app.add_option("--s3-endpoint", flags.s3_endpoint,
                 "with --blobs in S3: a service that is not AWS, as https://HOST:PORT (default: "
                 "$AWS_ENDPOINT_URL_S3)")
      ->type_name("URL");
  app.add_flag("--standby", flags.standby,
               "with --store: while another coordinator writes it, wait for its end, then serve");
  app.add_flag("--follow", flags.follow,
               "as --standby, and answer meanwhile what is stored; clients and workers name all "
               "coordinators of the store, and find the one that leads");
  app.add_option("--listen", flags.listen,
                 "endpoint; port 0 picks a free one (the ready line names it); beyond loopback it "
                 "takes keys")
      ->capture_default_str();
  app.add_option(
      "--keys", flags.keys,
      "folder of keys that `kiln keys` made (default: DATA_DIR/keys when --listen is not "
      "on loopback, else none)");
  app.add_option("--log-level", flags.log_level, "trace, debug, info, warn, error or off")
      ->check(CLI::IsMember({"trace", "debug", "info", "warn", "error", "off"}))
      ->capture_default_str();
  app.add_option("--log-format", flags.log_format,
                 "text: time, level and name=value fields; json: an object a line")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
  auto* http =
      app.add_option(
             "--http", flags.http,
             "where the web page, /metrics, /healthz and /readyz are served: ADDRESS:PORT, port "
             "0 picks one, 'none' for nowhere. When the default is taken the coordinator goes on "
             "without and says so")
          ->capture_default_str();
  app.add_option("--redis-listen", flags.redis,
                 "where Inductor's own Redis client (TORCHINDUCTOR_REDIS_URL) finds the artifacts: "
                 "ADDRESS:PORT, port 0 picks one; default: nowhere. Where keys are taken, the "
                 "password is what `kiln page-token` prints");
  app.add_option("--otlp-endpoint", flags.otlp_endpoint,
                 "send a trace of each program that is tuned, and of each request that is traced, "
                 "to an OpenTelemetry collector, as http://127.0.0.1:4318 (default: "
                 "$OTEL_EXPORTER_OTLP_ENDPOINT, else nothing is sent)")
      ->type_name("URL");
  app.add_option(
      "--ready-file", flags.ready_file,
      "once it serves, write {\"pid\", \"endpoint\", \"http\", \"redis\"} here as JSON: how "
      "scripts "
      "learn the ports that were picked");
  app.add_option("--cache-size", flags.cache_bytes,
                 "how much the cache may hold on disk, as 500MiB or 20GiB: what was not used for "
                 "the longest goes first, tuning records and pinned programs stay; 0: no bound")
      ->transform(CLI::AsSizeValue(false))
      ->capture_default_str();
  app.add_option(
         "--copies-size", flags.copies_bytes,
         "with --store: how much it keeps of --blobs on its own disk, so that binaries that "
         "were asked for are answered while the store is away, too: what was not used for "
         "the longest goes first; 0: nothing")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("4GiB");
  app.add_option("--spool-size", flags.spool_bytes,
                 "with --store: how much of what is tuned while the store is away it keeps on its "
                 "own disk, to store it once it is back; 0: nothing, memory has it until then")
      ->transform(CLI::AsSizeValue(false))
      ->default_str("1GiB");
  app.add_flag("--blob-links", flags.blob_links,
               "with --blobs in S3: clients that ask for it (`kiln --blob-links`) get links to "
               "binaries that are not in memory, good for 15 minutes, and fetch them from S3 "
               "themselves");
  app.add_option("--artifacts-size", flags.artifact_bytes,
                 "how much it may hold on disk, beside the cache, of what other compilers made "
                 "(Inductor's cache entries and timings): what was not used for the longest goes "
                 "first")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 50))
      ->default_str("4GiB");
  app.add_option(
         "--memory", flags.memory_bytes,
         "how much it keeps in memory of what it answered lately, as 2GiB: an eighth (64MiB at "
         "most) for pages of the index, half of the rest for manifests and half for binaries; "
         "what is not there comes from disk")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1} << 20, uint64_t{1} << 50))
      ->default_str("512MiB");
  app.add_option("--planner-threads", flags.planner_threads, "graphs planned at once")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_option("--confirm", flags.confirm,
                 "who builds and runs a winner again before it is served: 2: a worker with another "
                 "key, or it is not served; 1: such a worker where there is one; 0: none. Where "
                 "nobody with another key does, another worker does for one winner in a hundred")
      ->check(CLI::Range(0, 2))
      ->capture_default_str();
  app.add_option("--lease-timeout-ms", flags.lease_timeout_ms,
                 "work without progress for so long is given to somebody else")
      ->check(CLI::Range(100, 3'600'000))
      ->capture_default_str();
  app.add_option("--worker-timeout-ms", flags.worker_timeout_ms,
                 "a worker silent for so long is taken for gone; they report every second")
      ->check(CLI::Range(100, 3'600'000))
      ->capture_default_str();
  app.set_version_flag("--version", [] {
    return version_line("kiln-coordinator",
                        {{"protocol", std::to_string(kProtocolVersion)},
                         {"templates", template_stamp(template_versions()).short_hex()}});
  });
  const auto code = parse_command_line(app, argc, argv);
  flags.http_asked_for = http->count() > 0;
  return code;
}

// Answers of some 10 KB are allocated and freed tens of thousands of times a second: left alone,
// malloc gives the pages back to the system and takes them again, a fifth to a quarter of an
// artifact's cost in the runs of tests/bench/LOG.md.
void keep_freed_memory() {
  mallopt(M_TRIM_THRESHOLD, 16 << 20);
  mallopt(M_TOP_PAD, 1 << 20);
  mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

// The threads here run for some microseconds at a time and then wait: with short turns a busy core
// lets them in sooner (Linux 6.12 and later; before, nothing changes), which the p99 of look-ups
// shows on a busy machine (tests/bench/LOG.md). Threads inherit it.
void ask_for_short_turns() {
  constexpr uint64_t kTurnNs = 500'000;
  // As sched_setattr(2) has it; <linux/sched/types.h> and glibc 2.36 do not go together.
  struct {
    uint32_t size;
    uint32_t policy;
    uint64_t flags;
    int32_t nice;
    uint32_t priority;
    uint64_t runtime_ns, deadline_ns, period_ns;
  } attributes{};
  if (syscall(SYS_sched_getattr, 0, &attributes, sizeof attributes, 0) != 0) return;
  if (attributes.policy != SCHED_OTHER) return;  // an operator chose otherwise
  attributes.runtime_ns = kTurnNs;
  (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

// Each client and worker takes a descriptor; the soft limit is often as low as 1024.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// Writes to stderr, and counts the lines that it does not take: a pipe whose reader is slow never
// blocks (never_wait_for_stderr).
class StderrSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  int64_t lost() const { return lost_; }

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const auto size = static_cast<ssize_t>(text.size());
    ssize_t written = 0;
    do written = ::write(STDERR_FILENO, text.data(), text.size());
    while (written < 0 && errno == EINTR);
    if (written != size) ++lost_;
  }
  void flush_() override {}

  std::atomic<int64_t> lost_{0};
};

// Lines go through a queue of their own to stderr: a slow reader delays nothing; the oldest lines
// are dropped for the newest.
class Log {
 public:
  explicit Log(const Flags& flags)
      : json_(flags.log_format == "json"),
        queue_(std::make_shared<spdlog::details::thread_pool>(kLines, 1)),
        logger_(std::make_shared<spdlog::async_logger>(
            "coordinator", sink_, queue_, spdlog::async_overflow_policy::overrun_oldest)) {
    logger_->set_level(spdlog::level::from_str(flags.log_level));
    logger_->set_pattern(json_ ? "%v" : "%Y-%m-%dT%H:%M:%S.%e%z %l %v");
  }

  void write(const LogLine& line) {
    const auto level =
        line.level() == LogLine::Level::kInfo ? spdlog::level::info : spdlog::level::warn;
    if (!logger_->should_log(level)) return;
    logger_->log(level, "{}", json_ ? line.json(now()) : line.logfmt());
  }
  int64_t dropped() const {
    return static_cast<int64_t>(queue_->overrun_counter()) + sink_->lost();
  }

 private:
  static constexpr size_t kLines = 8192;
  static std::string now() {
    const auto time = std::chrono::system_clock::now();
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(time.time_since_epoch());
    return fmt::format("{:%Y-%m-%dT%H:%M:%S}.{:03}Z",
                       fmt::gmtime(std::chrono::system_clock::to_time_t(time)), ms.count() % 1000);
  }

  const bool json_;
  const std::shared_ptr<StderrSink> sink_ = std::make_shared<StderrSink>();
  const std::shared_ptr<spdlog::details::thread_pool> queue_;
  const std::shared_ptr<spdlog::async_logger> logger_;
};

// Null when it was not asked for, or the default port is somebody else's.
Result<std::unique_ptr<HttpFront>> open_http(const Flags& flags,
                                             const std::shared_ptr<ServiceStatus>& status,
                                             Log& log) {
  if (flags.http.empty() || flags.http == "none") return nullptr;
  auto port = HttpFront::open(flags.http, status, [&log] { return log.dropped(); });
  if (port || flags.http_asked_for || port.error().code != Code::kUnavailable) return port;
  log.write(LogLine("http", LogLine::Level::kWarning)
                .add("state", "off")
                .add("reason",
                     port.error().message + ": no page, no /metrics; give --http another port"));
  return nullptr;
}

Status write_ready_file(const Flags& flags, const std::string& endpoint, const std::string& redis,
                        const HttpFront* http) {
  if (flags.ready_file.empty()) return {};
  nlohmann::ordered_json ready = {
      {"pid", getpid()}, {"endpoint", endpoint}, {"http", nullptr}, {"redis", nullptr}};
  if (!redis.empty()) ready["redis"] = redis;
  if (http != nullptr) ready["http"] = http->endpoint();
  return publish_file(flags.ready_file, ready.dump() + "\n");
}

void say_ready(const std::string& endpoint) {
  fmt::print("ready {}\n", endpoint);
  std::fflush(stdout);
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// Null when nothing is traced. A variable that cannot be read costs the traces alone.
Result<std::shared_ptr<SpanExporter>> open_traces(const Flags& flags, Log& log) {
  auto settings = trace_settings(flags.otlp_endpoint, "kiln-coordinator", environment);
  if (!settings && !flags.otlp_endpoint.empty()) return fail(settings.error());
  if (!settings) {
    log.write(LogLine("traces", LogLine::Level::kWarning)
                  .add("state", "off")
                  .add("reason", settings.error().message));
    return nullptr;
  }
  return std::shared_ptr<SpanExporter>(SpanExporter::open(*std::move(settings)));
}

// A signal came while nobody waited for one.
bool is_asked_to_stop(const sigset_t& stop_signals) {
  sigset_t pending;
  sigpending(&pending);
  return (sigismember(&pending, SIGTERM) == 1 && sigismember(&stop_signals, SIGTERM) == 1) ||
         (sigismember(&pending, SIGINT) == 1 && sigismember(&stop_signals, SIGINT) == 1);
}

int cannot_start(const Error& error) {
  fmt::print(stderr, "kiln-coordinator: {}\n", error.message);
  return 2;
}

}  // namespace
}  // namespace kiln

int main(int argc, char** argv) {
  using namespace kiln;  // NOLINT(google-build-using-namespace)
  Flags flags;
  if (const auto code = parse(argc, argv, flags)) return *code;
  never_wait_for_stderr();
  // Blocked before any thread starts, so that only sigwait below sees them.
  sigset_t stop_signals;
  sigemptyset(&stop_signals);
  sigaddset(&stop_signals, SIGTERM);
  sigaddset(&stop_signals, SIGINT);
  pthread_sigmask(SIG_BLOCK, &stop_signals, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGHUP, SIG_IGN);             // the list of keys is read again anyway
  ::umask(::umask(0) | S_IWGRP | S_IWOTH);  // what the libraries make is nobody else's to write
  raise_descriptor_limit();
  keep_freed_memory();
  ask_for_short_turns();

  Log log(flags);
  const auto status = std::make_shared<ServiceStatus>();
  const auto http =
      open_http(flags, status, log);  // before the index is opened: it says "starting"
  if (!http) return cannot_start(http.error());
  const auto traces = open_traces(flags, log);
  if (!traces) return cannot_start(traces.error());

  ServiceOptions options;
  options.data_dir = flags.data_dir;
  options.store = flags.store;
  options.blobs = flags.blobs;
  options.objects.s3 = s3_settings(environment);
  if (!flags.s3_endpoint.empty()) options.objects.s3.endpoint = flags.s3_endpoint;
  if (flags.standby || flags.follow)
    options.stands_by = [&stop_signals] { return !is_asked_to_stop(stop_signals); };
  std::atomic<bool> superseded{false};
  options.lost = [&superseded] {
    superseded = true;
    ::kill(getpid(), SIGTERM);
  };
  options.endpoint = flags.listen;
  options.keys = flags.keys;
  options.redis = flags.redis;
  options.planner_threads = flags.planner_threads;
  options.cache_bytes = static_cast<int64_t>(flags.cache_bytes);
  options.copies_bytes = static_cast<int64_t>(flags.copies_bytes);
  options.spool_bytes = static_cast<int64_t>(flags.spool_bytes);
  options.blob_links = flags.blob_links;
  options.artifact_bytes = static_cast<int64_t>(flags.artifact_bytes);
  const uint64_t index_bytes = std::min(flags.memory_bytes / 8, kMostOfIndex);
  options.index_bytes = static_cast<int64_t>(index_bytes);
  options.manifest_bytes = options.blob_bytes = (flags.memory_bytes - index_bytes) / 2;
  options.core.lease_timeout_ms = flags.lease_timeout_ms;
  options.core.worker_timeout_ms = flags.worker_timeout_ms;
  options.core.confirm = flags.confirm;
  options.core.sample_one_in = kSampleOneIn;
  if (getrandom(&options.core.sample_seed, sizeof options.core.sample_seed, 0) !=
      static_cast<ssize_t>(sizeof options.core.sample_seed))
    return cannot_start({Code::kInternal, "the kernel gave no random number", 0});
  options.log = [&log](const LogLine& line) { log.write(line); };
  options.status = status;
  options.traces = *traces;
  std::unique_ptr<Follower> follower;
  if (flags.follow && !flags.store.empty()) {
    auto followed = Follower::start(options);
    if (!followed) return cannot_start(followed.error());
    follower = *std::move(followed);
    options.endpoint = follower->endpoint();  // the port stays when it leads
    options.leads = [&follower] { follower.reset(); };
    if (const Status written = write_ready_file(flags, options.endpoint, "", http->get()); !written)
      return cannot_start(written.error());
    say_ready(options.endpoint);
    log.write(LogLine("coordinator").add("state", "follows").add("endpoint", options.endpoint));
  }
  const bool waits = options.stands_by != nullptr;
  const auto service = Service::start(std::move(options));
  if (!service && waits && is_asked_to_stop(stop_signals)) return 0;
  if (!service) return cannot_start(service.error());
  if (const Status written = write_ready_file(flags, (*service)->endpoint(),
                                              (*service)->redis_endpoint(), http->get());
      !written) {
    return cannot_start(written.error());
  }
  if (*http != nullptr) (*http)->attach((*service)->page());
  if (!flags.follow) say_ready((*service)->endpoint());
  LogLine serving("coordinator");
  serving.add("state", "serving").add("endpoint", (*service)->endpoint());
  if (*http != nullptr) serving.add("http", (*http)->endpoint());
  if (!(*service)->redis_endpoint().empty()) serving.add("redis", (*service)->redis_endpoint());
  log.write(serving.add("data_dir", flags.data_dir));

  const ServiceManager manager(environment("NOTIFY_SOCKET"), environment("WATCHDOG_USEC"));
  manager.ready();
  const int signal = manager.wait(stop_signals, [&status] {
    return status_page(*status, ServiceStatus::Clock::now(), 0, "/healthz").status == 200;
  });
  manager.stopping();
  log.write(LogLine("coordinator").add("state", "stopping").add("signal", signal));
  if (*http != nullptr) (*http)->detach();  // its page reads the service
  (*service)->stop();
  return superseded ? 3 : 0;
}
