// The Redis port over a socket, with a service of a few lines behind it.
#include "coordinator/redis/redis_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <list>
#include <map>
#include <memory>

#include "coordinator/service/redis_front.h"

namespace kiln {
namespace {

// A connection that says what it is told and hears so many bytes, or less where the port ends it.
class Client {
 public:
  explicit Client(const std::string& endpoint) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(std::stoi(endpoint.substr(endpoint.rfind(':') + 1))));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd_, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  }
  ~Client() { close(fd_); }
  std::string ask(const std::string& said, size_t bytes) const {
    EXPECT_EQ(send(fd_, said.data(), said.size(), MSG_NOSIGNAL), static_cast<ssize_t>(said.size()));
    return hear(bytes);
  }
  // As much of it as the port takes.
  void say(const std::string& said) const {
    size_t sent = 0;
    for (ssize_t n = 1; n > 0 && sent<said.size(); sent += n> 0 ? static_cast<size_t>(n) : 0)
      n = send(fd_, said.data() + sent, said.size() - sent, MSG_NOSIGNAL);
  }
  bool is_ended() const {  // within a minute, however much there is to hear before the end
    pollfd polled{fd_, 0, 0};
    return poll(&polled, 1, 60'000) == 1;
  }
  std::string hear(size_t bytes) const {
    std::string heard(bytes, '\0');
    size_t got = 0;
    for (ssize_t n = 1; n > 0 && got<bytes; got += n> 0 ? static_cast<size_t>(n) : 0)
      n = recv(fd_, heard.data() + got, bytes - got, 0);
    heard.resize(got);
    return heard;
  }

 private:
  const int fd_;
};

class RedisPortTest : public ::testing::Test {
 protected:
  void open(bool with_password, RedisLimits limits = {}) {
    RedisService service;
    if (with_password)
      service.sign_in = [this](std::string_view password) -> Result<User> {
        if (password == "other") return User{"bob", Grant::kSubmit};
        if (password != "secret" || has_ended_)
          return fail(Code::kPermissionDenied, "no such token");
        return User{"ann", Grant::kSubmit};
      };
    service.get = [this](const User&, const std::string& key, const RedisService::Got& done) {
      ++gets_;
      const auto found = values_.find(key);
      done(found == values_.end() ? std::nullopt : std::optional(found->second));
    };
    service.set = [this](const User&, const std::string& key, std::string value,
                         const RedisService::Done& done) {
      values_[key] = std::move(value);
      done();
    };
    auto opened = RedisPort::open("127.0.0.1:0", std::move(service), limits);
    ASSERT_TRUE(opened) << opened.error().message;
    port_ = *std::move(opened);
  }

  std::map<std::string, std::string> values_;  // the port's thread's
  std::atomic<int> gets_ = 0;
  std::atomic<bool> has_ended_ = false;  // the password
  std::unique_ptr<RedisPort> port_;
};

constexpr char kGet[] = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
constexpr char kPing[] = "*1\r\n$4\r\nPING\r\n", kPong[] = "+PONG\r\n";
constexpr char kSecret[] = "*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n";

std::string setting(size_t bytes) {
  return "*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$" + std::to_string(bytes) + "\r\n";
}

TEST_F(RedisPortTest, SetsAndGetsAlsoWhenRequestsComeTogether) {
  open(false);
  const Client client(port_->endpoint());
  EXPECT_EQ(client.ask(kGet, 5), "$-1\r\n");
  EXPECT_EQ(client.ask("*3\r\n$3\r\nset\r\n$1\r\nk\r\n$5\r\nva\r\nu\r\n" + std::string(kGet), 16),
            "+OK\r\n$5\r\nva\r\nu\r\n");
  EXPECT_EQ(client.ask("*4\r\n$6\r\nCLIENT\r\n$7\r\nSETINFO\r\n$1\r\na\r\n$1\r\nb\r\n", 4), "-ERR");
}

TEST_F(RedisPortTest, SpeaksBothVersions) {
  open(false);
  const Client client(port_->endpoint());
  EXPECT_EQ(client.ask("*2\r\n$5\r\nHELLO\r\n$1\r\n4\r\n", 8), "-NOPROTO");
  const Client newer(port_->endpoint());
  EXPECT_TRUE(newer.ask("*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n", 88).starts_with("%4\r\n"));
  EXPECT_EQ(newer.ask(kGet, 3), "_\r\n");
}

TEST_F(RedisPortTest, AnswersNobodyWithoutThePassword) {
  open(true);
  const Client client(port_->endpoint());
  const std::string refusal = "-NOAUTH Authentication required.\r\n";
  EXPECT_EQ(client.ask(kGet, refusal.size()), refusal);
  EXPECT_EQ(client.ask("*1\r\n$4\r\nPING\r\n", refusal.size()), refusal);
}

TEST_F(RedisPortTest, TakesThePasswordByAuthAndByHello) {
  open(true);
  const Client client(port_->endpoint());
  EXPECT_EQ(client.ask("*2\r\n$4\r\nAUTH\r\n$5\r\nwrong\r\n", 10), "-WRONGPASS");
  const Client other(port_->endpoint());
  EXPECT_EQ(other.ask("*2\r\n$4\r\nAUTH\r\n$6\r\nsecret\r\n", 5), "+OK\r\n");
  EXPECT_EQ(other.ask(kGet, 5), "$-1\r\n");
  const Client third(port_->endpoint());
  EXPECT_TRUE(
      third
          .ask("*5\r\n$5\r\nHELLO\r\n$1\r\n3\r\n$4\r\nAUTH\r\n$7\r\ndefault\r\n$6\r\nsecret\r\n", 4)
          .starts_with("%4\r\n"));
}

TEST_F(RedisPortTest, EndsAConnectionThatSaysWhatIsNoRequest) {
  open(true);
  const Client client(port_->endpoint());
  const std::string heard = client.ask("*1\r\n$5000\r\n", 1000);  // to the end
  EXPECT_TRUE(heard.starts_with("-ERR Protocol error")) << heard;
}

// Whoever asks and does not listen has one answer made, and not one for each request.
TEST_F(RedisPortTest, RequestsWaitUntilTheAnswersBeforeThemAreTaken) {
  constexpr size_t kBytes = 16 << 20, kAsked = 4;  // more than sockets hold
  values_["k"] = std::string(kBytes, 'v');
  open(false);
  const Client deaf(port_->endpoint()), other(port_->endpoint());
  std::string asked;
  for (size_t i = 0; i < kAsked; ++i) asked += kGet;
  deaf.say(asked);
  for (int i = 0; i < 200; ++i) ASSERT_EQ(other.ask(kPing, 7), kPong);  // each a turn of the port
  EXPECT_LE(gets_, 2);
  const size_t whole = kBytes + std::string("$16777216\r\n\r\n").size();
  EXPECT_EQ(deaf.hear(kAsked * whole).size(), kAsked * whole) << "and all come in the end";
  EXPECT_EQ(gets_, static_cast<int>(kAsked));
}

TEST_F(RedisPortTest, LargeRequestsThatAreNotWholeAreBoundedTogether) {
  constexpr size_t kBytes = 1 << 20;
  open(false, {.held_bytes = 4 * kBytes});
  std::list<Client> slow;
  for (int i = 0; i < 8; ++i) {
    slow.emplace_back(port_->endpoint()).say(setting(kBytes) + std::string(kBytes - 100, 'v'));
    const Client other(port_->endpoint());
    ASSERT_EQ(other.ask(kPing, 7), kPong);
  }
  EXPECT_EQ(slow.front().hear(1), "") << "the one that got nowhere for the longest was ended";
  EXPECT_EQ(slow.back().ask(std::string(100, 'v') + "\r\n", 5), "+OK\r\n");
}

TEST_F(RedisPortTest, ARequestThatDoesNotComeIsEnded) {
  open(false, {.request_ms = 50});
  const Client idle(port_->endpoint()), slow(port_->endpoint());
  EXPECT_EQ(slow.ask("*2\r\n$3\r\nGE", 1), "");
  EXPECT_EQ(idle.ask(kPing, 7), kPong) << "who has not begun one stays";
}

TEST_F(RedisPortTest, AnAnswerThatIsNotTakenIsEnded) {
  values_["k"] = std::string(16 << 20, 'v');
  open(false, {.request_ms = 50});
  const Client deaf(port_->endpoint()), other(port_->endpoint());
  deaf.say(kGet);
  while (gets_ == 0) ASSERT_EQ(other.ask(kPing, 7), kPong);
  deaf.say(kPing);  // which nobody reads: so the end is told at once, and not behind the answer
  EXPECT_TRUE(deaf.is_ended());
}

TEST_F(RedisPortTest, WhoIsNotSignedInMakesRoomForWhoIs) {
  open(true, {.connections = 4});
  const Client signed_in(port_->endpoint());
  ASSERT_EQ(signed_in.ask(kSecret, 5), "+OK\r\n");
  std::list<Client> strangers;
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(strangers.emplace_back(port_->endpoint()).ask(kPing, 7), "-NOAUTH");
  EXPECT_EQ(signed_in.ask(kPing, 7), kPong);
}

TEST_F(RedisPortTest, OneUsersConnectionsTakeNoPlaceOfAnothers) {
  open(true, {.connections = 4});
  const Client ann(port_->endpoint());
  ASSERT_EQ(ann.ask(kSecret, 5), "+OK\r\n");
  std::list<Client> bobs;
  for (int i = 0; i < 12; ++i)
    EXPECT_EQ(bobs.emplace_back(port_->endpoint()).ask("*2\r\n$4\r\nAUTH\r\n$5\r\nother\r\n", 5),
              "+OK\r\n");
  EXPECT_EQ(ann.ask(kPing, 7), kPong);
  EXPECT_EQ(bobs.front().hear(1), "");
}

TEST_F(RedisPortTest, APasswordThatHasEndedIsNoneForConnectionsThatAreThere) {
  open(true);
  const Client client(port_->endpoint());
  ASSERT_EQ(client.ask(std::string(kSecret) + kGet, 10), "+OK\r\n$-1\r\n");
  has_ended_ = true;
  const std::string heard = client.ask(kGet, 1000);  // to the end
  EXPECT_TRUE(heard.starts_with("-NOAUTH")) << heard;
  EXPECT_EQ(gets_, 1);
}

TEST(RedisPortAddress, BeyondThisMachineItTakesPasswords) {
  EXPECT_EQ(RedisPort::open("0.0.0.0:0", {}).error().code, Code::kInvalidArgument);
  for (const char* bad : {"", "6379", "127.0.0.1:x", "127.0.0.1:70000", "host:1", "[::1:1"})
    EXPECT_EQ(RedisPort::open(bad, {}).error().code, Code::kInvalidArgument) << bad;
}

TEST(RedisFront, KeysOfInductorNameKinds) {
  EXPECT_EQ(artifact_kind_of_redis_key("pt2:fx-graph-v1::fabc:c1"), "inductor.fx_graph");
  EXPECT_EQ(artifact_kind_of_redis_key("pt2:autograd-experimental::aabc:c1"),
            "inductor.aot_autograd");
  EXPECT_EQ(artifact_kind_of_redis_key("pt2:" + std::string(64, 'a') + "::k:c1"),
            "inductor.autotune");
  for (const std::string& other :
       {std::string("pt2:"), std::string("pt2:fx-graph-v1"), std::string("fx-graph-v1::f"),
        std::string("pt2:pgo::x"), std::string("pt2:fx-graph-v1::\x1b[2J"),
        std::string("pt2:fx-graph-v1::a\nb"), std::string("pt2:fx-graph-v1::\xff"),
        "pt2:fx-graph-v1::" + std::string(2000, 'x')})
    EXPECT_EQ(artifact_kind_of_redis_key(other), "") << other;
}

}  // namespace
}  // namespace kiln
