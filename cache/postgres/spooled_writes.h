// SpooledWrites: the puts of a PostgresStore. What the store cannot take because the place of its
// binaries is away, or PostgreSQL is, goes to a spool on this machine's disk, and up from there once
// both answer. Without a spool a put that fails has failed. Thread-safe.
//
// A put and what becomes of it:
//
//   put -> written to the store -> done hears ok
//        \ the binary or its row is not -> spooled -> its kernel too -> both hear ok: durable
//        |                                          \ its program too, and hears kUnavailable, since it
//        |                                            would not survive this machine
//        \ the store is full -> done hears so
//
//   a row in the spool --the objects answer--> its binaries put, the row written -> dropped from it
//                      \ a later put of its key is stored, or it is taken back -> dropped
#pragma once

#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/bounded_writer.h"
#include "cache/postgres/postgres_index.h"
#include "cache/postgres/spool.h"

namespace kiln {

using PostgresWriter = BoundedWriter<PostgresIndex, std::shared_ptr<Upload>>;

class SpooledWrites {
 public:
  // All outlive it. `spool`: null: none.
  SpooledWrites(PostgresWriter& writer, const Term& term, ObjectStore& objects,
                std::unique_ptr<Spool> spool, std::function<void(std::string)> log)
      : writer_(writer),
        term_(term),
        objects_(objects),
        spool_(std::move(spool)),
        log_(log ? std::move(log) : [](const std::string&) {}) {}

  // As Store's.
  void put_blob(std::string bytes, Store::Done done);
  void put_kernel(StoredKernel kernel, Store::Done done);
  void put_program(const Program& program, const Audience& audience, Store::Done done);
  void forget(const Digest& key, Store::Done done);
  void take_back(TakeBack what, int64_t through, Store::TookBack done, const Store::Noted& act);
  void would_take_back(TakeBack what, Store::TookBack done);

  // The row that waits here; kNotFound, also without a spool.
  Result<StoredKernel> kernel(const Digest& key) const;
  Result<std::string> blob(const Digest& digest) const;
  Result<Spool::WaitingProgram> program(const Digest& key) const;
  // The answer to a look-up for which `waiting` was here and `found` in the store's rows.
  static Result<StoredProgram> later_of(Result<Spool::WaitingProgram> waiting,
                                        Result<StoredProgram> found);
  Spool::Waiting waiting() const { return spool_ ? spool_->waiting() : Spool::Waiting{}; }

  // Drops what other coordinators took back while this one did not write. Once, before the rest.
  void drop_revoked(const std::vector<Revocation>& revoked);
  // Begins to send up what waits, unless that is under way or was tried just now. One thread's.
  void send_up();
  // Nothing new is sent from now on.
  void close() { closing_ = true; }

 private:
  struct Page;
  bool may_spool(const Status& status) const;
  bool spool(const Digest& key, const Status& added);
  void send_page();
  void send_row(const std::shared_ptr<Page>& page, const Spool::Row& row);
  Status write_row(PostgresIndex& index, const Spool::Row& row, bool& left);
  void ended(bool well);

  PostgresWriter& writer_;
  const Term& term_;
  ObjectStore& objects_;
  const std::unique_ptr<Spool> spool_;
  const std::function<void(std::string)> log_;
  std::atomic<bool> closing_{false};

  std::mutex mu_;
  bool is_sending_ = false;                       // guarded by mu_
  std::chrono::milliseconds backoff_{0};          // guarded by mu_
  std::chrono::steady_clock::time_point next_{};  // guarded by mu_
};

}  // namespace kiln
