// Term: the time for which one coordinator alone may write a PostgresStore, as a row of the table
// terms. Its holder renews it every second; one that dies, or is cut off, loses it kTtl after its
// last renewal, and the next one's epoch is greater. A term fences: each transaction of the writer
// locks the row first and finds it still its own (fence()), so that nothing is written after a later
// term began, however long the writer stood still.
//
// Only the database compares times, by its own clock. A failover that lost a term cannot issue its
// epoch again: epochs begin with the number of the database's timeline.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "cache/postgres/connection.h"

namespace kiln {

class Term {
 public:
  static constexpr int kTtlSeconds = 5;

  struct Holder {
    std::string pool = "kiln";
    std::string name{};     // unique to this process
    std::string address{};  // for people: where the holder is
  };
  // Takes the term as soon as nobody holds it. Until then `waits` hears, some times a second, why not
  // yet, in a sentence that names the holder; when it says false, that is the answer: kUnavailable.
  static Result<std::unique_ptr<Term>> take(
      PgConnection connection, Holder holder,
      const std::function<bool(const std::string& why)>& waits, std::function<void()> lost);
  ~Term();  // gives it up

  uint64_t epoch() const { return epoch_; }
  // False for good once another coordinator has a later term.
  bool is_ours() const { return is_ours_; }
  // To begin a transaction with: it returns one row while the term is ours, and keeps others from
  // taking it until the transaction ends.
  static constexpr char kFence[] =
      "SELECT 1 FROM terms WHERE pool = $1 AND holder = $2 AND epoch = $3 FOR SHARE";
  PgValues fence_values() const;
  // The writer found it gone.
  void lose();

 private:
  Term(PgConnection connection, Holder holder, uint64_t epoch, std::function<void()> lost);
  // The epoch; 0 while another has the term, whose holder it says.
  static Result<uint64_t> campaign(PgConnection& connection, const Holder& holder,
                                   std::string& other);
  void run();

  const Holder holder_;
  const uint64_t epoch_;
  const std::function<void()> lost_;
  std::atomic<bool> is_ours_{true};
  PgConnection connection_;  // the thread's own

  std::mutex mu_;
  std::condition_variable changed_;
  bool stopping_ = false;  // guarded by mu_
  std::thread thread_;     // last: starts when the rest stands
};

}  // namespace kiln
