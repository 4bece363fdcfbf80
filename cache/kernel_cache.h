// KernelCache: a Store on one machine's disk, with no set-up: index rows in SQLite, blobs in a folder
// beside it. One writer thread with group commit; reads are answered on the caller's thread, at
// once. Layout of `directory`: index.sqlite, blobs/, lock.
//
// Its size has an optional bound. Above it, the least recently used programs are evicted, each with
// the kernels and blobs that no other program needs. Tuning records stay. Kernels and blobs of a
// stored program are never evicted before it, and a pinned program never is. The size stays within
// the bound: room is made before a write, and a write that finds none is refused.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "cache/blob_store.h"
#include "cache/store.h"

namespace kiln {

struct CacheOptions {
  int64_t max_bytes = 0;  // of programs, kernels and blobs; 0: unbounded
  // Entries used within this time are not evicted: a client may be about to need them.
  int64_t keep_used_ms = 10 * 60'000;
  int64_t index_memory_bytes = int64_t{64} << 20;  // index pages in the writer's memory
  int64_t touch_every_ms = 60'000;                 // how often access times are written
  int64_t orphans_after_ms = 3'600'000;            // age at which files without a row are removed
  bool sweeps = true;                              // look for such files
  // open() sets a damaged index aside and starts empty; else it answers kCorruption and touches
  // nothing.
  bool refuse_damaged = false;
  // collect() removes files that were set aside (damaged.h) at this age.
  int64_t keep_damaged_ms = int64_t{7} * 24 * 3'600'000;
  std::function<int64_t()> now_ms;       // wall clock; empty: the system's
  std::function<void(std::string)> log;  // lines for the operator; from any thread
  // Called with the programs evicted, on the writer's thread: memory must not serve them any more.
  std::function<void(std::vector<Digest>)> evicted;
};

class KernelCache final : public Store {
 public:
  // kUnavailable while another process holds the directory.
  static Result<std::unique_ptr<KernelCache>> open(const Path& directory,
                                                   CacheOptions options = {});
  ~KernelCache() override;
  // The damaged index that open() set aside: the cache then starts empty.
  const std::string& warning() const override;

  // As look_up_*, without a callback.
  Result<std::string> program(const Digest& program_key);  // the manifest
  Result<StoredProgram> program_and_audience(const Digest& program_key);
  // kCorruption also for a file that the disk does not give when it is asked twice: what lies there
  // is lost, and a put replaces it.
  Result<std::string> blob(const Digest& digest);
  // Waits until the first sweep and the check of a large index are over. For tests.
  void wait_for_first_round();
  static int64_t index_memory_bytes();  // memory of all indexes in this process

  void look_up_program(const Digest& program_key, Then<StoredProgram> then) override;
  void look_up_blob(const Digest& digest, Then<std::string> then) override;
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
  void list_records(RecordQuery wanted, Then<RecordList> then) override;
  void flush() override;
  Result<ProgramList> list_programs(const ProgramQuery& wanted) override;
  Result<ListedProgram> listed_program(const Digest& program_key) override;
  Result<StoredKernel> listed_kernel(const Digest& kernel_key) override;
  void list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) override;
  Totals totals() const override;  // of now; costs one look-up at any size

 private:
  struct Impl;
  explicit KernelCache(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace kiln
