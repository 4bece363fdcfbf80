// Remote: the coordinator as a client sees it. Connections are opened on demand and kept; after a
// failure the circuit breaker answers kUnavailable at once for a while, so that a service that is
// away costs one bounded wait and not one per call. A call that was answered, and then loses the
// service, waits for its return instead, and asks again. Thread-safe.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "compiler_core/base/signature.h"
#include "schema/messages.h"
#include "schema/zmq/transport.h"

namespace kiln {

class Remote {
 public:
  using Clock = std::chrono::steady_clock;

  // How it waits before it asks an overloaded service again; tests have their own.
  struct Patience {
    std::function<uint64_t()> jitter_seed;
    std::function<void(std::chrono::milliseconds)> sleep;
  };
  static Patience real_patience();

  // `endpoint`: of the coordinator, or of several of one store (Connection::open()).
  Remote(std::string endpoint, std::chrono::milliseconds connect_timeout,
         Patience patience = real_patience());

  // The file of a key (schema/keys/key_file.h), read for each connection. REQUIRES: before the
  // first call.
  void use_key(Path file) { key_file_ = std::move(file); }

  // As ClientOptions::read_links. REQUIRES: before the first call.
  using LinkReader = std::function<std::vector<Result<std::string>>(
      const std::vector<std::string>& urls, std::chrono::milliseconds timeout)>;
  void read_links_with(LinkReader reader) { read_links_ = std::move(reader); }

  struct Answer {
    CacheOutcome outcome = CacheOutcome::kHit;
    Program program;  // checked against its signature; of kQueued there is none
    std::string manifest{};
    Signature signature{};
    bool memory_only = false;  // the service could not store it
    bool stale = false;        // templates of another version made it
    bool tier0 = false;        // the kDefault program in the place of the one that was asked for
  };
  // Programs are taken from this signer only (a public key); until then, and with an empty one,
  // from the signer that the coordinator names. REQUIRES: before the first call.
  void trust(std::string signer) { trusted_signer_ = std::move(signer); }
  // The coordinator's answer: a program, or why there is none. kUnavailable: no worker for it.
  using Word = Result<Answer>;
  // Hears a list of revocations (program/revocations.h), signed by `signer` and checked, when the
  // coordinator has one of another serial than `known` says. From any thread that calls.
  struct RevocationHearer {
    std::function<uint64_t()> known;
    std::function<void(const std::string& list, const Signature& signature)> hear;
  };
  // REQUIRES: before the first call.
  void tell_revocations(RevocationHearer hearer) { hearer_ = std::move(hearer); }
  // How a call waits; the functions (as in CompileOptions) may be empty.
  struct Waiting {
    Waiting(Clock::time_point until) : deadline(until), returns_until(until) {}  // NOLINT: no more
    Clock::time_point deadline;
    // For a service that went away to come back, and for binaries: what is left is the fallback's.
    Clock::time_point returns_until;
    std::function<void(const Progress&)> on_progress{};
    std::function<void(const std::string&)> on_message{};
    std::function<bool()> is_cancelled{};
  };
  // Asks for a program; uploads `graph_text` only when the coordinator wants it. An overloaded
  // coordinator is asked again when it says (backoff.h), within the deadline; one that goes away
  // after it has answered, once it is back. kUnavailable when nobody answers, or it did not come
  // back; kDeadlineExceeded; kPermissionDenied or kCorruption when the program is not to be trusted
  // (checked_program()).
  Result<Word> compile(const CompileRequest& request,
                       const std::function<std::string()>& graph_text, const Waiting& waiting);

  // The bytes of each digest, checked. kNotFound names the first one missing. kUnavailable: the
  // coordinator cannot read one now and says why, or has not sent them by returns_until. An overloaded
  // coordinator is asked again, and the return of one that went away waited for, as by compile().
  using Blobs = std::vector<std::string>;
  Result<Blobs> fetch(const std::vector<Digest>& digests, const Waiting& waiting);

  Result<Stats> stats(Clock::time_point deadline);
  // Runs an operator's request; the answer is the coordinator's JSON.
  Result<std::string> admin(AdminRequest request, Clock::time_point deadline);

  bool breaker_open() const;
  bool ever_reached() const;

 private:
  // `reached` becomes true once the service has answered this call in any way.
  Result<Word> compile_once(const CompileRequest& request,
                            const std::function<std::string()>& graph_text, const Waiting& waiting,
                            bool& reached);
  // Asks for the list, if the serial is news.
  Status hear_revocations(Connection& connection, uint64_t serial, Clock::time_point deadline);
  // The outer result is the connection's, the inner one the coordinator's answer.
  Result<Result<Blobs>> fetch_once(const std::vector<Digest>& digests, Clock::time_point deadline,
                                   bool& reached);
  // The bytes that the service sends of these, and links to the others, if they may be.
  struct Sent {
    std::unordered_map<Digest, std::string> blobs{};
    std::vector<BlobLink> links{};
    std::optional<Error> missing{};  // one of them is, or cannot be read now
  };
  Result<Sent> ask_for_blobs(const std::vector<Digest>& digests, bool links_ok,
                             Clock::time_point deadline, bool& reached);
  // Reads the links' blobs; those that cannot be had so.
  std::vector<Digest> follow_links(Sent& sent, Clock::time_point deadline);
  // Asks until the service answers without going away in between, or does not come back. `has_answered`: the
  // service has answered an earlier part of the same request, so that it is waited for from the start.
  template <class T>
  Result<T> until_it_stays(const std::function<Result<T>(bool& reached)>& ask,
                           const Waiting& waiting, bool has_answered);
  // Connects again, whatever the circuit breaker says, for the next call to use.
  Status await_return(const Waiting& waiting, std::chrono::milliseconds& pause);
  // Asks until the answer is no `refusal` of an overloaded service, or waiting is not worth it.
  template <class T>
  Result<T> with_patience(const std::function<Result<T>()>& ask,
                          const std::function<const Error*(const Result<T>&)>& refusal,
                          Clock::time_point deadline) const;
  // The coordinator that a question is for: a follower answers look-ups and blobs of what is stored.
  enum class Asked : uint8_t { kLeader, kAnyone };
  // A kept connection if `kept_one` asks for it and there is one (it says so), else a new one.
  Result<std::unique_ptr<Connection>> acquire(bool& kept_one, Asked asked);
  Result<std::unique_ptr<Connection>> connect(std::chrono::milliseconds timeout, Asked asked);
  void release(std::unique_ptr<Connection> connection);
  // Why a connection ended: that the service does not take our key any more, or else `end`.
  Error why_it_ended(Error end, Asked asked);
  // Remembers that the service failed us.
  void trip();
  // Sends and receives on one connection; on success the connection is kept for later calls.
  // `reached`, if it is given, becomes true with a connection that was not kept from before.
  template <class T>
  Result<T> with_connection(const std::function<Result<T>(Connection&)>& call,
                            bool* reached = nullptr, Asked asked = Asked::kLeader);
  // Where several coordinators are named, asks anyone, and then the leader if who was asked follows
  // and `passes_on` says that it could not answer.
  template <class T>
  Result<T> with_anyone(const std::function<Result<T>(Connection&)>& call,
                        const std::function<bool(const Result<T>&)>& passes_on, bool& reached);
  uint64_t next_request();
  // The signer to believe: the pinned signer, else the one that the coordinator says it is.
  const std::string& trusted_or(const std::string& named) const {
    return trusted_signer_.empty() ? named : trusted_signer_;
  }

  const std::string endpoint_;
  bool are_several_ = false;  // constant after construction
  const std::chrono::milliseconds connect_timeout_;
  const Patience patience_;
  std::string trusted_signer_;
  RevocationHearer hearer_;              // may be empty
  LinkReader read_links_;                // the same
  std::atomic<bool> links_fail_{false};  // none could be read: no more are asked for
  Path key_file_;                        // empty: none

  mutable std::mutex mu_;
  // Guarded by mu_.
  std::vector<std::unique_ptr<Connection>> idle_;
  Clock::time_point closed_until_{};
  bool reached_ = false;
  std::string leader_;    // of several coordinators, the last that led
  std::string answered_;  // and the last that answered look-ups; at first any of them
  uint64_t last_request_ = 0;
};

// The two checks of a program that came from elsewhere, before anything of it is used.
//
// Whether `manifest` is the program that was `asked` for, signed by `trusted` or by the key that it
// endorsed. kPermissionDenied: unsigned, or signed by somebody else; kCorruption: altered, or the
// program of another request.
Result<Program> checked_program(const CompileRequest& asked, const std::string& manifest,
                                const Signature& signature, std::string_view trusted);
// Whether the graph, target and mode in `program` are those of `asked`; `where` names its source in
// the error. kCorruption.
Status check_is_asked(const CompileRequest& asked, const Program& program, std::string_view where);

}  // namespace kiln
