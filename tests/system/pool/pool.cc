#include "tests/system/pool/pool.h"

#include <fmt/format.h>
#include <signal.h>

#include <algorithm>
#include <chrono>

#include "compiler_core/base/check.h"
#include "tests/support/loopback.h"
#include "tests/support/process.h"

namespace kiln::testing {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::seconds kPatience{60};
constexpr int kSuperseded = 3;  // as a coordinator ends when another one has the term

// Each row of the history is a term that began, or something that was published in one. Nothing is
// published while the row of the term is being written, so the numbers are in the order of events.
constexpr char kHistory[] = R"(
CREATE SCHEMA judged;
CREATE TABLE judged.history (id bigserial PRIMARY KEY, what text NOT NULL, epoch bigint NOT NULL);
CREATE FUNCTION judged.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
  INSERT INTO judged.history (what, epoch) VALUES (TG_TABLE_NAME, NEW.epoch); RETURN NULL; END $$;
INSERT INTO judged.history (what, epoch) SELECT 'terms', epoch FROM kiln.terms;
CREATE TRIGGER judged AFTER INSERT OR UPDATE ON kiln.terms FOR EACH ROW
  WHEN (NEW.until > clock_timestamp()) EXECUTE FUNCTION judged.note();
CREATE TRIGGER judged AFTER INSERT OR UPDATE OF epoch ON kiln.programs FOR EACH ROW
  EXECUTE FUNCTION judged.note();
CREATE TRIGGER judged AFTER INSERT OR UPDATE OF epoch ON kiln.kernels FOR EACH ROW
  EXECUTE FUNCTION judged.note();
)";

constexpr char kPublishedLate[] = R"(
SELECT string_agg(what || ' under ' || epoch || ' after ' || latest, ', ') FROM (
  SELECT what, epoch, max(epoch) FILTER (WHERE what = 'terms') OVER (ORDER BY id) AS latest
  FROM judged.history) h WHERE epoch <> latest)";

constexpr char kNotLive[] = R"(
SELECT count(*) FROM kiln.program_blobs p JOIN kiln.blobs b USING (digest) WHERE b.state <> 'L')";

}  // namespace

Result<std::unique_ptr<Pool>> Pool::start(Options options) {
  std::unique_ptr<Pool> pool(new Pool(std::move(options)));
  TRY_STATUS(pool->start_all());
  return pool;
}

Status Pool::start_all() {
  for (int n = 0; n < (options_.has_standby ? 2 : 1); ++n) {
    TRY(auto server, PostgresServer::start());
    postgres_.push_back(std::move(server));
  }
  const std::string url = postgres_[0]->new_database();
  database_ = url.substr(url.rfind('/') + 1);
  if (options_.has_standby) postgres_[1]->follow(*postgres_[0]);
  to_s3_ = std::make_unique<TcpProxy>(s3_.port());
  coordinators_.resize(static_cast<size_t>(options_.coordinators));
  for (Coordinator& each : coordinators_) {
    const int port = free_port();
    each.endpoint = fmt::format("tcp://127.0.0.1:{}", port);
    each.clients = std::make_unique<TcpProxy>(port);
    all_ += fmt::format("{}tcp://127.0.0.1:{}", all_.empty() ? "" : ",", each.clients->port());
    for (const auto& server : postgres_) {
      StatementTap* const tap = each.taps.emplace_back(std::make_unique<StatementTap>()).get();
      each.postgres.push_back(std::make_unique<TcpProxy>(
          server->port(), [tap](int connection, bool up, std::string_view bytes) {
            return tap->hear(connection, up, bytes);
          }));
    }
  }
  // One makes the key that all sign with.
  for (size_t n = 0; n < coordinators_.size(); ++n) {
    const Path data = options_.root / fmt::format("data{}", n);
    std::filesystem::create_directories(data);
    if (n > 0)
      std::filesystem::copy(options_.root / "data0" / "signing", data / "signing",
                            std::filesystem::copy_options::recursive);
    start_coordinator(n);
    if (n == 0 && !await_leader())
      return fail(Code::kUnavailable, "no coordinator leads: " + log_of(0));
  }
  if (options_.has_history) keep_history();
  for (int n = 0; n < options_.workers; ++n) {
    workers_.push_back(Child::none());
    start_worker(static_cast<size_t>(n));
  }
  return {};
}

std::string Pool::direct_endpoints() const {
  std::string all;
  for (const Coordinator& each : coordinators_) all += (all.empty() ? "" : ",") + each.endpoint;
  return all;
}

Pool::~Pool() {
  for (Child& worker : workers_) worker.signal(SIGKILL);
  for (Coordinator& each : coordinators_) each.child.signal(SIGKILL);
}

std::string Pool::url_of(size_t coordinator) const {
  std::string hosts;
  for (const auto& wire : coordinators_[coordinator].postgres)
    hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",", wire->port());
  return fmt::format("postgresql://kiln@{}/{}", hosts, database_);
}

void Pool::start_coordinator(size_t number) {
  const std::string name = fmt::format("data{}", number);
  coordinators_[number].started = true;
  coordinators_[number].child =
      Child::start({binary("kiln-coordinator"), "--data-dir", options_.root / name, "--store",
                    url_of(number), "--blobs", SmallS3::kUrl, "--s3-endpoint",
                    fmt::format("http://127.0.0.1:{}", to_s3_->port()), "--listen",
                    coordinators_[number].endpoint, "--http", "none", "--follow", "--copies-size",
                    "0", "--memory", "1MiB", "--blob-links"},
                   options_.root / (name + ".out"), options_.root / (name + ".log"),
                   {"AWS_ACCESS_KEY_ID=k", "AWS_SECRET_ACCESS_KEY=s"});
}

// Each with objects of its own: what one compiled spares the other nothing.
void Pool::start_worker(size_t number) {
  const std::string name = fmt::format("worker{}", number);
  workers_[number] =
      Child::start({binary("kiln-worker"), "--coordinator", all_, "--name", name, "--threads", "1",
                    "--jobs", "1", "--cache-dir", options_.root / name},
                   options_.root / (name + ".out"), options_.root / (name + ".log"),
                   {"XDG_RUNTIME_DIR=" + options_.root.string()});
}

std::string Pool::log_of(size_t coordinator) const {
  return read_file(options_.root / fmt::format("data{}.log", coordinator)).value_or("");
}

// ---- PostgreSQL ----

std::string Pool::ask(const std::string& sql) const {
  const PostgresServer& server = *postgres_[primary_];
  return server
      .query(fmt::format("postgresql://kiln@127.0.0.1:{}/{}", server.port(), database_), sql)
      .value_or("");
}

std::string Pool::insist(const std::string& sql) const {
  std::string answer;
  for (const auto start = Clock::now(); Clock::now() - start < kPatience; pause_ms(50))
    if (answer = ask(sql); !answer.empty()) break;
  return answer;
}

void Pool::keep_history() const {
  (void)ask(kHistory);
  CHECK(insist("SELECT count(*) FROM judged.history") != "", "the tables are there");
}

void Pool::set_postgres(size_t coordinator, TcpProxy::Mode mode) {
  for (const auto& wire : coordinators_[coordinator].postgres) wire->set(mode);
}

void Pool::lose_postgres(size_t coordinator, PacketFilter::Cut cut) {
  for (const auto& wire : coordinators_[coordinator].postgres) PacketFilter::cut(wire->port(), cut);
}

void Pool::lose_clients(size_t coordinator, PacketFilter::Cut cut) {
  PacketFilter::cut(coordinators_[coordinator].clients->port(), cut);
}

void Pool::lose_s3(PacketFilter::Cut cut) {
  PacketFilter::cut(to_s3_->port(), cut);
}

void Pool::fail_over() {
  CHECK(options_.has_standby, "the pool has one");
  for (const Coordinator& each : coordinators_) each.postgres[primary_]->set_absent(true);
  postgres_[primary_]->kill();
  primary_ = 1 - primary_;
  postgres_[primary_]->promote();
  standby_is_gone_ = true;
}

std::vector<std::string> Pool::complaints() const {
  std::vector<std::string> all;
  const auto complain = [&](std::string what) { all.push_back(std::move(what)); };
  if (options_.has_history) {
    if (const std::string late = ask(kPublishedLate); !late.empty())
      complain("published when the term was over: " + late);
    const std::string terms = insist(
        "SELECT count(*) - count(DISTINCT epoch) FROM (SELECT epoch, lag(epoch) OVER (ORDER BY id)"
        " AS before FROM judged.history WHERE what = 'terms') t WHERE epoch IS DISTINCT FROM "
        "before");
    if (terms != "0") complain("an epoch was issued twice");
  }
  if (const std::string dead = insist(kNotLive); dead != "0")
    complain("programs are stored whose binaries are not: " + dead);
  const std::set<std::string> objects = s3_.objects();
  const std::string live = ask("SELECT object FROM kiln.blobs WHERE state = 'L'");
  for (size_t begin = 0; begin < live.size();) {
    const size_t end = std::min(live.find('\n', begin), live.size());
    const std::string object = live.substr(begin, end - begin);
    if (!objects.contains(object)) complain("a live binary has no object: " + object);
    begin = end + 1;
  }
  return all;
}

// ---- Who leads, who runs ----

// The holder's name has its process in it: one that was started again at the same address is another.
std::optional<size_t> Pool::leader() const {
  const std::string term =
      ask("SELECT address || '|' || holder FROM kiln.terms WHERE until > clock_timestamp()");
  for (size_t n = 0; n < coordinators_.size(); ++n)
    if (term.starts_with(coordinators_[n].endpoint + " ") &&
        term.find(fmt::format(".{}.", pid(n)), term.find('|')) != std::string::npos)
      return n;
  return std::nullopt;
}

std::optional<size_t> Pool::await_leader() {
  for (const auto start = Clock::now(); Clock::now() - start < kPatience; pause_ms(50)) {
    tend();
    const auto leads = leader();
    if (leads && running(*leads)) return leads;
  }
  return std::nullopt;
}

void Pool::tend() {
  for (size_t n = 0; n < coordinators_.size(); ++n) {
    Child& child = coordinators_[n].child;
    if (!coordinators_[n].started || child.running()) continue;
    const int code = child.exit_code();
    if (code != 128 + SIGKILL && code != kSuperseded)
      bad_ends_.push_back(fmt::format("coordinator {} ended with {}: {}", n, code, log_of(n)));
    start_coordinator(n);
    ++restarts_;
  }
  for (size_t n = 0; n < workers_.size(); ++n) {
    if (workers_[n].running()) continue;
    bad_ends_.push_back(fmt::format("worker {} ended with {}", n, workers_[n].exit_code()));
    start_worker(n);
  }
}

void Pool::mend() {
  for (size_t n = 0; n < coordinators_.size(); ++n) {
    coordinators_[n].clients->set(TcpProxy::Mode::kForward);
    set_postgres(n, TcpProxy::Mode::kForward);
    for (const auto& tap : coordinators_[n].taps) tap->disarm();
    if (running(n)) signal(n, SIGCONT);
  }
  to_s3_->set(TcpProxy::Mode::kForward);
  if (options_.has_filter) PacketFilter::mend();
  s3_.set(SmallS3::Fault::kNone);
  if (std::exchange(standby_is_gone_, false)) {
    postgres_[1 - primary_]->follow(*postgres_[primary_]);
    for (const Coordinator& each : coordinators_) each.postgres[1 - primary_]->set_absent(false);
  }
  tend();
}

Pool::Builds Pool::builds() const {
  Builds counted;
  std::set<std::string> names;
  for (size_t n = 0; n < workers_.size(); ++n) {
    std::error_code none;
    for (const auto& file : std::filesystem::recursive_directory_iterator(
             options_.root / fmt::format("worker{}", n), none)) {
      if (file.path().extension() != ".object") continue;
      ++counted.builds;
      names.insert(file.path().filename());
    }
  }
  counted.candidates = std::ssize(names);
  return counted;
}

}  // namespace kiln::testing
