#include "coordinator/service/session_table.h"

#include <fmt/format.h>
#include <sys/random.h>

#include <algorithm>

#include "compiler_core/base/check.h"
#include "coordinator/service/access.h"

namespace kiln {
namespace {

constexpr size_t kTokenBytes = 16;
constexpr int64_t kNameKeptMs = 3'600'000;
constexpr size_t kMaxOwners = 20'000;

std::string make_token() {
  std::string token(kTokenBytes, '\0');
  CHECK(getrandom(token.data(), token.size(), 0) == static_cast<ssize_t>(token.size()),
        "the kernel has randomness");
  return token;
}

}  // namespace

Viewer viewer_of(const User& user) {
  return {user.name, user.team, covers(user.grant, Grant::kAdmin)};
}

Audience audience_of(const User& user) {
  if (user.share == Share::kPrivate) return Audience::of_user(user.name);
  return user.share == Share::kTeam ? Audience::of_team(user.team) : Audience();
}

void Session::look_only(CompileRequest& request) {
  if (request.check_only || covers(user.grant, Grant::kSubmit)) return;
  request.check_only = true;
  request.detach = false;
  looking.insert(request.request);
}

void Session::judge(CompileReply& reply) {
  if (looking.erase(reply.request) == 0 || reply.outcome) return;
  std::string& message = reply.outcome.error().message;
  message.resize(std::min(message.find('\n'), message.size()));
  if (reply.outcome.error().code == Code::kNotFound)
    reply.outcome =
        fail(not_granted(user, Grant::kSubmit).within("it is not in the cache, and to tune it"));
}

void Session::judge(Stats& stats) const {
  if (!covers(user.grant, Grant::kSubmit)) stats.detached.clear();
}

Standing standing_of(const User& user) {
  return {user.trust != Trust::kScreens, user.trust == Trust::kAlone};
}

const Session* SessionTable::open(const PeerId& peer, Session session) {
  if (sessions_.size() >= max_sessions_ && !sessions_.contains(peer)) return nullptr;
  session.token = make_token();
  order_.insert(peer);
  return &(sessions_[peer] = std::move(session));
}

Session* SessionTable::find(const PeerId& peer) {
  const auto found = sessions_.find(peer);
  return found == sessions_.end() ? nullptr : &found->second;
}

Session SessionTable::close(const PeerId& peer) {
  const auto found = sessions_.find(peer);
  if (found == sessions_.end()) return {};
  Session session = std::move(found->second);
  sessions_.erase(found);
  order_.erase(peer);
  const auto speaker = workers_.find(session.worker);
  if (speaker == workers_.end() || speaker->second != peer) {
    session.worker.clear();
  } else {
    owners_[session.worker].seen_ms = session.heard_ms;
    workers_.erase(speaker);
  }
  return session;
}

Result<PeerId> SessionTable::claim_worker(const PeerId& peer, const WorkerId& worker,
                                          const std::function<bool(const PeerId&)>& connected,
                                          int64_t now_ms) {
  Session* session = find(peer);
  if (session == nullptr || (!session->worker.empty() && session->worker != worker))
    return fail(Code::kInvalidArgument, "a connection speaks for one worker");
  const auto speaker = workers_.find(worker);
  if (speaker != workers_.end() && speaker->second == peer) return PeerId();
  const Owner& owner = owners_[worker];
  const bool alive = speaker != workers_.end() && connected(speaker->second);
  if (owner.user != session->user.name && (alive || now_ms - owner.seen_ms < kNameKeptMs) &&
      owner.seen_ms != 0) {
    return fail(
        Code::kPermissionDenied,
        fmt::format("the worker '{}' is of the key '{}', not of '{}'; give this one another "
                    "--name",
                    worker, owner.user, session->user.name));
  }
  if (alive && session->resumes != find(speaker->second)->token) {
    return fail(
        Code::kUnavailable,
        fmt::format("a worker called '{}' is connected already: two need two names (--name); "
                    "if it was cut off, its place is free within seconds",
                    worker));
  }
  if (owners_.size() > kMaxOwners)
    std::erase_if(owners_, [&](const auto& entry) { return !workers_.contains(entry.first); });
  owners_[worker] = {session->user.name, now_ms};
  session->worker = worker;
  return alive ? std::exchange(workers_[worker], peer) : (workers_[worker] = peer, PeerId());
}

const PeerId* SessionTable::peer_of(const WorkerId& worker) const {
  const auto found = workers_.find(worker);
  return found == workers_.end() ? nullptr : &found->second;
}

std::vector<PeerId> SessionTable::workers() const {
  std::vector<PeerId> peers;
  for (const auto& [worker, peer] : workers_) peers.push_back(peer);
  return peers;
}

std::vector<PeerId> SessionTable::quiet(int64_t before_ms, size_t limit) {
  std::vector<PeerId> peers;
  auto at = order_.upper_bound(cursor_);
  for (size_t seen = 0; seen < order_.size() && peers.size() < limit; ++seen) {
    if (at == order_.end()) at = order_.begin();
    if (sessions_.at(*at).heard_ms < before_ms) peers.push_back(*at);
    cursor_ = *at;
    ++at;
  }
  return peers;
}

}  // namespace kiln
