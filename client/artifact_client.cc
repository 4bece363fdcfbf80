#include "client/artifact_client.h"

#include <algorithm>

namespace kiln {
namespace {

constexpr size_t kMaxIdle = 16;

int left_ms(std::chrono::steady_clock::time_point deadline) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
      deadline - std::chrono::steady_clock::now());
  return static_cast<int>(std::clamp<int64_t>(left.count(), 0, 1 << 30));
}

}  // namespace

Result<std::unique_ptr<ArtifactClient>> ArtifactClient::create(Options options) {
  std::string signing_key = options.signing_key, trusted;
  if (!options.key_file.empty()) {
    TRY(const ClientKey key, read_client_key(options.key_file));
    if (signing_key.empty()) signing_key = key.signing_key;
  }
  if (!signing_key.empty()) {
    TRY(trusted, parse_public_key(signing_key));
  }
  return std::unique_ptr<ArtifactClient>(
      new ArtifactClient(std::move(options), std::move(trusted)));
}

uint64_t ArtifactClient::next_request() {
  const std::lock_guard lock(mu_);
  return ++last_request_;
}

Result<std::unique_ptr<Connection>> ArtifactClient::connection(Clock::time_point deadline) {
  {
    const std::lock_guard lock(mu_);
    if (!idle_.empty()) {
      auto kept = std::move(idle_.back());
      idle_.pop_back();
      return kept;
    }
  }
  ConnectOptions how;
  if (!options_.key_file.empty()) {
    TRY(how.key, read_client_key(options_.key_file));
  }
  return Connection::open(options_.coordinator, Role::kClient, std::max(1, left_ms(deadline)), how);
}

// Connections beyond the bound end, and so do the leases taken on them: another process makes the value then.
void ArtifactClient::keep(std::unique_ptr<Connection> connection) {
  const std::lock_guard lock(mu_);
  if (idle_.size() < kMaxIdle) idle_.push_back(std::move(connection));
}

Result<ArtifactReply> ArtifactClient::converse(Connection& connection, const Message& message,
                                               uint64_t request, Clock::time_point deadline) {
  TRY_STATUS(connection.send(message, left_ms(deadline)));
  for (;;) {
    TRY(Message received, connection.receive(left_ms(deadline)));
    if (const auto* refusal = std::get_if<Refusal>(&received)) return fail(refusal->error);
    auto* reply = std::get_if<ArtifactReply>(&received);
    if (reply != nullptr && reply->request == request) return std::move(*reply);
  }
}

Result<ArtifactClient::Found> ArtifactClient::get(const std::string& kind, const std::string& key,
                                                  const Wanted& wanted) {
  ArtifactGet request{0, kind, key, 0, wanted.lease.count()};
  TRY(Found found, ask(request, Clock::now() + wanted.timeout));
  if (!found.leased || wanted.wait.count() <= 0) return found;
  request.wait_ms = wanted.wait.count();
  return ask(std::move(request), Clock::now() + wanted.timeout + wanted.wait);
}

// The others are to the same coordinator, which is gone, and the leases with it.
void ArtifactClient::forget_idle() {
  const std::lock_guard lock(mu_);
  idle_.clear();
}

// A kept connection may be to a coordinator that was restarted since: then once more on a fresh one.
bool ArtifactClient::ask_again(const Error& error, bool again, Clock::time_point deadline) {
  if (error.code != Code::kUnavailable) return false;
  forget_idle();
  return !again && left_ms(deadline) > 0;
}

Result<ArtifactClient::Found> ArtifactClient::ask(ArtifactGet request, Clock::time_point deadline) {
  for (bool again = false;; again = true) {
    request.request = next_request();
    TRY(auto open, connection(deadline));
    auto reply = converse(*open, request, request.request, deadline);
    if (!reply && ask_again(reply.error(), again, deadline)) continue;
    // After a deadline a late reply may still come: such a connection is not used again.
    if (!reply) return fail(std::move(reply).error());
    Signature signature = open->welcome().signed_with(std::move(reply->signature));
    keep(std::move(open));
    if (!reply->outcome && reply->outcome.error().code == Code::kNotFound)
      return Found{std::nullopt, reply->lease, reply->leased};
    if (!reply->outcome) return fail(std::move(reply->outcome).error());
    TRY_STATUS(verify_signature(signed_artifact(request.kind, request.key, *reply->outcome),
                                signature, trusted_.empty() ? signature.signer : trusted_,
                                "the artifact"));
    return Found{*std::move(reply->outcome), 0, false, std::move(signature)};
  }
}

Status ArtifactClient::put(const std::string& kind, const std::string& key, std::string value,
                           std::chrono::milliseconds timeout) {
  if (value.size() > kMaxArtifactBytes || key.size() > kMaxArtifactKeyBytes)
    return fail(Code::kInvalidArgument, "an artifact has at most 16 MiB, and its key 1024 bytes");
  const auto deadline = Clock::now() + timeout;
  ArtifactPut request{0, kind, key, std::move(value)};
  for (bool again = false;; again = true) {
    request.request = next_request();
    TRY(auto open, connection(deadline));
    const auto reply = converse(*open, request, request.request, deadline);
    if (!reply && ask_again(reply.error(), again, deadline)) continue;
    if (reply || reply.error().code == Code::kPermissionDenied) keep(std::move(open));
    if (!reply) return fail(reply.error());
    return reply->outcome.map([](const auto&) {});
  }
}

Status ArtifactClient::release(uint64_t lease, std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  TRY(auto open, connection(deadline));
  TRY_STATUS(open->send(ArtifactRelease{lease}, left_ms(deadline)));
  keep(std::move(open));
  return {};
}

}  // namespace kiln
