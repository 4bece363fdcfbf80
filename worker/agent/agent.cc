#include "worker/agent/agent.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <random>

#include "compiler_core/base/clock.h"
#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int64_t kFirstPauseMs = 50, kLongestPauseMs = 2000;
constexpr auto kSameWordsAfter = std::chrono::minutes(1);
constexpr size_t kMaxWaitingBytes = 512;

// Trying again would not help.
bool is_hopeless(const Error& error) {
  return error.code == Code::kInvalidArgument || error.code == Code::kPermissionDenied;
}

CandidateResult refusal(const Job& job, const CandidateJob& candidate, const Error& why) {
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = candidate.index;
  result.verdict = Verdict::kDeviceLost;
  result.log = why.message;
  return result;
}

}  // namespace

std::vector<CandidateResult> take_out_unsigned(Job& job, const Signature& signer,
                                               std::string_view trusted) {
  std::vector<CandidateResult> refused;
  std::erase_if(job.candidates, [&](const CandidateJob& candidate) {
    if (candidate.binary.empty()) return false;
    const Digest message = signed_candidate(job.kernel_key, candidate.schedule.to_string(),
                                            candidate.recipe_json, candidate.binary);
    const Status good = verify_signature(
        message, {signer.signer, candidate.signature, signer.endorsement}, trusted,
        "candidate " + candidate.schedule.to_string() + " of kernel " + job.kernel_key.short_hex());
    if (!good) refused.push_back(refusal(job, candidate, good.error()));
    return !good.has_value();
  });
  return refused;
}

Status Agent::run(const Work& work) {
  std::mt19937_64 random(options_.jitter_seed);
  int64_t pause_ms = kFirstPauseMs;
  std::string said;  // last, in the log
  Clock::time_point said_again;
  while (!stopping() && !finished()) {
    auto connected = connect();
    if (!connected && is_hopeless(connected.error())) {
      work.stop();
      return fail(connected.error());
    }
    Status ended = connected ? converse(**connected, work) : Status(fail(connected.error()));
    if (ended) return {};
    if (connected && ended.error().code == Code::kPermissionDenied) {
      work.stop();
      return ended;
    }
    if (connected) pause_ms = kFirstPauseMs;
    if (const auto now = Clock::now(); ended.error().message != said || now >= said_again) {
      spdlog::warn("{}; trying again", ended.error().message);
      said = ended.error().message;
      said_again = now + kSameWordsAfter;
    }
    lost(ended.error().message);
    const int64_t jitter_ms = static_cast<int64_t>(random() % static_cast<uint64_t>(pause_ms));
    if (!pause(pause_ms / 2 + jitter_ms)) break;
    pause_ms = std::min(2 * pause_ms, kLongestPauseMs);
  }
  drain(nullptr, work);
  return {};
}

Result<std::unique_ptr<Connection>> Agent::connect() {
  ConnectOptions how;
  how.token = token_;
  how.first = led_;
  how.templates = options_.templates;
  if (!options_.key_file.empty()) {
    TRY(how.key, read_client_key(options_.key_file));
  }
  TRY(auto connection,
      Connection::open(options_.coordinator, Role::kWorker, options_.connect_timeout_ms, how));
  const Welcome& welcome = connection->welcome();
  token_ = welcome.session;
  led_ = connection->endpoint();
  signed_by_ = welcome.signed_with({});
  trusted_signer_ = welcome.signing_key;
  if (how.key && !how.key->signing_key.empty()) {
    TRY(trusted_signer_, parse_public_key(how.key->signing_key));
  }
  if (welcome.template_stamp != template_stamp(options_.templates))
    spdlog::info("the coordinator has other kernel templates: it leases what this worker can make");
  spdlog::info("connected to {}", led_);
  return connection;
}

// Reports and takes orders until stop() (ok) or the connection ends (its error).
Status Agent::converse(Connection& connection, const Work& work) {
  attach(&connection);
  unanswered_ = 0;
  Status status;
  while (status && !stopping() && !finished())
    status = exchange(connection, work, options_.report_period_ms);
  if (status) drain(&connection, work);
  attach(nullptr);
  return status;
}

// One report, then orders until `timeout_ms` have passed or there is something new to report.
Status Agent::exchange(Connection& connection, const Work& work, int timeout_ms) {
  const auto until = Clock::now() + milliseconds(timeout_ms);
  WorkerReport report;
  {
    const std::lock_guard lock(mu_);
    report = leases_.report();
    news_ = false;
    turned_ = Clock::now();
  }
  if (work.compiled) report.compiled = work.compiled();  // after, so those of its results are in it
  TRY_STATUS(connection.send(std::move(report)));
  ++unanswered_;
  for (;;) {
    {
      const std::lock_guard lock(mu_);
      if (news_) return {};
    }
    auto message = connection.receive(ms_until(until));
    if (!message && message.error().code != Code::kDeadlineExceeded) return fail(message.error());
    if (!message) {
      if (ms_until(until) == 0 || stopping()) return {};
      continue;
    }
    if (auto* refusal = std::get_if<Refusal>(&*message)) {
      const Error& why = refusal->error;
      return fail(is_hopeless(why) ? why.code : Code::kUnavailable, "refused: " + why.message);
    }
    auto* orders = std::get_if<WorkerOrders>(&*message);
    if (orders == nullptr)
      return fail(Code::kUnavailable, "the coordinator answers as to a client");
    unanswered_ = std::max(0, unanswered_ - 1);
    HeldLeases::Changes changes;
    {
      const std::lock_guard lock(mu_);
      const bool drain = orders->drain;
      changes = leases_.apply(std::move(*orders));
      if (drain) begin_to_finish();
      // A connection that ends takes along what the coordinator has not read: the last report is
      // answered first.
      const bool is_over =
          (finish_until_ && leases_.is_idle()) || (stopping_ && !leases_.has_results());
      if (is_over && unanswered_ == 0) return {};
    }
    for (const uint64_t lease : changes.drop) work.drop(lease);
    if (!changes.start.empty()) start(std::move(changes.start), work);
  }
}

// The job without candidates whose binary came from another worker and is not signed.
void Agent::start(std::vector<Job> jobs, const Work& work) {
  for (Job& job : jobs) {
    for (CandidateResult& refused : take_out_unsigned(job, signed_by_, trusted_signer_)) {
      spdlog::warn("refused: {}", refused.log);
      finished(std::move(refused));
    }
  }
  std::erase_if(jobs, [](const Job& job) { return job.candidates.empty(); });
  if (!jobs.empty()) work.start(std::move(jobs));
}

// Stops the work, gives the leases back and waits, a little, for the results to be stored and the last
// report to be answered.
void Agent::drain(Connection* connection, const Work& work) {
  work.stop();
  {
    const std::lock_guard lock(mu_);
    leases_.drain();
    if (connection == nullptr) return;
  }
  const auto until = Clock::now() + milliseconds(options_.drain_timeout_ms);
  for (;;) {
    constexpr int kTryAgainMs = 100;
    if (!exchange(*connection, work, std::min(kTryAgainMs, ms_until(until)))) return;
    const std::lock_guard lock(mu_);
    if ((!leases_.has_results() && unanswered_ == 0) || ms_until(until) == 0) return;
  }
}

void Agent::attach(Connection* connection) {
  const std::lock_guard lock(mu_);
  connection_ = connection;
  if (connection != nullptr) ++connections_;
}

void Agent::lost(const std::string& trouble) {
  const std::lock_guard lock(mu_);
  trouble_ = trouble;
  turned_ = Clock::now();
}

WorkerStatus Agent::status() const {
  const std::lock_guard lock(mu_);
  WorkerStatus status;
  status.self = leases_.self();
  status.coordinator = options_.coordinator;
  status.connected = connection_ != nullptr;
  status.trouble = trouble_;
  status.connections = connections_;
  status.turned = turned_;
  status.leases = leases_.leases();
  status.held = leases_.held();
  status.draining = stopping_ || finish_until_.has_value();
  status.candidates = tally_;
  return status;
}

bool Agent::pause(int64_t ms) {
  std::unique_lock lock(mu_);
  return !stopped_.wait_for(lock, milliseconds(ms), [this] { return stopping_; });
}

bool Agent::stopping() const {
  const std::lock_guard lock(mu_);
  return stopping_;
}

bool Agent::finished() const {
  const std::lock_guard lock(mu_);
  return finish_until_ && (leases_.is_idle() || Clock::now() >= *finish_until_);
}

void Agent::begin_to_finish() {
  leases_.wind_down();
  if (finish_until_) return;
  spdlog::info("draining: no new leases; what is here is finished first");
  finish_until_ = Clock::now() + milliseconds(options_.finish_timeout_ms);
}

void Agent::finish() {
  const std::lock_guard lock(mu_);
  begin_to_finish();
  news_ = true;
  if (connection_ != nullptr) connection_->wake();
}

void Agent::health(double calibration_us, int device_errors) {
  const std::lock_guard lock(mu_);
  leases_.set_health(calibration_us, device_errors);
}

void Agent::waits(std::string what) {
  const std::lock_guard lock(mu_);
  what.resize(std::min(what.size(), kMaxWaitingBytes));
  leases_.set_waiting(std::move(what));
}

void Agent::stop() {
  const std::lock_guard lock(mu_);
  stopping_ = true;
  stopped_.notify_all();
  if (connection_ != nullptr) connection_->wake();
}

void Agent::stepped(uint64_t lease) {
  const std::lock_guard lock(mu_);
  leases_.step(lease);
}

void Agent::finished(CandidateResult result) {
  const std::lock_guard lock(mu_);
  tally_.count(result);
  if (!leases_.finish(std::move(result))) return;
  news_ = true;
  if (connection_ != nullptr) connection_->wake();
}

}  // namespace kiln
