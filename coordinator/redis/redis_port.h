// RedisPort: a port that speaks enough of Redis for Inductor's remote cache (TORCHINDUCTOR_REDIS_URL),
// so that processes without Kiln's package share too. One thread of its own serves all connections,
// one request of each at a time; values are somebody else's (RedisService). Connections, what they
// say before they are signed in, what they hold and how long a request may take are bounded
// (RedisLimits). Thread-safe.
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
  // Gives the user of a password, also before each GET and SET: a password may have ended since. An
  // empty function: none is asked for, and everybody is User{}.
  std::function<Result<User>(std::string_view password)> sign_in;
  using Got = std::function<void(std::optional<std::string>)>;  // nothing: a miss
  std::function<void(const User& user, std::string key, Got done)> get;
  using Done = std::function<void()>;  // stored, or not
  std::function<void(const User& user, std::string key, std::string value, Done done)> set;
};

struct RedisLimits {
  // At once. Who is not signed in makes room for others, then who is quiet for the longest of the
  // user with the most connections.
  size_t connections = 512;
  // The bytes of requests that are not whole and of answers that are not taken, of all connections together;
  // beyond that, those that got nowhere for the longest are ended.
  size_t held_bytes = 256 << 20;
  int64_t request_ms = 60'000;  // for a request to be whole, and for its answer to be taken
};

class RedisPort {
 public:
  // `address`: "127.0.0.1:6379", "[::1]:6379"; port 0 picks one. kInvalidArgument when it is no
  // address, or leads beyond this machine while the service asks for no password; kUnavailable when
  // the port is taken.
  static Result<std::unique_ptr<RedisPort>> open(const std::string& address, RedisService service,
                                                 RedisLimits limits = {});
  ~RedisPort();  // ends connections

  const std::string& endpoint() const;  // "redis://127.0.0.1:6379", with the port that was picked

  struct Impl;

 private:
  explicit RedisPort(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
