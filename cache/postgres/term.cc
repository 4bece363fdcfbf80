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

Result<uint64_t> Term::campaign(PgConnection& connection, const Holder& holder,
                                std::string& other) {
  TRY(const PgRows seen, connection.run(kSeen, PgValues().add_text(holder.pool)));
  if (seen.size() == 1) other = seen.bytes(0, 0);
  if (seen.size() == 1 && !seen.boolean(0, 1)) return 0;
  TRY(const PgRows taken, connection.run(kTake, PgValues()
                                                    .add_text(holder.pool)
                                                    .add_text(holder.name)
                                                    .add_text(holder.address)
                                                    .add(int64_t{kTtlSeconds})));
  return taken.size() == 1 ? static_cast<uint64_t>(taken.integer(0, 0)) : 0;
}

Result<std::unique_ptr<Term>> Term::take(PgConnection connection, Holder holder,
                                         const std::function<bool(const std::string& why)>& waits,
                                         std::function<void()> lost) {
  for (std::string other;;) {
    const auto epoch = campaign(connection, holder, other);
    if (epoch && *epoch > 0)
      return std::unique_ptr<Term>(
          new Term(std::move(connection), std::move(holder), *epoch, std::move(lost)));
    const std::string why = epoch ? fmt::format("another coordinator ({}) writes this store", other)
                                  : epoch.error().message;
    if (!waits(why)) return fail(Code::kUnavailable, why);
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
