// RedisPort: a port that speaks enough of Redis for Inductor's remote cache (TORCHINDUCTOR_REDIS_URL),
// so that processes without Kiln's package share too. One thread of its own serves all connections,
// one request of each at a time; values are somebody else's (RedisService). Connections, what they
// say before they are signed in, and what they may hold are bounded. Thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "schema/keys/grant.h"

namespace kiln {

// The service behind the port. Called on its thread; `done` is called once, on any thread, also when
// the port is gone. There are no errors of GET and SET: Inductor would end a compile over one.
struct RedisService {
  // Gives the user of a password. An empty function: none is asked for, and everybody is User{}.
  std::function<Result<User>(std::string_view password)> sign_in;
  using Got = std::function<void(std::optional<std::string>)>;  // nothing: a miss
  std::function<void(const User& user, std::string key, Got done)> get;
  using Done = std::function<void()>;  // stored, or not
  std::function<void(const User& user, std::string key, std::string value, Done done)> set;
};

class RedisPort {
 public:
  static constexpr size_t kMaxConnections = 512;

  // `address`: "127.0.0.1:6379", "[::1]:6379"; port 0 picks one. kInvalidArgument when it is no
  // address, or leads beyond this machine while the service asks for no password; kUnavailable when
  // the port is taken.
  static Result<std::unique_ptr<RedisPort>> open(const std::string& address, RedisService service);
  ~RedisPort();  // ends connections

  const std::string& endpoint() const;  // "redis://127.0.0.1:6379", with the port that was picked

  struct Impl;

 private:
  explicit RedisPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
