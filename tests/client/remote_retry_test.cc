// A coordinator played by hand that is overloaded, or was restarted while nobody asked: the client
// comes back when it was told to, and does not take the next life's refusal for an answer.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>
#include <vector>

#include "client/remote.h"
#include "tests/client/scripted_service.h"

namespace kiln {
namespace {

using Ms = std::chrono::milliseconds;

constexpr Ms kPatience{60'000};  // with what comes at once on a machine that does not stand still
const Error kNone{Code::kNotFound, "there is none", 0};

BlobReply blob_for(const BlobRequest& request) {
  BlobReply reply;
  reply.request = request.request;
  reply.chunks = {{request.digests.at(0), 0, 4, "blob"}};
  reply.last = true;
  return reply;
}

// Refuses the first `refusals` requests, then says that there is nothing, and serves blobs.
class OverloadedService {
 public:
  explicit OverloadedService(int refusals, int64_t retry_after_ms = 400)
      : refusals_(refusals), retry_after_ms_(retry_after_ms) {}
  const std::string& endpoint() const { return service_.endpoint(); }
  int asked() const { return asked_; }

 private:
  void answer(Listener& listener, const Received& received) {
    const Error busy{Code::kOverloaded, "busy", retry_after_ms_};
    if (const auto* request = std::get_if<CompileRequest>(&received.message)) {
      const bool refused = ++asked_ <= refusals_;
      listener.send(received.peer, testing::reply_to(*request, refused ? fail(busy) : fail(kNone)));
    }
    if (const auto* request = std::get_if<BlobRequest>(&received.message)) {
      if (++asked_ <= refusals_) {
        listener.send(received.peer, Refusal{busy});
        return;
      }
      listener.send(received.peer, blob_for(*request));
    }
  }
  const int refusals_;
  const int64_t retry_after_ms_;
  std::atomic<int> asked_{0};
  testing::ScriptedService service_{
      [this](Listener& listener, const Received& received) { answer(listener, received); }};
};

struct Waits {
  std::vector<Ms> taken;
  Remote::Patience patience() {
    return {[] { return uint64_t{7}; }, [this](Ms wait) { taken.push_back(wait); }};
  }
};

Error ask(Remote& remote, Ms deadline) {
  const auto word = remote.compile({}, {}, Remote::Clock::now() + deadline);
  if (!word) return word.error();
  return *word ? Error{} : word->error();
}

TEST(RemoteRetry, AsksAgainWhenItWasTold) {
  OverloadedService service(3);
  Waits waits;
  Remote remote(service.endpoint(), kPatience, waits.patience());
  EXPECT_EQ(ask(remote, Ms(3'600'000)).code, Code::kNotFound);
  EXPECT_EQ(service.asked(), 4);
  ASSERT_EQ(waits.taken.size(), 3u);
  for (const Ms wait : waits.taken) EXPECT_GE(wait, Ms(400));
}

TEST(RemoteRetry, GivesUpAtTheDeadlineWithWhatTheServiceSaid) {
  OverloadedService service(1'000, 30'000);
  Waits waits;
  Remote remote(service.endpoint(), kPatience, waits.patience());
  EXPECT_EQ(ask(remote, Ms(25'000)).code, Code::kOverloaded);
  EXPECT_TRUE(waits.taken.empty()) << "the deadline is before it may come back";
}

TEST(RemoteRetry, BlobsAreAskedForAgainWhenItWasTold) {
  OverloadedService service(3);
  Waits waits;
  Remote remote(service.endpoint(), kPatience, waits.patience());
  const auto blobs = remote.fetch({Digest::of("blob")}, Remote::Clock::now() + Ms(3'600'000));
  ASSERT_TRUE(blobs.has_value()) << blobs.error().message;
  EXPECT_EQ(*blobs, std::vector<std::string>{"blob"});
  ASSERT_EQ(waits.taken.size(), 3u);
  for (const Ms wait : waits.taken) EXPECT_GE(wait, Ms(400));
}

// The service is away for longer than a connection may take. The client waits, since compile() was answered.
TEST(RemoteRetry, BlobsWaitForAServiceThatHasJustNamedThem) {
  const std::string endpoint = free_endpoint();
  std::unique_ptr<testing::ScriptedService> service;
  std::thread start([&] {
    std::this_thread::sleep_for(Ms(400));
    service = std::make_unique<testing::ScriptedService>(
        [](Listener& listener, const Received& received) {
          if (const auto* request = std::get_if<BlobRequest>(&received.message))
            listener.send(received.peer, blob_for(*request));
        },
        endpoint);
  });
  Remote remote(endpoint, Ms(100));
  const auto blobs = remote.fetch({Digest::of("blob")}, Remote::Clock::now() + kPatience);
  start.join();
  ASSERT_TRUE(blobs.has_value()) << blobs.error().message;
  EXPECT_EQ(*blobs, std::vector<std::string>{"blob"});
}

// Missing blobs are lost, and are made again, or are there and cannot be read: then nobody waits for
// the coordinator, which answers.
TEST(RemoteRetry, WhatTheServiceCannotReadNowIsUnavailableForItsReason) {
  for (const std::string why : {"", "s3://binaries: nobody answers"}) {
    std::atomic<int> asked{0};
    const testing::ScriptedService service([&](Listener& listener, const Received& received) {
      const auto* request = std::get_if<BlobRequest>(&received.message);
      if (request == nullptr) return;
      ++asked;
      BlobReply reply{request->request, {}, request->digests};
      reply.why = why;
      listener.send(received.peer, reply);
    });
    Waits waits;
    Remote remote(service.endpoint(), kPatience, waits.patience());
    const auto blobs = remote.fetch({Digest::of("blob")}, Remote::Clock::now() + Ms(3'600'000));
    ASSERT_FALSE(blobs);
    EXPECT_EQ(blobs.error().code, why.empty() ? Code::kNotFound : Code::kUnavailable);
    EXPECT_NE(blobs.error().message.find(why), std::string::npos) << blobs.error().message;
    EXPECT_TRUE(waits.taken.empty()) << "it did not go away";
    EXPECT_EQ(asked, 1);
  }
}

// A coordinator that asks for the graph, and goes away once it has it; its next life answers.
class DyingService {
 public:
  DyingService(const std::string& endpoint, bool answers)
      : service_(
            [this, answers](Listener& listener, const Received& received) {
              const auto* request = std::get_if<CompileRequest>(&received.message);
              if (request == nullptr) return;
              if (request->graph_text.empty())
                listener.send(received.peer, NeedGraph{request->request});
              else if (answers)
                listener.send(received.peer, testing::reply_to(*request, fail(kNone)));
              else
                has_graph_ = true;
            },
            endpoint) {}
  const std::string& endpoint() const { return service_.endpoint(); }
  bool has_graph() const { return has_graph_; }

 private:
  std::atomic<bool> has_graph_{false};
  testing::ScriptedService service_;
};

std::string a_graph() {
  return "the graph";
}

TEST(RemoteRetry, ARestartWhileACallWaitsCostsItsPatience) {
  auto service = std::make_unique<DyingService>(free_endpoint(), false);
  const std::string endpoint = service->endpoint();
  std::thread restart([&] {
    while (!service->has_graph()) std::this_thread::sleep_for(Ms(5));
    service.reset();
    std::this_thread::sleep_for(Ms(300));
    service = std::make_unique<DyingService>(endpoint, true);
  });
  Remote remote(endpoint, kPatience);
  std::vector<std::string> said;
  Remote::Waiting waiting(Remote::Clock::now() + kPatience);
  waiting.on_message = [&](const std::string& message) { said.push_back(message); };
  const auto word = remote.compile({}, a_graph, waiting);
  restart.join();
  ASSERT_TRUE(word.has_value()) << word.error().message;
  EXPECT_EQ(word->error().message, "there is none") << "the next life's answer";
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("went away; waiting for its return"), std::string::npos) << said[0];
}

TEST(RemoteRetry, OneThatDoesNotComeBackIsNamed) {
  auto service = std::make_unique<DyingService>(free_endpoint(), false);
  const std::string endpoint = service->endpoint();
  std::thread end([&] {
    while (!service->has_graph()) std::this_thread::sleep_for(Ms(5));
    service.reset();
  });
  Remote remote(endpoint, kPatience);
  Remote::Waiting waiting(Remote::Clock::now() + kPatience);
  waiting.returns_until = Remote::Clock::now() + Ms(1'500);
  const auto word = remote.compile({}, a_graph, waiting);
  end.join();
  ASSERT_FALSE(word.has_value());
  EXPECT_EQ(word.error().code, Code::kUnavailable);
  EXPECT_EQ(word.error().message, endpoint + " did not come back");
}

// Answers those who said Hello to it, as a coordinator does.
std::unique_ptr<testing::ScriptedService> strict_service(const std::string& endpoint) {
  return std::make_unique<testing::ScriptedService>(
      [greeted = std::set<PeerId>()](Listener& listener, const Received& received) mutable {
        const auto* asked = std::get_if<StatsRequest>(&received.message);
        if (std::holds_alternative<Hello>(received.message))
          greeted.insert(received.peer);
        else if (!greeted.contains(received.peer))
          listener.send(received.peer, Refusal{{Code::kInvalidArgument, "say Hello first", 0}});
        else if (asked != nullptr)
          listener.send(received.peer, StatsReply{asked->request, {}});
      },
      endpoint);
}

TEST(RemoteRetry, ARestartWhileNobodyAskedIsNotNoticed) {
  auto service = strict_service(free_endpoint());
  const std::string endpoint = service->endpoint();
  Remote remote(endpoint, kPatience);
  for (int life = 0; life < 25; ++life) {
    const auto stats = remote.stats(Remote::Clock::now() + kPatience);
    ASSERT_TRUE(stats.has_value()) << "life " << life << ": " << stats.error().message;
    service.reset();
    service = strict_service(endpoint);
    // libzmq connects again within 20 to 40 ms: the next call comes before, during or after.
    std::this_thread::sleep_for(Ms(4 * life));
  }
}

// The connection ends before the answer, and without a word, when its key is revoked.
TEST(RemoteRetry, WhoseKeyIsRevokedWhileItWaitsHearsThat) {
  const TempDir dir = *TempDir::create("kiln-revoked-while-waiting");
  const Path folder = dir.path() / "keys";
  ClientKey key{"replica", Grant::kRead, make_key_pair(), ensure_server_keys(folder)->public_key,
                ""};
  ASSERT_TRUE(authorize(folder, {key.grant, key.name, key.pair.public_key}).has_value());
  ASSERT_TRUE(write_client_key(dir.path() / "replica.key", key).has_value());
  const testing::ScriptedService service(
      [&](Listener& listener, const Received& received) {
        if (!std::holds_alternative<StatsRequest>(received.message)) return;
        EXPECT_TRUE(revoke(folder, key.name).has_value());
        EXPECT_TRUE(listener.refresh_keys().has_value());
      },
      free_endpoint(), *Keyring::open(folder));
  Remote remote(service.endpoint(), kPatience);
  remote.use_key(dir.path() / "replica.key");
  const auto stats = remote.stats(Remote::Clock::now() + kPatience);
  ASSERT_FALSE(stats.has_value());
  EXPECT_EQ(stats.error().code, Code::kPermissionDenied) << stats.error().message;
  EXPECT_NE(stats.error().message.find("revoked"), std::string::npos) << stats.error().message;
}

}  // namespace
}  // namespace kiln
