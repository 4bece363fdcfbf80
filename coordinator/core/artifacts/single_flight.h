// SingleFlight: who makes an artifact that nobody has yet, and who waits for it. A pure value: time
// and the ends of connections come in, verdicts go out. One thread.
//
//                 missed() with a lease            missed() while there is a holder, with a wait
//   nothing held ------------------------> held <------------------------------------- waits
//        ^                                  |                                            |
//        |   stored(), nobody waits         |  stored(): all look again                  |
//        +----------------------------------+  release(), gone(), expire(): the first    |
//                                              who wants it is the next holder           |
//                                                   expire(), when its wait is over: a miss
//
// Invariants:
//  1. An artifact has one holder at most.
//  2. Nobody waits for an artifact without a holder.
//  3. Whoever waits gets one verdict, or has gone.
//  4. Leases and waits are bounded: all together, and leases for each connection. Beyond that a miss
//     is a miss at once, without a lease.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

namespace kiln {

class SingleFlight {
 public:
  static constexpr size_t kMaxLeases = 20'000, kMaxLeasesEach = 1'000, kMaxWaits = 20'000;

  struct Asker {
    std::string connection;
    uint64_t request = 0;
    std::string user{};  // whoever releases a lease is its holder's
    bool operator==(const Asker&) const = default;
  };
  struct Verdict {
    enum class Kind : uint8_t {
      kMiss,       // and nobody makes it
      kMakeIt,     // `lease` is theirs
      kHeld,       // somebody else makes it, and they do not wait (any more)
      kLookAgain,  // it is stored
    };
    Asker asker;
    Kind kind = Kind::kMiss;
    uint64_t lease = 0;
    bool operator==(const Verdict&) const = default;
  };
  using Verdicts = std::vector<Verdict>;

  // `asker` did not find `artifact`. It waits so long for whoever makes it, 0: not at all; and takes
  // a lease for so long where nobody does, 0: none. No verdict: it waits. A holder that asks again
  // on its connection has its lease renewed.
  Verdicts missed(int64_t now_ms, const std::string& artifact, const Asker& asker, int64_t wait_ms,
                  int64_t lease_ms);
  Verdicts stored(const std::string& artifact);
  // Nothing happens unless `user` has that lease.
  Verdicts release(int64_t now_ms, uint64_t lease, const std::string& user);
  Verdicts gone(int64_t now_ms, const std::string& connection);
  // Ends what is over by now.
  Verdicts expire(int64_t now_ms);

  size_t leases() const { return artifact_of_.size(); }
  size_t waits() const { return waits_; }

 private:
  struct Waiter {
    Asker asker;
    int64_t until_ms = 0, lease_ms = 0;
  };
  struct Flight {
    Asker holder;
    uint64_t lease = 0;
    int64_t until_ms = 0;
    std::deque<Waiter> waiters;
  };
  using Flights = std::unordered_map<std::string, Flight>;

  bool may_lease(const std::string& connection) const;
  Verdict hold(int64_t now_ms, Flight& flight, const std::string& artifact, const Asker& asker,
               int64_t lease_ms);
  void let_go(const Flight& flight);
  // The holder ended without a value.
  void pass_on(int64_t now_ms, Flights::iterator flight, Verdicts& verdicts);

  Flights flights_;
  std::map<uint64_t, std::string> artifact_of_;        // by lease
  std::unordered_map<std::string, size_t> leases_of_;  // by connection; no zeros
  std::unordered_map<std::string, size_t> waits_of_;   // likewise
  size_t waits_ = 0;
  uint64_t last_lease_ = 0;
};

}  // namespace kiln
