// ArtifactClient: values of other compilers that a coordinator keeps for a fleet (artifact_kinds.h),
// with leases: whoever misses first makes the value, the others may wait for it. Nothing comes out
// that the coordinator's key did not sign. Every call has a deadline, and none retries: a cache that
// is away is a miss. Connections are opened when they are needed and kept, since a lease ends with
// the one it was taken on. Thread-safe.
#pragma once

#include <chrono>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "compiler_core/base/signature.h"
#include "schema/messages.h"
#include "schema/zmq/transport.h"

namespace kiln {

class ArtifactClient {
 public:
  struct Options {
    std::string coordinator;  // "tcp://127.0.0.1:7557", or several (Connection::open())
    Path key_file{};          // schema/keys/key_file.h; empty: none
    // 64 hex digits that artifacts are signed with; empty: the key file's, and without one what the
    // coordinator names.
    std::string signing_key{};
  };
  // Contacts nobody. kInvalidArgument: no key file, or no signing key.
  static Result<std::unique_ptr<ArtifactClient>> create(Options options);

  struct Wanted {
    std::chrono::milliseconds timeout{2000};  // of the call, but for `wait`
    std::chrono::milliseconds wait{0};        // for whoever makes the value now
    std::chrono::milliseconds lease{0};       // that a miss takes; 0: none
  };
  struct Found {
    std::optional<std::string> value;  // none: a miss
    uint64_t lease = 0;                // with a miss: the caller makes the value; 0: no lease
    bool leased = false;               // with a miss: somebody else still makes it
    Signature signature{};             // with a value: the coordinator's
  };
  // kUnavailable; kDeadlineExceeded; kPermissionDenied and kCorruption where the value is not what
  // the trusted key signed; kUnsupported: the coordinator knows no such kind.
  Result<Found> get(const std::string& kind, const std::string& key, const Wanted& wanted);
  // Returns once the value is stored. It ends the lease of its key. kPermissionDenied: the key's
  // role may not put artifacts of this kind; kInvalidArgument: not a value of this kind.
  Status put(const std::string& kind, const std::string& key, std::string value,
             std::chrono::milliseconds timeout);
  // The value will not come: the next one who waits makes it.
  Status release(uint64_t lease, std::chrono::milliseconds timeout);

 private:
  using Clock = std::chrono::steady_clock;
  explicit ArtifactClient(Options options, std::string trusted)
      : options_(std::move(options)), trusted_(std::move(trusted)) {}
  Result<std::unique_ptr<Connection>> connection(Clock::time_point deadline);
  void keep(std::unique_ptr<Connection> connection);
  void forget_idle();
  bool ask_again(const Error& error, bool again, Clock::time_point deadline);
  Result<Found> ask(ArtifactGet request, Clock::time_point deadline);
  Result<ArtifactReply> converse(Connection& connection, const Message& message, uint64_t request,
                                 Clock::time_point deadline);
  uint64_t next_request();

  const Options options_;
  const std::string trusted_;  // a public key; empty: the coordinator's word

  std::mutex mu_;
  // Guarded by mu_.
  std::vector<std::unique_ptr<Connection>> idle_;
  uint64_t last_request_ = 0;
};

}  // namespace kiln
