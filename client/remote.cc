#include "client/remote.h"

#include <algorithm>
#include <optional>
#include <random>
#include <thread>
#include <unordered_set>

#include "client/backoff.h"
#include "client/client.h"
#include "schema/blob_assembly.h"

namespace kiln {
namespace {

constexpr std::chrono::seconds kBreakerOpen{5};
constexpr size_t kMaxIdleConnections = 8;
constexpr std::chrono::milliseconds kOneHandshake{500};
constexpr std::chrono::seconds kWorkersReturn{10};           // after their coordinator
constexpr std::chrono::milliseconds kLinksPatience{10'000};  // before the service is asked

int remaining_ms(Remote::Clock::time_point deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Remote::Clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

// The next message that answers `request`; a Refusal is the error it carries.
template <class Reply>
bool answers(const Message& message, uint64_t request) {
  const auto* reply = std::get_if<Reply>(&message);
  return reply != nullptr && reply->request == request;
}

Status send(Connection& connection, const Message& message, Remote::Clock::time_point deadline) {
  Status sent =
      connection.send(message, std::min(remaining_ms(deadline), Connection::kSendTimeoutMs));
  if (!sent && sent.error().code == Code::kUnavailable && remaining_ms(deadline) == 0)
    sent.error().code = Code::kDeadlineExceeded;
  return sent;
}

// `why`: what the coordinator says of it; empty where it is lost.
Error missing(const Digest& blob, const std::string& coordinator, const std::string& why) {
  if (why.empty())
    return {Code::kNotFound, "the coordinator no longer has blob " + blob.short_hex(), 0};
  return {Code::kUnavailable, coordinator + " cannot read the program's binaries: " + why, 0};
}

using IsCancelled = std::function<bool()>;

Result<Message> receive(Connection& connection, Remote::Clock::time_point deadline,
                        const IsCancelled& is_cancelled = {}) {
  constexpr int kPollMs = static_cast<int>(CompileOptions::kCancelPoll.count());
  for (;;) {
    const int left_ms = remaining_ms(deadline);
    auto message = connection.receive(is_cancelled ? std::min(left_ms, kPollMs) : left_ms);
    if (is_cancelled && is_cancelled())
      return fail(Code::kDeadlineExceeded, "the call was cancelled");
    if (!message && message.error().code == Code::kDeadlineExceeded && left_ms > kPollMs &&
        is_cancelled)
      continue;
    if (!message) return message;
    if (auto* refusal = std::get_if<Refusal>(&*message)) return fail(refusal->error);
    return message;
  }
}

}  // namespace

Remote::Patience Remote::real_patience() {
  return {[] { return uint64_t{std::random_device()()}; },
          [](std::chrono::milliseconds wait) { std::this_thread::sleep_for(wait); }};
}

Remote::Remote(std::string endpoint, std::chrono::milliseconds connect_timeout, Patience patience)
    : endpoint_(std::move(endpoint)),
      connect_timeout_(connect_timeout),
      patience_(std::move(patience)) {
  const auto several = parse_endpoints(endpoint_);
  are_several_ = several && several->size() > 1;
  // A fleet's look-ups go to all of them.
  if (are_several_) answered_ = (*several)[patience_.jitter_seed() % several->size()];
}

bool Remote::breaker_open() const {
  std::lock_guard lock(mu_);
  return Clock::now() < closed_until_;
}

bool Remote::ever_reached() const {
  std::lock_guard lock(mu_);
  return reached_;
}

uint64_t Remote::next_request() {
  std::lock_guard lock(mu_);
  return ++last_request_;
}

void Remote::trip() {
  std::lock_guard lock(mu_);
  idle_.clear();
  closed_until_ = Clock::now() + kBreakerOpen;
}

Result<std::unique_ptr<Connection>> Remote::acquire(bool& kept_one, Asked asked) {
  {
    std::lock_guard lock(mu_);
    if (Clock::now() < closed_until_)
      return fail(Code::kUnavailable,
                  "the coordinator at " + endpoint_ + " did not answer a moment ago");
    const auto kept = std::find_if(idle_.rbegin(), idle_.rend(), [&](const auto& connection) {
      return asked == Asked::kLeader ? !connection->welcome().follower
                                     : !are_several_ || connection->endpoint() == answered_;
    });
    kept_one = kept_one && kept != idle_.rend();
    if (kept_one) {
      auto connection = std::move(*kept);
      idle_.erase(std::next(kept).base());
      return connection;
    }
  }
  return connect(connect_timeout_, asked);
}

Result<std::unique_ptr<Connection>> Remote::connect(std::chrono::milliseconds timeout,
                                                    Asked asked) {
  ConnectOptions options;
  options.follower_will_do = asked == Asked::kAnyone;
  if (!key_file_.empty()) {
    TRY(options.key, read_client_key(key_file_));
  }
  {
    const std::lock_guard lock(mu_);
    options.first = asked == Asked::kAnyone ? answered_ : leader_;
  }
  auto connection =
      Connection::open(endpoint_, Role::kClient, static_cast<int>(timeout.count()), options);
  if (connection) {
    std::lock_guard lock(mu_);
    reached_ = true;
    (asked == Asked::kAnyone ? answered_ : leader_) = (*connection)->endpoint();
  }
  return connection;
}

void Remote::release(std::unique_ptr<Connection> connection) {
  std::lock_guard lock(mu_);
  if (idle_.size() < kMaxIdleConnections) idle_.push_back(std::move(connection));
}

// A coordinator that takes a key no longer ends its connections without a word: only the next
// handshake says so.
Error Remote::why_it_ended(Error end, Asked asked) {
  if (key_file_.empty()) return end;
  auto next = connect(std::min(connect_timeout_, kOneHandshake), asked);
  if (!next && next.error().code == Code::kPermissionDenied) return std::move(next).error();
  if (next) release(*std::move(next));
  return end;
}

template <class T>
Result<T> Remote::with_connection(const std::function<Result<T>(Connection&)>& call, bool* reached,
                                  Asked asked) {
  for (bool kept_one = true;;) {
    auto connection = acquire(kept_one, asked);
    if (!connection) {
      // Where followers go on answering, one call that finds no leader says nothing of others.
      const bool is_away = connection.error().code == Code::kUnavailable &&
                           (!are_several_ || asked == Asked::kAnyone);
      if (is_away && !breaker_open()) trip();
      return fail(std::move(connection).error());
    }
    if (reached != nullptr && !kept_one) *reached = true;
    const Status heard = hear_revocations(**connection, (*connection)->welcome().revocations,
                                          Clock::now() + connect_timeout_);
    Result<T> result = heard ? call(**connection) : Result<T>(fail(heard.error()));
    // After a deadline, late replies may still come: such a connection is not used again.
    const bool reusable = result || (heard && result.error().code != Code::kDeadlineExceeded &&
                                     result.error().code != Code::kUnavailable);
    if (reusable) release(*std::move(connection));
    if (result || result.error().code != Code::kUnavailable) return result;
    // A kept connection may be to a coordinator that was restarted since: once more on a fresh one.
    if (!std::exchange(kept_one, false))
      return fail(why_it_ended(std::move(result).error(), asked));
  }
}

template <class T>
Result<T> Remote::with_anyone(const std::function<Result<T>(Connection&)>& call,
                              const std::function<bool(const Result<T>&)>& passes_on,
                              bool& reached) {
  if (!are_several_) return with_connection<T>(call, &reached);
  bool follows = false;
  const auto noting = [&](Connection& connection) -> Result<T> {
    follows = connection.welcome().follower;
    return call(connection);
  };
  Result<T> answer = with_connection<T>(noting, &reached, Asked::kAnyone);
  if (!follows || !passes_on(answer)) return answer;
  return with_connection<T>(call, &reached);
}

template <class T>
Result<T> Remote::with_patience(const std::function<Result<T>()>& ask,
                                const std::function<const Error*(const Result<T>&)>& refusal,
                                Clock::time_point deadline) const {
  Backoff backoff(patience_.jitter_seed());
  for (;;) {
    Result<T> answer = ask();
    const Error* refused = refusal(answer);
    if (refused == nullptr || refused->code != Code::kOverloaded) return answer;
    const auto wait = backoff.next(std::chrono::milliseconds(refused->retry_after_ms),
                                   std::chrono::milliseconds(remaining_ms(deadline)));
    if (!wait) return answer;
    patience_.sleep(*wait);
  }
}

Status Remote::await_return(const Waiting& waiting, std::chrono::milliseconds& pause) {
  using std::chrono::milliseconds;
  constexpr milliseconds kLongestPause{1'000};
  for (;;) {
    // Clients that were lost together do not come back together.
    const auto jitter =
        static_cast<int64_t>(patience_.jitter_seed() % static_cast<uint64_t>(pause.count()));
    patience_.sleep(pause / 2 + milliseconds(jitter / 2));
    pause = std::min(2 * pause, kLongestPause);
    if (waiting.is_cancelled && waiting.is_cancelled())
      return fail(Code::kDeadlineExceeded, "the call was cancelled");
    const milliseconds left{remaining_ms(waiting.returns_until)};
    if (left.count() == 0) return fail(Code::kUnavailable, endpoint_ + " did not come back");
    auto connection = connect(std::min(left, connect_timeout_), Asked::kLeader);
    if (!connection && connection.error().code == Code::kUnavailable) continue;
    if (!connection) return fail(std::move(connection).error());
    release(*std::move(connection));
    const std::lock_guard lock(mu_);
    closed_until_ = {};
    return {};
  }
}

template <class T>
Result<T> Remote::until_it_stays(const std::function<Result<T>(bool& reached)>& ask,
                                 const Waiting& waiting, bool has_answered) {
  std::chrono::milliseconds pause{50};
  for (bool said = false;;) {
    bool reached = said || has_answered;
    Result<T> answer = ask(reached);
    if (answer || answer.error().code != Code::kUnavailable || !reached) return answer;
    if (!std::exchange(said, true) && waiting.on_message)
      waiting.on_message(answer.error().message + "; waiting for its return");
    TRY_STATUS(await_return(waiting, pause));
  }
}

Result<Remote::Word> Remote::compile(const CompileRequest& request,
                                     const std::function<std::string()>& graph_text,
                                     const Waiting& waiting) {
  std::optional<Clock::time_point> complete_at;
  const auto ask = [&](bool& reached) -> Result<Word> {
    const bool is_back = reached;
    if (is_back && !complete_at) complete_at = Clock::now() + kWorkersReturn;
    Result<Word> word = with_patience<Word>(
        [&] { return compile_once(request, graph_text, waiting, reached); },
        [](const Result<Word>& answer) {
          return !answer ? &answer.error() : !*answer ? &answer->error() : nullptr;
        },
        waiting.deadline);
    const bool lacks_workers = word && !*word && word->error().code == Code::kUnavailable;
    if (is_back && lacks_workers && Clock::now() < *complete_at) return fail(word->error());
    return word;
  };
  return until_it_stays<Word>(ask, waiting, false);
}

Result<Remote::Word> Remote::compile_once(const CompileRequest& original,
                                          const std::function<std::string()>& graph_text,
                                          const Waiting& waiting, bool& reached) {
  const Clock::time_point deadline = waiting.deadline;
  CompileRequest request = original;
  request.request = next_request();
  const auto converse = [&](Connection& connection) -> Result<Word> {
    TRY_STATUS(send(connection, request, deadline));
    for (;;) {
      auto message = receive(connection, deadline, waiting.is_cancelled);
      if (!message) {
        if (message.error().code == Code::kDeadlineExceeded)
          (void)connection.send(Cancel{request.request}, 0);
        return fail(std::move(message).error());
      }
      reached = true;
      if (answers<NeedGraph>(*message, request.request)) {
        CompileRequest full = request;
        full.graph_text = graph_text();
        TRY_STATUS(send(connection, full, deadline));
      } else if (answers<Progress>(*message, request.request)) {
        if (waiting.on_progress) waiting.on_progress(std::get<Progress>(*message));
      } else if (answers<CompileReply>(*message, request.request)) {
        auto& reply = std::get<CompileReply>(*message);
        TRY_STATUS(hear_revocations(connection, reply.revocations, deadline));
        if (!reply.outcome) return Word(fail(reply.outcome.error()));
        if (*reply.outcome == CacheOutcome::kQueued) return Word(Answer{*reply.outcome, {}});
        Signature signature = connection.welcome().signed_with(std::move(reply.signature));
        CompileRequest answered = request;
        if (reply.tier0 && request.now) answered.mode = Mode::kDefault;
        auto program =
            checked_program(answered, reply.program_json, signature, trusted_or(signature.signer));
        if (!program) return fail(std::move(program).error());  // no word of the service
        return Word(Answer{*reply.outcome, *std::move(program), std::move(reply.program_json),
                           std::move(signature), reply.memory_only, reply.stale, reply.tier0});
      }
    }
  };
  const auto passes_on = [](const Result<Word>& word) { return !word || !*word; };
  return with_anyone<Word>(converse, passes_on, reached);
}

// A list that its signer did not sign is no word of the coordinator's.
Status Remote::hear_revocations(Connection& connection, uint64_t serial,
                                Clock::time_point deadline) {
  if (!hearer_.hear || serial <= hearer_.known()) return {};
  const RevocationsRequest request{next_request()};
  TRY_STATUS(send(connection, request, deadline));
  for (;;) {
    TRY(Message message, receive(connection, deadline));
    if (!answers<RevocationsReply>(message, request.request)) continue;
    auto& reply = std::get<RevocationsReply>(message);
    const Signature signature = connection.welcome().signed_with(std::move(reply.signature));
    TRY_STATUS(verify_signature(signed_revocations(reply.list), signature,
                                trusted_or(signature.signer), "the list of what was taken back"));
    hearer_.hear(reply.list, signature);
    return {};
  }
}

Result<Remote::Blobs> Remote::fetch(const std::vector<Digest>& digests, const Waiting& waiting) {
  using Given = Result<Blobs>;
  const auto ask = [&](bool& reached) {
    return with_patience<Given>(
        [&] { return fetch_once(digests, waiting.returns_until, reached); },
        [](const Result<Given>& blobs) { return !blobs ? &blobs.error() : nullptr; },
        waiting.returns_until);
  };
  auto blobs = until_it_stays<Given>(ask, waiting, true);
  if (blobs) return *std::move(blobs);
  if (blobs.error().code == Code::kDeadlineExceeded)
    return fail(remaining_ms(waiting.deadline) > 0 ? Code::kUnavailable : Code::kDeadlineExceeded,
                endpoint_ + " did not send the program's binaries in time");
  return fail(std::move(blobs).error());
}

Result<Result<Remote::Blobs>> Remote::fetch_once(const std::vector<Digest>& digests,
                                                 Clock::time_point deadline, bool& reached) {
  TRY(Sent sent, ask_for_blobs(digests, read_links_ && !links_fail_, deadline, reached));
  if (const auto left = follow_links(sent, deadline); !left.empty()) {
    TRY(Sent rest, ask_for_blobs(left, false, deadline, reached));
    sent.blobs.merge(rest.blobs);
    if (!sent.missing) sent.missing = std::move(rest.missing);
  }
  if (sent.missing) return Result<Blobs>(fail(*std::move(sent.missing)));
  Blobs blobs;
  for (const Digest& digest : digests) blobs.push_back(sent.blobs.at(digest));
  return blobs;
}

Result<Remote::Sent> Remote::ask_for_blobs(const std::vector<Digest>& digests, bool links_ok,
                                           Clock::time_point deadline, bool& reached) {
  BlobRequest request{next_request(), digests};
  request.links_ok = links_ok;
  const auto converse = [&](Connection& connection) -> Result<Sent> {
    TRY_STATUS(send(connection, request, deadline));
    BlobAssembly received(digests);
    Sent sent;
    std::unordered_set<Digest> linked;
    std::string why;
    while (!received.done()) {
      TRY(Message message, receive(connection, deadline));
      reached = true;
      if (!answers<BlobReply>(message, request.request)) continue;
      auto& reply = std::get<BlobReply>(message);
      for (BlobLink& link : reply.links)
        if (links_ok && linked.insert(link.digest).second) sent.links.push_back(std::move(link));
      if (!reply.why.empty()) why = std::move(reply.why);
      TRY(const int64_t credit, received.add(std::move(reply)));
      if (credit > 0) TRY_STATUS(send(connection, BlobCredit{request.request, credit}, deadline));
    }
    for (const Digest& digest : digests) {
      if (const std::string* blob = received.find(digest))
        sent.blobs[digest] = *blob;
      else if (!linked.contains(digest) && !sent.missing)
        sent.missing = missing(digest, connection.endpoint(), why);
    }
    std::erase_if(sent.links, [&](const BlobLink& link) {
      return sent.blobs.contains(link.digest) ||
             std::ranges::find(digests, link.digest) == digests.end();
    });
    return sent;
  };
  const auto passes_on = [](const Result<Sent>& sent) { return !sent || sent->missing; };
  return with_anyone<Sent>(converse, passes_on, reached);
}

std::vector<Digest> Remote::follow_links(Sent& sent, Clock::time_point deadline) {
  std::vector<Digest> left;
  if (sent.links.empty()) return left;
  std::vector<std::string> urls;
  for (const BlobLink& link : sent.links) urls.push_back(link.url);
  const auto time = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now());
  const auto bodies =
      read_links_(urls, std::clamp(time / 2, std::chrono::milliseconds(1), kLinksPatience));
  for (size_t i = 0; i < urls.size(); ++i) {
    const Digest& digest = sent.links[i].digest;
    if (i < bodies.size() && bodies[i] && Digest::of(*bodies[i]) == digest)
      sent.blobs[digest] = *bodies[i];
    else
      left.push_back(digest);
  }
  if (left.size() == urls.size()) links_fail_ = true;
  return left;
}

Result<Stats> Remote::stats(Clock::time_point deadline) {
  const StatsRequest request{next_request()};
  return with_connection<Stats>([&](Connection& connection) -> Result<Stats> {
    TRY_STATUS(send(connection, request, deadline));
    for (;;) {
      TRY(Message message, receive(connection, deadline));
      if (answers<StatsReply>(message, request.request)) return std::get<StatsReply>(message).stats;
    }
  });
}

Result<std::string> Remote::admin(AdminRequest request, Clock::time_point deadline) {
  request.request = next_request();
  // Two results: the outer one is the connection's, the inner one the coordinator's answer.
  using Said = Result<std::string>;
  TRY(Said said, with_connection<Said>([&](Connection& connection) -> Result<Said> {
        TRY_STATUS(send(connection, request, deadline));
        for (;;) {
          TRY(Message message, receive(connection, deadline));
          if (answers<AdminReply>(message, request.request))
            return std::get<AdminReply>(message).outcome;
        }
      }));
  return said;
}

}  // namespace kiln
