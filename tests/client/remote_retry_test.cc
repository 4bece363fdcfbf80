// An overloaded coordinator, played by hand: the client comes back when it was told to.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "client/remote.h"

namespace kiln {
namespace {

using Ms = std::chrono::milliseconds;

class OverloadedService {
 public:
  // Refuses the first `refusals` requests, then says that there is nothing.
  explicit OverloadedService(int refusals) : refusals_(refusals) {
    listener_ = Listener::bind("tcp://127.0.0.1:0").value();
    thread_ = std::thread([this] { serve(); });
  }
  ~OverloadedService() {
    stopping_ = true;
    listener_->wake();
    thread_.join();
  }
  const std::string& endpoint() const { return listener_->endpoint(); }
  int asked() const { return asked_; }

 private:
  void serve() {
    while (!stopping_) {
      auto received = listener_->receive(50);
      if (!received) continue;
      if (std::holds_alternative<Hello>(received->message))
        listener_->send(received->peer, Welcome{kProtocolVersion, "test", {}});
      if (const auto* request = std::get_if<CompileRequest>(&received->message)) {
        CompileReply reply;
        reply.request = request->request;
        reply.outcome = ++asked_ <= refusals_ ? fail(Error{Code::kOverloaded, "busy", 400})
                                              : fail(Code::kNotFound, "there is none");
        listener_->send(received->peer, reply);
      }
    }
  }
  const int refusals_;
  std::unique_ptr<Listener> listener_;
  std::atomic<bool> stopping_{false};
  std::atomic<int> asked_{0};
  std::thread thread_;
};

struct Waits {
  std::vector<Ms> taken;
  Remote::Patience patience() {
    return {[] { return uint64_t{7}; }, [this](Ms wait) { taken.push_back(wait); }};
  }
};

Error ask(Remote& remote, Ms deadline) {
  const auto word = remote.compile({}, {}, {}, Remote::Clock::now() + deadline);
  if (!word) return word.error();
  return *word ? Error{} : word->error();
}

TEST(RemoteRetry, AsksAgainWhenItWasTold) {
  OverloadedService service(3);
  Waits waits;
  Remote remote(service.endpoint(), Ms(5'000), waits.patience());
  EXPECT_EQ(ask(remote, Ms(3'600'000)).code, Code::kNotFound);
  EXPECT_EQ(service.asked(), 4);
  ASSERT_EQ(waits.taken.size(), 3u);
  for (const Ms wait : waits.taken) EXPECT_GE(wait, Ms(400));
}

TEST(RemoteRetry, GivesUpAtTheDeadlineWithWhatTheServiceSaid) {
  OverloadedService service(1'000);
  Waits waits;
  Remote remote(service.endpoint(), Ms(5'000), waits.patience());
  EXPECT_EQ(ask(remote, Ms(350)).code, Code::kOverloaded);
  EXPECT_TRUE(waits.taken.empty()) << "the deadline is before it may come back";
}

}  // namespace
}  // namespace kiln
