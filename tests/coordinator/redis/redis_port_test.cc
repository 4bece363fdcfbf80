// The Redis port over a socket, with a service of a few lines behind it.
#include "coordinator/redis/redis_port.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

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
  void open(bool with_password) {
    RedisService service;
    if (with_password)
      service.sign_in = [](std::string_view password) -> Result<User> {
        if (password != "secret") return fail(Code::kPermissionDenied, "no such token");
        return User{"ann", Grant::kSubmit};
      };
    service.get = [this](const User&, const std::string& key, const RedisService::Got& done) {
      const auto found = values_.find(key);
      done(found == values_.end() ? std::nullopt : std::optional(found->second));
    };
    service.set = [this](const User&, const std::string& key, std::string value,
                         const RedisService::Done& done) {
      values_[key] = std::move(value);
      done();
    };
    auto opened = RedisPort::open("127.0.0.1:0", std::move(service));
    ASSERT_TRUE(opened) << opened.error().message;
    port_ = *std::move(opened);
  }

  std::map<std::string, std::string> values_;  // the port's thread's
  std::unique_ptr<RedisPort> port_;
};

constexpr char kGet[] = "*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";

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
        std::string("pt2:pgo::x"), "pt2:fx-graph-v1::" + std::string(2000, 'x')})
    EXPECT_EQ(artifact_kind_of_redis_key(other), "") << other;
}

}  // namespace
}  // namespace kiln
