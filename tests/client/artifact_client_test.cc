// What an ArtifactClient believes: of coordinators that lie, are slow, or went away.
#include "client/artifact_client.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

using std::chrono::milliseconds;
constexpr milliseconds kPatient{60'000};

// A coordinator that answers every get with one value, signed by `key` as if it were of `signed_as`.
class OneValue {
 public:
  OneValue(SigningKey key, std::string value, std::string signed_as)
      : key_(std::move(key)), value_(std::move(value)), signed_as_(std::move(signed_as)) {}
  ~OneValue() {
    stopping_ = true;
    thread_.join();
  }
  std::string endpoint() const { return listener_->endpoint(); }

 private:
  void serve() {
    while (!stopping_) {
      const auto received = listener_->receive(20);
      if (!received) continue;
      if (std::holds_alternative<Hello>(received->message))
        listener_->send(received->peer,
                        Welcome{kProtocolVersion, "a liar", {}, "", key_.public_key(), 0});
      const auto* get = std::get_if<ArtifactGet>(&received->message);
      if (get == nullptr || value_.empty()) continue;
      ArtifactReply reply{get->request, value_};
      reply.signature = key_.sign(signed_artifact(get->kind, get->key, signed_as_)).bytes;
      listener_->send(received->peer, reply);
    }
  }

  const SigningKey key_;
  const std::string value_, signed_as_;
  std::atomic<bool> stopping_{false};
  const std::unique_ptr<Listener> listener_ = *Listener::bind("tcp://127.0.0.1:0");
  std::thread thread_{[this] { serve(); }};
};

Result<ArtifactClient::Found> get_from(const OneValue& coordinator, const std::string& signing_key,
                                       milliseconds timeout = kPatient) {
  auto client = *ArtifactClient::create({coordinator.endpoint(), {}, signing_key});
  return client->get("inductor.fx_graph", "k", {timeout});
}

TEST(ArtifactClient, GivesWhatTheTrustedKeySigned) {
  const SigningKey key = SigningKey::generate();
  const OneValue honest(key, "a pickle", "a pickle");
  for (const std::string& trusted : {std::string(), to_hex(key.public_key())}) {
    const auto found = get_from(honest, trusted);
    ASSERT_TRUE(found) << found.error().message;
    EXPECT_EQ(found->value, "a pickle");
  }
}

TEST(ArtifactClient, RefusesAValueThatWasChanged) {
  const OneValue changed(SigningKey::generate(), "a pickle", "another pickle");
  EXPECT_EQ(get_from(changed, "").error().code, Code::kCorruption);
}

TEST(ArtifactClient, RefusesWhatAnotherKeySigned) {
  const OneValue other(SigningKey::generate(), "a pickle", "a pickle");
  EXPECT_EQ(get_from(other, to_hex(SigningKey::generate().public_key())).error().code,
            Code::kPermissionDenied);
}

TEST(ArtifactClient, WaitsNoLongerThanItIsGiven) {
  const OneValue silent(SigningKey::generate(), "", "");
  // For longer where the connection took longer.
  Code code = Code::kUnavailable;
  for (milliseconds given(500); given < 2 * kPatient && code == Code::kUnavailable; given *= 4)
    code = get_from(silent, "", given).error().code;
  EXPECT_EQ(code, Code::kDeadlineExceeded);
  auto nobody = *ArtifactClient::create({"tcp://127.0.0.1:1"});
  EXPECT_EQ(nobody->get("inductor.gemm", "k", {milliseconds(50)}).error().code, Code::kUnavailable);
}

}  // namespace
}  // namespace kiln
