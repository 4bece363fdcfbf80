// PostgresStore: a Store that outlives machines: rows in PostgreSQL, blobs in an ObjectStore. One
// writer, with a connection of its own and group commit; look-ups on two threads, which gather what
// waits; other reads on connections of up to four. It connects again by itself: while PostgreSQL or
// the object store is away, what needs it is kUnavailable, and nothing else happens.
//
// One coordinator at a time writes: it holds the term (term.h), without which open() waits and then
// fails, and every transaction is fenced by it. Its bound, pins and eviction are KernelCache's, but
// that the last use counts by the hour, and that the object of a blob that nothing needs stays for
// an hour more.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "cache/objects/object_store.h"
#include "cache/offer_table.h"
#include "cache/store.h"
#include "compiler_core/base/file.h"

namespace kiln {

struct PostgresStoreOptions {
  int64_t max_bytes = 0;  // of programs, kernels and blobs; 0: unbounded
  int64_t keep_used_ms = 10 * 60'000;
  int64_t touch_every_ms = 60'000;  // how often access times are written
  int64_t sweep_every_ms = 60'000;  // how often objects that nothing needs are looked for
  int64_t doomed_s = 3600;          // how long they stay
  // How long the place of an object must have said that it is not there, or have given other bytes
  // than were put, and give others right, until what needs it is forgotten. Before that the blob is
  // kUnavailable.
  std::chrono::milliseconds believed_after{10 * 60'000};
  // How long open() waits for the term of another coordinator, which lasts for 5 s after its death.
  std::chrono::milliseconds wait_for_term{10'000};
  // A standby's open() waits for as long as this says; empty: wait_for_term.
  std::function<bool()> stands_by{};
  Path copies{};                         // folder of copies of binaries, on this machine's disk
  int64_t copies_bytes = 0;              // their bound; 0: none are kept
  Path spool{};                          // folder of what waits for the store (spool.h)
  int64_t spool_bytes = 0;               // its bound; 0: nothing is spooled
  std::string address{};                 // where this coordinator is, for people
  std::function<int64_t()> now_ms;       // wall clock; empty: the system's
  std::function<void(std::string)> log;  // lines for the operator; from any thread
  // Called with the programs evicted, on the writer's thread.
  std::function<void(std::vector<Digest>)> evicted;
  // Called once, on any thread, when another coordinator has taken the term.
  std::function<void()> lost;
};

class PostgresStore final : public Store {
 public:
  // `url`: postgresql://... . Makes the tables of an empty database. kUnavailable: PostgreSQL does not
  // answer, or another coordinator writes this store; kUnsupported: another build's tables.
  static Result<std::unique_ptr<PostgresStore>> open(const std::string& url,
                                                     std::unique_ptr<ObjectStore> objects,
                                                     PostgresStoreOptions options = {});
  ~PostgresStore() override;  // after every write, and gives the term up
  // Greater than that of every earlier holder of the term.
  uint64_t epoch() const;
  OfferTable& offers();  // lives as long as this

  const std::string& warning() const override;
  std::string away() const override;
  void look_up_program(const Digest& program_key, Then<StoredProgram> then) override;
  void look_up_blob(const Digest& digest, Then<std::string> then) override;
  void look_up_link(const Digest& digest, Then<std::string> then) override;
  Result<StoredKernel> kernel(const Digest& kernel_key) override;
  Result<std::vector<TuningRecord>> records(const Digest& kernel_key) override;
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload) override;
  Result<std::vector<Schedule>> nearest_winners(const ShapeGenericKey& key) override;
  Result<std::vector<Revocation>> revocations() override;
  void touch(const Digest& program_key) override;
  void touch_kernel(const Digest& kernel_key) override;
  void put_blob(std::string bytes, Done done) override;
  void put_kernel(StoredKernel kernel, Done done) override;
  void put_program(const Program& program, Done done, const Audience& audience = {}) override;
  void put_record(TuningRecord record, Done done) override;
  void put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done) override;
  void forget(const Digest& key, Done done) override;
  void take_back(TakeBack what, int64_t through, TookBack done, const Noted& act = {}) override;
  void would_take_back(TakeBack what, TookBack done) override;
  void pin(const Digest& program_key, Done done, const Noted& act = {}) override;
  void unpin(const Digest& program_key, Done done, const Noted& act = {}) override;
  void note(AdminAct act, Done done) override;
  void collect(int64_t max_bytes, std::function<void(Collected, Status)> done) override;
  void count_programs_not_of(const Digest& stamp, Then<int64_t> done) override;
  void flush() override;
  Result<ProgramList> list_programs(const ProgramQuery& wanted) override;
  Result<ListedProgram> listed_program(const Digest& program_key) override;
  Result<StoredKernel> listed_kernel(const Digest& kernel_key) override;
  void list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) override;
  Result<std::set<Digest>> whole_programs(const std::vector<Digest>& keys) override;
  Result<std::set<Digest>> whole_kernels(const std::vector<Digest>& keys) override;
  void list_records(RecordQuery wanted, Then<RecordList> then) override;
  Totals totals() const override;

  // Removes the objects of blobs whose time is over, and waits for it. For tests: it happens by
  // itself.
  void sweep();

 private:
  struct Impl;
  explicit PostgresStore(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
