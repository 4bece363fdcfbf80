#include "coordinator/service/artifact_handler.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "compiler_core/base/clock.h"
#include "coordinator/service/access.h"

namespace kiln {
namespace {

constexpr int64_t kMostWaitMs = 600'000, kMostLeaseMs = 600'000;

std::string flight_of(const ArtifactId& id, const Audience& audience) {
  return id.kind + '\n' + audience.to_text() + '\n' + id.key;
}

}  // namespace

void ArtifactHandler::get(const PeerId& peer, const Session& session, const ArtifactGet& request) {
  const ArtifactKind* kind = find_artifact_kind(request.kind);
  if (kind == nullptr) return refuse(peer, request.request, unknown_artifact_kind(request.kind));
  const bool may_put = covers(session.user.grant, kind->grant_to_put());
  ArtifactId id{request.kind, request.key};
  std::string flight = flight_of(id, session.audience());
  look_up({{peer, request.request, session.user.name},
           std::move(id),
           session.viewer(),
           std::move(flight),
           std::min(request.wait_ms, kMostWaitMs),
           may_put ? std::min(request.lease_ms, kMostLeaseMs) : 0},
          false);
}

void ArtifactHandler::look_up(Open open, bool again) {
  const ArtifactId id = open.id;
  const Viewer viewer = open.viewer;
  fetch(id, viewer, [this, open = std::move(open), again](Result<KeptArtifact> found) {
    loop_.post([this, open, again, found = std::move(found)]() mutable {
      looked_up(std::move(open), again, std::move(found));
    });
  });
}

// Everybody may have an offer.
void ArtifactHandler::fetch(const ArtifactId& id, const Viewer& viewer, ArtifactStore::Got got) {
  if (id.kind != kOfferedKind) return store_.get(id, viewer, std::move(got));
  offers_.get(id.key, [this, id, got = std::move(got)](Result<std::string> text) {
    if (!text) return got(fail(std::move(text).error()));
    std::string signature = store_.signature_of(id, *text);
    got(KeptArtifact{*std::move(text), std::move(signature)});
  });
}

// `again`: after it was stored. Where it is not there even so, nobody waits once more.
void ArtifactHandler::looked_up(Open open, bool again, Result<KeptArtifact> found) {
  const PeerId& peer = open.asker.connection;
  ArtifactStats& counts = counts_[open.id.kind];
  if (found) {
    ++counts.hits;
    ArtifactReply reply{open.asker.request, std::move(found->value), std::move(found->signature)};
    return reply_(peer, reply);
  }
  if (found.error().code != Code::kNotFound || again || !is_here_(peer)) {
    ++counts.misses;
    return refuse(peer, open.asker.request, std::move(found).error());
  }
  SingleFlight::Verdicts verdicts =
      flights_.missed(loop_.now_ms(), open.flight, open.asker, open.wait_ms, open.lease_ms);
  ++(verdicts.empty() ? counts.joined : counts.misses);
  if (verdicts.empty())
    waiting_.insert_or_assign({peer, open.asker.request}, std::move(open));
  else
    answer(verdicts);
}

void ArtifactHandler::answer(const SingleFlight::Verdicts& verdicts) {
  using Kind = SingleFlight::Verdict::Kind;
  for (const SingleFlight::Verdict& verdict : verdicts) {
    auto waited = waiting_.extract({verdict.asker.connection, verdict.asker.request});
    if (verdict.kind == Kind::kLookAgain) {
      if (!waited.empty()) look_up(std::move(waited.mapped()), true);
      continue;
    }
    ArtifactReply reply;
    reply.request = verdict.asker.request;
    reply.outcome = fail(Code::kNotFound, "no artifact has this key");
    reply.lease = verdict.lease;
    reply.leased = verdict.kind == Kind::kHeld;
    reply_(verdict.asker.connection, reply);
  }
}

void ArtifactHandler::put(const PeerId& peer, const Session& session, ArtifactPut request) {
  store(session.user, {std::move(request.kind), std::move(request.key)}, std::move(request.value),
        [this, peer, number = request.request](const Status& status) {
          ArtifactReply reply;
          reply.request = number;
          if (!status) reply.outcome = fail(status.error());
          reply_(peer, reply);
        });
}

void ArtifactHandler::store(const User& user, ArtifactId id, std::string value,
                            std::function<void(const Status&)> stored) {
  const ArtifactKind* kind = find_artifact_kind(id.kind);
  if (kind == nullptr) return stored(fail(unknown_artifact_kind(id.kind)));
  if (value.size() > kind->most_bytes)
    return stored(
        fail(Code::kInvalidArgument, fmt::format("an artifact of the kind {} has at most {} bytes",
                                                 kind->name, kind->most_bytes)));
  if (!kind->is_code)
    if (const Status sound = check_artifact_data(value); !sound) return stored(sound);
  const Audience audience = audience_of(user);
  const bool is_offer = kind->name == kOfferedKind;
  if (is_offer)
    if (const Status sound = Offers::check(id.key, value, audience); !sound) return stored(sound);
  std::string flight = flight_of(id, audience);
  const auto done = [this, kind, flight = std::move(flight), is_offer,
                     stored = std::move(stored)](const Status& status) {
    loop_.post([this, kind, flight, is_offer, stored, status] {
      if (status) ++counts_[std::string(kind->name)].stored;
      if (status && is_offer) offered_();
      stored(status);
      if (status) answer(flights_.stored(flight));
    });
  };
  if (is_offer) return offers_.put({id.key, user.name, unix_ms()}, std::move(value), done);
  store_.put(std::move(id), std::move(value), audience, user.name, done);
}

void ArtifactHandler::write(const User& user, ArtifactId id, std::string value,
                            std::function<void(const Status&)> stored) {
  const ArtifactKind* kind = find_artifact_kind(id.kind);
  if (kind != nullptr && !covers(user.grant, kind->grant_to_put()))
    return stored(fail(not_granted(user, kind->grant_to_put())));
  store(user, std::move(id), std::move(value), std::move(stored));
}

void ArtifactHandler::read(const User& user, const ArtifactId& id,
                           std::function<void(Result<KeptArtifact>)> got) {
  if (!covers(user.grant, Grant::kRead)) return got(fail(not_granted(user, Grant::kRead)));
  fetch(id, viewer_of(user),
        [this, kind = id.kind, got = std::move(got)](Result<KeptArtifact> found) {
          loop_.post([this, kind, got, found = std::move(found)]() mutable {
            ++(found ? counts_[kind].hits : counts_[kind].misses);
            got(std::move(found));
          });
        });
}

void ArtifactHandler::release(const Session& session, const ArtifactRelease& request) {
  answer(flights_.release(loop_.now_ms(), request.lease, session.user.name));
}

void ArtifactHandler::gone(const PeerId& peer) {
  waiting_.erase(waiting_.lower_bound({peer, 0}), waiting_.upper_bound({peer, UINT64_MAX}));
  answer(flights_.gone(loop_.now_ms(), peer));
}

void ArtifactHandler::tick() {
  answer(flights_.expire(loop_.now_ms()));
}

void ArtifactHandler::take_back(const std::string& owner, int64_t until_ms) {
  store_.take_back(owner, until_ms, [this, owner](Result<int64_t> removed) {
    loop_.post([this, owner, removed = std::move(removed)] {
      LogLine line("artifacts", removed ? LogLine::Level::kInfo : LogLine::Level::kWarning);
      line.add("state", removed ? "taken_back" : "not_taken_back").add("key", owner);
      if (removed)
        line.add("entries", *removed);
      else
        line.add("why", removed.error().message);
      loop_.log(line);
    });
  });
}

void ArtifactHandler::refuse(const PeerId& peer, uint64_t request, Error error) {
  ArtifactReply reply;
  reply.request = request;
  reply.outcome = fail(std::move(error));
  reply_(peer, reply);
}

std::vector<ArtifactStats> ArtifactHandler::stats() const {
  std::map<std::string, ArtifactStats> by_kind = counts_;
  for (const auto& [kind, totals] : store_.totals()) {
    ArtifactStats& stats = by_kind[kind];
    stats.entries = totals.entries;
    stats.bytes = totals.bytes;
    stats.evicted = totals.evicted;
    stats.damaged = totals.damaged;
  }
  if (const Offers::Shared shared = offers_.shared(); shared.entries > 0) {
    ArtifactStats& stats = by_kind[kOfferedKind];
    stats.entries = shared.entries;
    stats.bytes = shared.bytes;
  }
  std::vector<ArtifactStats> all;
  for (auto& [kind, stats] : by_kind) {
    stats.kind = kind;
    all.push_back(std::move(stats));
  }
  return all;
}

}  // namespace kiln
