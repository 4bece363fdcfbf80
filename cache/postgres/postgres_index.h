// PostgresIndex: what the writer of a PostgresStore does to its tables (schema.cc), in transactions
// that the term fences: a coordinator whose term is over changes nothing. An index of a BoundedWriter;
// its thread's own.
//
// Life of a blob: claimed (P, under a name never used before) -> its bytes PUT -> live (L) -> doomed
// (D), when nothing needs it or its bytes turned out bad -> for a while nothing -> going (X) -> its
// object removed -> its row too. A doomed blob that is put again goes on as claimed; one that is
// going is waited for, so that a late removal always hits a dead name.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "cache/objects/object_store.h"
#include "cache/offer_table.h"
#include "cache/postgres/connection.h"
#include "cache/postgres/term.h"
#include "cache/store.h"

namespace kiln {

// A put_blob: its bytes go to the object store before the batch's transaction.
struct Upload {
  Digest digest;
  std::string bytes;
  // prepare() says:
  std::string object{};
  Status outcome = {};
};

class PostgresIndex {
 public:
  struct Settings {
    std::function<int64_t()> now_ms;  // wall clock, for the last use alone
    int64_t doomed_s = 3600;          // how long a doomed blob's object stays
  };
  // The references outlive it.
  PostgresIndex(PgConnection connection, Term& term, ObjectStore& objects, Settings settings);

  // ---- GroupWriter's ----
  // Claims and uploads, all at once. While the object store is away one upload in a while finds out
  // whether it is back; the others hear kUnavailable at once, since all writes wait behind them.
  void prepare(const std::vector<std::shared_ptr<Upload>>& uploads);
  Status begin();
  // From here to the end of the transaction, puts do not wait for their answers: commit() hears them,
  // and fails when one of them did.
  Status begin_together();
  Status commit();
  void roll_back();
  Status begin_part();
  Status end_part();
  Status undo_part();

  // ---- BoundedWriter's ----
  struct Totals {
    int64_t programs = 0, kernels = 0, records = 0;
    int64_t blob_bytes = 0, bytes = 0;
  };
  Result<Totals> totals();
  struct Evicted {
    int64_t bytes = 0;
    int entries = 0;
    std::vector<Digest> programs;  // keys
  };
  // Evicts the least recently used programs that were not used since `before_ms` (a use counts for
  // the hour that it fell into), each with the kernels and blobs that nothing else needs; then such
  // kernels; until `bytes` are free or `limit` entries are gone.
  Result<Evicted> evict(int64_t bytes, int64_t before_ms, int limit);

  // Somebody heard from the object store: the next upload need not wait to find out.
  void objects_answer() { objects_again_ = {}, objects_backoff_ = {}; }

  // ---- Within a transaction ----
  Status put_blob(const Upload& upload);
  Status put_kernel(const StoredKernel& kernel);  // kUnavailable unless its blob is live
  struct ProgramRow {
    Digest key;
    std::string manifest, stamp;
    std::vector<Digest> blobs;
    Audience audience;
  };
  Status put_program(const ProgramRow& row);  // kUnavailable unless its blobs are live
  Status put_record(const TuningRecord& record);
  Status put_shape_generic_key(const Digest& workload, const ShapeGenericKey& key);
  Status remove(const Digest& key);  // the program and the kernel of that key
  // Dooms a blob whose bytes in `object` are bad or gone: what needs it is a miss until it is put
  // again.
  Status doom(const Digest& digest, const std::string& object);
  struct LiveObject {
    Digest digest;
    std::string object;
  };
  // A few other live blobs; none: there are none.
  Result<std::vector<LiveObject>> objects_beside(const Digest& digest);
  Status pin(const Digest& program);
  Status unpin(const Digest& program);
  Status touch(const std::vector<Digest>& programs, const std::vector<Digest>& kernels);
  Result<TakenBack> would_take_back(const TakeBack& what);
  Result<TakenBack> take_back(const TakeBack& what, int64_t through);
  Status note(const AdminAct& act);
  // postgres_offers.cc has both.
  Status put_offer(const ListedOffer& offer, const std::string& text);
  Status remove_offers(const std::string& owner, int64_t until_ms);
  Result<int64_t> programs_not_of(const Digest& stamp);
  // Whether the row of this key was written in a later term than that of `epoch`.
  Result<bool> has_later(bool is_program, const Digest& key, uint64_t epoch);
  Result<std::vector<Digest>> not_live(const std::vector<Digest>& blobs);

  // Dooms what nothing needs; of what is doomed for long enough, so many are going from then on.
  Status sweep(int limit);

 private:
  Result<PgRows> run(const char* sql, const PgValues& values = {});
  Result<PgRows> run_long(const char* sql, const PgValues& values = {});
  // A statement of a put. `rows`: how many it must change or find, else kUnavailable, `otherwise`.
  Status write(const char* sql, PgValues values, int64_t rows = PgConnection::kAnyRows,
               const char* otherwise = "");
  void upload(const std::vector<std::shared_ptr<Upload>>& uploads, std::set<Digest>& to_upload);
  Status claim(const std::vector<std::shared_ptr<Upload>>& uploads, std::set<Digest>& to_upload);
  Status doom_unneeded(const std::vector<Digest>& blobs, bool at_once, TakenBack* taken);
  Result<std::set<Digest>> kernels_meant(const TakeBack& what);
  int64_t hour(int64_t ms) const { return ms / 3'600'000; }
  int64_t epoch() const { return static_cast<int64_t>(term_.epoch()); }

  PgConnection connection_;
  Term& term_;
  ObjectStore& objects_;
  const Settings settings_;
  bool in_transaction_ = false, together_ = false;
  // While the object store is away: when it is tried again.
  std::chrono::steady_clock::time_point objects_again_{};
  std::chrono::milliseconds objects_backoff_{0};
};

}  // namespace kiln
