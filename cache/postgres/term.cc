#include "cache/postgres/term.h"

#include <fmt/core.h>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kRenewEvery{1'000}, kAskEvery{200};

// An attempt locks and writes the row even where it loses, so it is made only when the term is over.
constexpr char kSeen[] = "SELECT address, until < clock_timestamp() FROM terms WHERE pool = $1";
constexpr char kTake[] =
    "INSERT INTO terms AS t VALUES ($1,"
    " ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::bigint << 20,"
    " $2, $3, clock_timestamp() + $4 * interval '1 second')"
    " ON CONFLICT (pool) DO UPDATE SET epoch = greatest(t.epoch + 1, excluded.epoch),"
    " holder = excluded.holder, address = excluded.address, until = excluded.until"
    " WHERE t.until < clock_timestamp() RETURNING epoch";
constexpr char kRenew[] =
    "UPDATE terms SET until = clock_timestamp() + $4 * interval '1 second'"
    " WHERE pool = $1 AND holder = $2 AND epoch = $3";
constexpr char kResign[] =
    "UPDATE terms SET until = '-infinity' WHERE pool = $1 AND holder = $2 AND epoch = $3";

}  // namespace

Result<std::unique_ptr<Term>> Term::take(PgConnection connection, Holder holder,
                                         std::chrono::milliseconds patience,
                                         std::function<void()> lost) {
  for (const auto give_up = Clock::now() + patience;;) {
    TRY(const PgRows seen, connection.run(kSeen, PgValues().add_text(holder.pool)));
    const bool is_free = seen.size() == 0 || seen.boolean(0, 1);
    if (is_free) {
      TRY(const PgRows taken, connection.run(kTake, PgValues()
                                                        .add_text(holder.pool)
                                                        .add_text(holder.name)
                                                        .add_text(holder.address)
                                                        .add(int64_t{kTtlSeconds})));
      if (taken.size() == 1) {
        const auto epoch = static_cast<uint64_t>(taken.integer(0, 0));
        return std::unique_ptr<Term>(
            new Term(std::move(connection), std::move(holder), epoch, std::move(lost)));
      }
    }
    if (Clock::now() >= give_up)
      return fail(Code::kUnavailable,
                  fmt::format("another coordinator ({}) writes this store: stop it first, or name "
                              "another store with --store",
                              seen.size() == 0 ? "just now" : std::string(seen.bytes(0, 0))));
    std::this_thread::sleep_for(kAskEvery);
  }
}

Term::Term(PgConnection connection, Holder holder, uint64_t epoch, std::function<void()> lost)
    : holder_(std::move(holder)),
      epoch_(epoch),
      lost_(std::move(lost)),
      connection_(std::move(connection)),
      thread_([this] { run(); }) {}

Term::~Term() {
  {
    const std::scoped_lock lock(mu_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
  if (is_ours_) (void)connection_.run(kResign, fence_values());
}

PgValues Term::fence_values() const {
  return PgValues().add_text(holder_.pool).add_text(holder_.name).add(static_cast<int64_t>(epoch_));
}

void Term::lose() {
  if (is_ours_.exchange(false) && lost_) lost_();
}

// A renewal that fails loses nothing yet: the next one may come in time, and one that comes too late
// is as good while nobody else took the term.
void Term::run() {
  std::unique_lock lock(mu_);
  while (!changed_.wait_for(lock, kRenewEvery, [this] { return stopping_; })) {
    lock.unlock();
    const auto renewed = connection_.run(kRenew, fence_values().add(int64_t{kTtlSeconds}));
    if (renewed && renewed->changed() == 0) lose();
    lock.lock();
    if (!is_ours_) return;
  }
}

}  // namespace kiln
