// Life of a write: put_* -> writer -> (blob: claim, PUT) -> fenced transaction -> done
// (spooled_writes.h: while a part is away).
// Life of a look-up: LookUps -> row -> seal -> (blob: GET, digest) -> answer.
// Life of a blob: postgres_index.h.
#include "cache/postgres/postgres_store.h"

#include <fmt/core.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <set>
#include <thread>

#include "cache/access_times.h"
#include "cache/local_blobs.h"
#include "cache/postgres/beginning.h"
#include "cache/postgres/blob_reads.h"
#include "cache/postgres/connections.h"
#include "cache/postgres/look_ups.h"
#include "cache/postgres/postgres_index.h"
#include "cache/postgres/postgres_offers.h"
#include "cache/postgres/reads.h"
#include "cache/postgres/spooled_writes.h"
#include "cache/postgres/term.h"
#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

constexpr int kLookUpThreads = 2;
constexpr int kSweptAtOnce = 256;
constexpr auto kTotalsEvery = std::chrono::seconds(1);

}  // namespace

struct PostgresStore::Impl {
  Impl(const std::string& url, const std::string& name, std::unique_ptr<ObjectStore> given_objects,
       std::unique_ptr<Term> taken, std::unique_ptr<Spool> spool, PostgresStoreOptions given)
      : options(std::move(given)),
        owned_objects(std::move(given_objects)),
        objects(owned_objects.get()),
        copies(options.copies, options.copies_bytes),
        term(std::move(taken)),
        writer(PostgresIndex(PgConnection(url, name + " writer"), *term, *objects,
                             {options.now_ms, options.doomed_s}),
               {options.max_bytes, options.keep_used_ms, options.now_ms},
               [this](const PostgresIndex::Evicted& evicted) { after(evicted); }),
        writes(writer, *term, *objects, std::move(spool), options.log),
        connections(url, name + " reader"),
        look_ups(std::make_unique<LookUps>(url, name + " look-ups", kLookUpThreads)) {}
  // Once what waits in the spool is what may go up.
  void begin() {
    maintenance = std::thread([this] { maintain(); });
  }

  // In this order, since each may still use those below it. A GET whose answer is late finds
  // `closing` and asks for nothing more.
  ~Impl() {
    {
      const std::scoped_lock lock(mu);
      closing = true;
    }
    blobs.close();
    changed.notify_all();
    if (maintenance.joinable()) maintenance.join();
    writer.close();
    writes.close();
    write_uses();
    look_ups.reset();
    writer.group().flush();
    writer.group().flush();  // what the last answers asked for, which may need the objects
    owned_objects.reset();
    writer.group().stop();
  }

  void submit(PostgresWriter::Job job, Done done, size_t bytes = 0) {
    writer.group().submit(bytes, std::move(job), std::move(done));
  }
  void after(const PostgresIndex::Evicted& evicted) {
    if (evicted.programs.empty()) return;
    evicted_programs += std::ssize(evicted.programs);
    if (options.evicted) options.evicted(evicted.programs);
  }
  template <class T>
  Result<T> dropping_damage(const Digest& key, Result<T> row) {
    if (!row && row.error().code == Code::kCorruption)
      submit([key](PostgresIndex& index) { return index.remove(key); }, nullptr);
    return row;
  }
  void write_uses();
  void refresh_totals();
  void sweep(std::function<void()> swept);
  void remove_going(const std::shared_ptr<void>& last);
  void forget_removed();
  void maintain();

  const PostgresStoreOptions options;
  const std::string warning;
  std::unique_ptr<ObjectStore> owned_objects;
  ObjectStore* const objects;
  LocalBlobs copies;
  const std::unique_ptr<Term> term;
  std::atomic<int64_t> evicted_programs{0};
  std::atomic<bool> postgres_away{false};
  AccessTimes access_times;
  PostgresWriter writer;
  SpooledWrites writes;
  BlobReads blobs{writer, *objects, copies, options.believed_after, options.log};
  Connections connections;
  PostgresOffers offers{writer, connections};
  std::unique_ptr<LookUps> look_ups;

  std::mutex mu;
  std::condition_variable changed;
  std::atomic<bool> closing{false};  // changes under mu
  PostgresIndex::Totals totals;      // guarded by mu
  std::mutex refreshing;             // taken before mu
  struct Removal {
    reads::Going gone;
    std::shared_ptr<void> last;  // let go when its row is gone
  };
  std::vector<Removal> removals;              // guarded by mu; their objects are gone
  std::vector<std::shared_ptr<void>> marked;  // guarded by mu; sweeps whose blobs are going
  std::thread maintenance;
};

void PostgresStore::Impl::write_uses() {
  const auto uses = access_times.take();
  if (uses.empty()) return;
  std::vector<Digest> programs, kernels;
  for (const auto& [id, used_ms] : uses)
    (id.kind == EntryKind::kProgram ? programs : kernels).push_back(id.key);
  submit([programs, kernels](PostgresIndex& index) { return index.touch(programs, kernels); },
         nullptr);
}

// Statistics are not worth an error: what was read last stays.
void PostgresStore::Impl::refresh_totals() {
  const std::scoped_lock in_order(refreshing);  // else what was read before may be kept
  const auto read = connections.with([](PgConnection& reader) { return reads::totals(reader); });
  postgres_away = !read;
  const std::scoped_lock lock(mu);
  if (read) totals = *read;
}

// The writer says which blobs are going, and the maintenance's thread removes them, since the writer
// may be waiting for one of them (claim()). Those that a coordinator was killed over are found too.
void PostgresStore::Impl::sweep(std::function<void()> swept) {
  // Called when the last of them is done.
  const std::shared_ptr<void> last(nullptr, [swept = std::move(swept)](void*) { swept(); });
  submit([](PostgresIndex& index) { return index.sweep(kSweptAtOnce); },
         [this, last](const Status&) {
           const std::scoped_lock lock(mu);
           marked.push_back(last);
           changed.notify_all();
         });
}

// Rows of blobs whose objects could not be removed stay, and are found by the next sweep.
void PostgresStore::Impl::remove_going(const std::shared_ptr<void>& last) {
  const auto going = connections.with(
      [](PgConnection& connection) { return reads::going(connection, kSweptAtOnce); });
  if (!going) return;
  for (const reads::Going& each : *going)
    objects->remove(each.object, [this, each, last](const Status& removed) {
      if (!removed) return;
      const std::scoped_lock lock(mu);
      removals.push_back({each, last});
      changed.notify_all();
    });
}

void PostgresStore::Impl::forget_removed() {
  std::vector<Removal> removed;
  {
    const std::scoped_lock lock(mu);
    removed.swap(removals);
  }
  for (const Removal& removal : removed)
    (void)connections.with(
        [&](PgConnection& connection) { return reads::forget_removed(connection, removal.gone); });
}

void PostgresStore::Impl::maintain() {
  const auto clock = [] { return std::chrono::steady_clock::now(); };
  const auto every = [](int64_t ms) { return std::chrono::milliseconds(ms); };
  auto next_uses = clock() + every(options.touch_every_ms);
  auto next_sweep = clock();
  remove_going(nullptr);
  std::unique_lock lock(mu);
  while (!closing) {
    const auto swept = std::make_shared<std::vector<std::shared_ptr<void>>>(std::move(marked));
    marked.clear();
    lock.unlock();
    if (!swept->empty()) remove_going(swept);
    forget_removed();
    refresh_totals();
    if (!postgres_away) writes.send_up();
    if (clock() >= next_uses) {
      write_uses();
      next_uses = clock() + every(options.touch_every_ms);
    }
    if (clock() >= next_sweep) {
      sweep([] {});
      next_sweep = clock() + every(options.sweep_every_ms);
    }
    lock.lock();
    changed.wait_for(lock, kTotalsEvery,
                     [this] { return closing || !removals.empty() || !marked.empty(); });
  }
}

PostgresStore::PostgresStore(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PostgresStore::~PostgresStore() = default;

Result<std::unique_ptr<PostgresStore>> PostgresStore::open(const std::string& url,
                                                           std::unique_ptr<ObjectStore> objects,
                                                           PostgresStoreOptions options) {
  if (!options.now_ms) options.now_ms = unix_ms;
  const std::string name = "kiln-coordinator";
  TRY(Beginning begun, begin_writing(url, name, options));
  std::unique_ptr<Spool> spool;
  if (options.spool_bytes > 0) {
    TRY(spool, Spool::open(options.spool, options.spool_bytes, options.log));
  }
  auto impl = std::make_unique<Impl>(url, name, std::move(objects), std::move(begun.term),
                                     std::move(spool), std::move(options));
  impl->writes.drop_revoked(begun.revoked);
  impl->begin();
  return std::unique_ptr<PostgresStore>(new PostgresStore(std::move(impl)));
}

std::string PostgresStore::away() const {
  if (impl_->postgres_away) return "PostgreSQL does not answer";
  return impl_->blobs.is_away() ? "the store of binaries does not answer" : "";
}

uint64_t PostgresStore::epoch() const {
  return impl_->term->epoch();
}

OfferTable& PostgresStore::offers() {
  return impl_->offers;
}

const std::string& PostgresStore::warning() const {
  return impl_->warning;
}

// ---- Look-ups ----

// The spool is read before PostgreSQL: else what goes up in between would be in neither.
void PostgresStore::look_up_program(const Digest& program_key, Then<StoredProgram> then) {
  impl_->look_ups->program(
      program_key, [impl = impl_.get(), program_key, waiting = impl_->writes.program(program_key),
                    then = std::move(then)](Result<StoredProgram> found) mutable {
        if (found)
          impl->access_times.add({EntryKind::kProgram, program_key}, impl->options.now_ms());
        found = impl->dropping_damage(program_key, std::move(found));
        then(SpooledWrites::later_of(std::move(waiting), std::move(found)));
      });
}

// A copy needs neither PostgreSQL nor the objects: its digest says that it is what was asked for.
void PostgresStore::look_up_blob(const Digest& digest, Then<std::string> then) {
  if (auto copy = impl_->copies.get(digest)) return then(std::move(copy));
  if (auto waiting = impl_->writes.blob(digest)) return then(std::move(waiting));
  impl_->look_ups->object(
      digest, [impl = impl_.get(), digest, then = std::move(then)](Result<std::string> object) {
        if (!object) return then(std::move(object));
        impl->blobs.fetch(digest, *object, then);
      });
}

void PostgresStore::look_up_link(const Digest& digest, Then<std::string> then) {
  impl_->look_ups->object(digest, [objects = impl_->objects,
                                   then = std::move(then)](const Result<std::string>& object) {
    then(object ? objects->link(*object, kLinkLife) : fail(object.error()));
  });
}

Result<StoredKernel> PostgresStore::kernel(const Digest& kernel_key) {
  auto waiting = impl_->writes.kernel(kernel_key);
  auto found = impl_->connections.with(
      [&](PgConnection& reader) { return reads::kernel(reader, kernel_key, false); });
  if (found) touch_kernel(kernel_key);
  found = impl_->dropping_damage(kernel_key, std::move(found));
  return found || !waiting ? std::move(found) : std::move(waiting);
}

Result<std::vector<TuningRecord>> PostgresStore::records(const Digest& kernel_key) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::records(reader, kernel_key); });
}

Result<std::vector<Schedule>> PostgresStore::earlier_winners(const Digest& workload) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::earlier_winners(reader, workload); });
}

Result<std::vector<Schedule>> PostgresStore::nearest_winners(const ShapeGenericKey& key) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::nearest_winners(reader, key); });
}

Result<std::vector<Revocation>> PostgresStore::revocations() {
  return impl_->connections.with([](PgConnection& reader) { return reads::revocations(reader); });
}

Result<ProgramList> PostgresStore::list_programs(const ProgramQuery& wanted) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::list_programs(reader, wanted); });
}

Result<ListedProgram> PostgresStore::listed_program(const Digest& program_key) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::listed_program(reader, program_key); });
}

Result<StoredKernel> PostgresStore::listed_kernel(const Digest& kernel_key) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::kernel(reader, kernel_key, true); });
}

Result<std::set<Digest>> PostgresStore::whole_programs(const std::vector<Digest>& keys) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::whole_programs(reader, keys); });
}

Result<std::set<Digest>> PostgresStore::whole_kernels(const std::vector<Digest>& keys) {
  return impl_->connections.with(
      [&](PgConnection& reader) { return reads::whole_kernels(reader, keys); });
}

void PostgresStore::touch(const Digest& program_key) {
  impl_->access_times.add({EntryKind::kProgram, program_key}, impl_->options.now_ms());
}

void PostgresStore::touch_kernel(const Digest& kernel_key) {
  impl_->access_times.add({EntryKind::kKernel, kernel_key}, impl_->options.now_ms());
}

// ---- Writes ----

void PostgresStore::put_blob(std::string bytes, Done done) {
  impl_->writes.put_blob(std::move(bytes), std::move(done));
}

void PostgresStore::put_kernel(StoredKernel kernel, Done done) {
  impl_->writes.put_kernel(std::move(kernel), std::move(done));
}

void PostgresStore::put_program(const Program& program, Done done, const Audience& audience) {
  impl_->writes.put_program(program, audience, std::move(done));
}

void PostgresStore::put_record(TuningRecord record, Done done) {
  const size_t size = record.log.size() + record.measurement.samples_us.size() * sizeof(double);
  impl_->submit(
      [record = std::move(record)](PostgresIndex& index) { return index.put_record(record); },
      std::move(done), size);
}

void PostgresStore::put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done) {
  impl_->submit([workload, key = std::move(key)](
                    PostgresIndex& index) { return index.put_shape_generic_key(workload, key); },
                std::move(done));
}

void PostgresStore::forget(const Digest& key, Done done) {
  impl_->writes.forget(key, std::move(done));
}

void PostgresStore::take_back(TakeBack what, int64_t through, TookBack done, const Noted& act) {
  impl_->writes.take_back(
      std::move(what), through,
      [impl = impl_.get(), done = std::move(done)](Result<TakenBack> taken) {
        impl->copies.clear();
        done(std::move(taken));
      },
      act);
}

void PostgresStore::would_take_back(TakeBack what, TookBack done) {
  impl_->writes.would_take_back(std::move(what), std::move(done));
}

void PostgresStore::list_records(RecordQuery wanted, Then<RecordList> then) {
  const auto found = std::make_shared<RecordList>();
  impl_->submit(
      [this, found, wanted = std::move(wanted)](PostgresIndex&) -> Status {
        TRY(*found, impl_->connections.with(
                        [&](PgConnection& reader) { return reads::list_records(reader, wanted); }));
        return {};
      },
      [found, then = std::move(then)](Status status) {
        then(status ? Result<RecordList>(std::move(*found)) : fail(std::move(status).error()));
      });
}

void PostgresStore::pin(const Digest& program_key, Done done, const Noted& act) {
  impl_->submit(
      [program_key, act](PostgresIndex& index) -> Status {
        TRY_STATUS(index.pin(program_key));
        return act ? index.note(*act) : Status{};
      },
      std::move(done));
}

void PostgresStore::unpin(const Digest& program_key, Done done, const Noted& act) {
  impl_->submit(
      [program_key, act](PostgresIndex& index) -> Status {
        TRY_STATUS(index.unpin(program_key));
        return act ? index.note(*act) : Status{};
      },
      std::move(done));
}

void PostgresStore::note(AdminAct act, Done done) {
  const size_t size = act.request.size() + act.outcome.size();
  impl_->submit([act = std::move(act)](PostgresIndex& index) { return index.note(act); },
                std::move(done), size);
}

void PostgresStore::list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) {
  const auto found = std::make_shared<std::vector<AdminAct>>();
  impl_->submit(
      [this, found, before, limit](PostgresIndex&) -> Status {
        TRY(*found, impl_->connections.with(
                        [&](PgConnection& reader) { return reads::acts(reader, before, limit); }));
        return {};
      },
      [found, then = std::move(then)](Status status) {
        then(status ? Result<std::vector<AdminAct>>(std::move(*found))
                    : fail(std::move(status).error()));
      });
}

void PostgresStore::collect(int64_t max_bytes, std::function<void(Collected, Status)> done) {
  impl_->write_uses();  // evict by the latest order
  impl_->writer.collect(max_bytes, {}, std::move(done));
}

void PostgresStore::count_programs_not_of(const Digest& stamp, Then<int64_t> done) {
  const auto count = std::make_shared<int64_t>(0);
  impl_->submit(
      [stamp, count](PostgresIndex& index) -> Status {
        TRY(*count, index.programs_not_of(stamp));
        return {};
      },
      [count, done = std::move(done)](const Status& status) {
        done(status ? Result<int64_t>(*count) : fail(status.error()));
      });
}

void PostgresStore::flush() {
  impl_->write_uses();
  impl_->writer.group().flush();
  impl_->refresh_totals();
}

void PostgresStore::sweep() {
  const auto swept = std::make_shared<std::promise<void>>();
  impl_->sweep([swept] { swept->set_value(); });
  swept->get_future().wait();
}

Store::Totals PostgresStore::totals() const {
  Totals totals;
  const std::scoped_lock lock(impl_->mu);
  totals.programs = impl_->totals.programs;
  totals.kernels = impl_->totals.kernels;
  totals.records = impl_->totals.records;
  totals.corrupt_blobs = impl_->blobs.damaged();
  totals.bytes = impl_->totals.blob_bytes;
  totals.stored_bytes = impl_->totals.bytes;
  totals.max_bytes = impl_->options.max_bytes;
  totals.evicted = impl_->evicted_programs;
  const Spool::Waiting waiting = impl_->writes.waiting();
  totals.spooled = waiting.programs + waiting.kernels;
  totals.spooled_bytes = waiting.bytes;
  return totals;
}

}  // namespace kiln
