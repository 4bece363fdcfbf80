// The messages of ServiceLoop: the grant that each needs, and the event it becomes.
#include <fmt/format.h>

#include "coordinator/service/service_loop.h"

namespace kiln {
namespace {

constexpr char kSoftware[] = "kiln 0.1.0";
constexpr int kMaxHellos = 16;  // on one connection: each forgets a session and makes another

using Clock = std::chrono::steady_clock;

template <class T>
constexpr bool kFromClient =
    std::is_same_v<T, RevocationsRequest> || std::is_same_v<T, CompileRequest> ||
    std::is_same_v<T, BlobRequest> || std::is_same_v<T, BlobCredit> || std::is_same_v<T, Cancel> ||
    std::is_same_v<T, ArtifactGet> || std::is_same_v<T, ArtifactPut> ||
    std::is_same_v<T, ArtifactRelease>;

}  // namespace

void ServiceLoop::handle(const Arrival& arrival) {
  message_start = arrival.at;
  if (answer_known(arrival)) return;
  if (auto received = listener->read(arrival)) handle(*std::move(received));
}

// False if the peer may not ask, or the program is no longer in memory: the full path answers then.
bool ServiceLoop::answer_known(const Arrival& arrival) {
  if (arrival.several) return false;
  const auto found = known.find(arrival.frame);
  if (!found) return false;
  Session* session = sessions.find(arrival.peer);
  if (session == nullptr || session->role != Role::kClient ||
      session->user.name != arrival.user.name || !covers(arrival.user.grant, Grant::kRead)) {
    return false;
  }
  HitReply* hit = manifests.find(found->program);
  if (hit == nullptr || !session->may_have(hit->audience())) return false;
  session->heard_ms = ms_at(arrival.at);
  answer(arrival.peer, found->request, *hit);
  return true;
}

void ServiceLoop::answer(const PeerId& peer, uint64_t request, HitReply& hit) {
  ++hits;
  if (!listener->send_encoded(peer, hit.frame(request))) unsent(peer);
  times.from_memory.observe(std::chrono::duration<double>(Clock::now() - message_start).count());
}

void ServiceLoop::handle(Received received) {
  const PeerId& peer = received.peer;
  Session* session = sessions.find(peer);
  if (session != nullptr && session->user.name != received.user.name) session = nullptr;
  if (session != nullptr) session->heard_ms = now_ms();
  if (const Grant needed = grant_needed(received.message); !covers(received.user.grant, needed)) {
    return refuse(peer, not_granted(received.user, needed));
  }
  std::visit(
      [&](auto&& message) {
        using T = std::decay_t<decltype(message)>;
        if constexpr (std::is_same_v<T, Hello>) {
          on(peer, message, received.user);
        } else if constexpr (kFromClient<T> || std::is_same_v<T, StatsRequest> ||
                             std::is_same_v<T, WorkerReport> || std::is_same_v<T, AdminRequest>) {
          const Role role = std::is_same_v<T, WorkerReport> ? Role::kWorker : Role::kClient;
          if (session == nullptr) {
            refuse(peer, Code::kInvalidArgument, "say Hello first");
          } else if (session->role != role && !std::is_same_v<T, StatsRequest>) {
            refuse(peer, Code::kInvalidArgument, "not a message of the role you said you have");
          } else {
            on(peer, std::forward<decltype(message)>(message));
          }
        } else {
          refuse(peer, Code::kInvalidArgument, "only a coordinator sends such a message");
        }
      },
      std::move(received.message));
}

void ServiceLoop::on(const PeerId& peer, const Hello& hello, const User& user) {
  if (hello.protocol != kProtocolVersion) {
    return refuse(peer, Code::kInvalidArgument,
                  fmt::format("this coordinator ({}) speaks protocol {}, you ({}) speak {}",
                              kSoftware, kProtocolVersion, hello.software, hello.protocol));
  }
  const Session* before = sessions.find(peer);
  const int hellos = before == nullptr ? 1 : before->hellos + 1;
  close(peer);  // Hello again starts over
  if (hellos > kMaxHellos) return listener->drop(peer);
  Session opened{hello.role, now_ms(), user, hello.token, {}, {}, hellos, {}, {}};
  if (hello.role == Role::kWorker)
    opened.templates = std::make_shared<const TemplateVersions>(hello.templates);
  const Session* session = sessions.open(peer, std::move(opened));
  if (session == nullptr) return refuse(peer, Code::kOverloaded, "too many connections");
  send(peer,
       Welcome{kProtocolVersion, kSoftware, template_stamp(options.core.templates), session->token,
               signer.public_key(), storage.revoked().serial(), signer.endorsement()});
}

void ServiceLoop::on(const PeerId& peer, CompileRequest request) {
  Session& session = *sessions.find(peer);
  // The meaning of such a target changes with the workers, so its frames are never remembered.
  const bool always_means_the_same = !names_no_device(request.target);
  request.target = core.resolve(request.target);
  const Digest key = program_key(request.graph, request.target, request.mode);
  // A waiting request keeps the key that its target resolved to at first.
  HitReply* hit = core.is_open(peer, request.request) ? nullptr : manifests.find(key);
  if (hit != nullptr && session.may_have(hit->audience())) {
    if (always_means_the_same) known.remember(request, key);
    answer(peer, request.request, *hit);
    return tasks.traces().hit(request, trace_clock_ns(message_start));
  }
  if (graphs_crowded(session.user.name, request.graph_text.size()))
    return overloaded(peer, request.request);
  session.look_only(request);
  const Audience audience = session.audience();
  asking = session.user.name;
  tasks.asked(now_ms(), task_key(key, audience), key, peer, session.user.name, request);
  step(RequestReceived{peer, std::move(request), session.user.name, key, audience,
                       session.viewer()});
  asking.clear();
}

// All graphs together have a bound, and a user has no more of it than is left for the others.
bool ServiceLoop::graphs_crowded(const std::string& user, size_t bytes) const {
  if (bytes == 0) return false;
  const auto theirs = planning_of_user.find(user);
  const size_t held = user.empty() || theirs == planning_of_user.end() ? 0 : theirs->second + bytes;
  return planning_bytes + bytes + held > options.graph_bytes;
}

// The core may know the request already, and wait for its graph.
void ServiceLoop::overloaded(const PeerId& peer, uint64_t request) {
  ++overloads;
  tasks.cancelled(now_ms(), peer, request);
  step(RequestCancelled{peer, request});
  CompileReply reply;
  reply.request = request;
  reply.outcome = fail(
      Error{Code::kOverloaded, "too many graphs wait to be planned", options.core.retry_after_ms});
  count_refusal(peer, reply.outcome.error());
  send(peer, reply);
}

void ServiceLoop::on(const PeerId& peer, BlobRequest request) {
  const uint64_t number = request.request;
  if (!blobs.add(peer, sessions.find(peer)->user.name, std::move(request), now_ms())) {
    refuse(peer, Code::kOverloaded, fmt::format("request {}: too many at once", number));
  }
}

void ServiceLoop::on(const PeerId& peer, const Cancel& cancel) {
  sessions.find(peer)->looking.erase(cancel.request);
  tasks.cancelled(now_ms(), peer, cancel.request);
  step(RequestCancelled{peer, cancel.request});
}

void ServiceLoop::on(const PeerId& peer, const StatsRequest& request) {
  const Session& session = *sessions.find(peer);
  Stats now = stats(session.viewer());
  session.judge(now);
  send(peer, StatsReply{request.request, std::move(now)});
}

void ServiceLoop::on(const PeerId& peer, WorkerReport report) {
  if (report.worker.empty()) return refuse(peer, Code::kInvalidArgument, "a worker has a name");
  if (sessions.peer_of(report.worker) == nullptr) {
    LogLine line("worker");
    line.add("name", report.worker)
        .add("state", "here")
        .add("target", report.target.to_string())
        .add("toolkit", report.toolkit)
        .add("slots", report.slots);
    const TemplateVersions& theirs = *sessions.find(peer)->templates;
    if (theirs != options.core.templates)
      line.add("templates", changes(theirs, options.core.templates));
    log(line);
  }
  const auto connected = [this](const PeerId& other) { return listener->alive(other); };
  const auto claimed = sessions.claim_worker(peer, report.worker, connected, now_ms());
  if (!claimed) return refuse(peer, claimed.error());
  if (!claimed->empty()) listener->drop(*claimed);
  WorkerId worker = report.worker;
  const Session& session = *sessions.find(peer);
  step(ReportReceived{std::move(worker), std::move(report), session.templates, session.user.name,
                      standing_of(session.user)});
}

void ServiceLoop::on(const PeerId& peer, const RevocationsRequest& request) {
  send(peer,
       RevocationsReply{request.request, storage.revoked().text(), storage.revoked().signature()});
}

void ServiceLoop::refuse(const PeerId& peer, Code code, std::string message) {
  const int64_t retry_after_ms = code == Code::kOverloaded ? options.core.retry_after_ms : 0;
  refuse(peer, Error{code, std::move(message), retry_after_ms});
}

void ServiceLoop::refuse(const PeerId& peer, Error error) {
  count_refusal(peer, error);
  listener->send(peer, Refusal{std::move(error)});
}

void ServiceLoop::count_refusal(const PeerId& peer, const Error& error) {
  const Session* session = sessions.find(peer);
  if (session != nullptr) refusals.count(session->user.name, error.code);
}

bool ServiceLoop::send(const PeerId& peer, const Message& message) {
  if (listener->send(peer, message)) return true;
  unsent(peer);
  return false;
}

// Not from inside the loop over the core's actions: the end of a peer is an event of its own.
void ServiceLoop::unsent(const PeerId& peer) {
  inbox.post([this, peer] { probe(peer); });
}

}  // namespace kiln
