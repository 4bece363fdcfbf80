// Spool: binaries, kernels and programs that were put while the store was away, on this machine's
// disk until they can go up: durable, bounded, and found again after kill -9. A row stands in it
// only while its binaries do, unless they were stored before. Thread-safe.
//
//   blobs/ab/abcd...     a binary, as BlobStore keeps it
//   kernels/KEY          one line `kiln-spool 1 EPOCH SEAL BYTES`, then a text of so many bytes
//   programs/KEY         and another to the end of the file. Of a kernel: kernel_to_text and
//                        target_to_text; of a program: its manifest and Audience::to_text
//
// EPOCH is the term's that it was put in; SEAL is the row's (sealed_rows.h). A file that does not
// match its seal or its digest is removed when it is noticed, and what it held is tuned again.
#pragma once

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "cache/blob_store.h"
#include "cache/store.h"

namespace kiln {

class Spool {
 public:
  // Reads what is there. `folder`: this process's alone. `log`: lines for the operator.
  static Result<std::unique_ptr<Spool>> open(Path folder, int64_t max_bytes,
                                             std::function<void(std::string)> log);

  // Durable on return. kUnavailable: it is full, or the disk is. Those of rows replace what stood
  // under the key.
  Status add_blob(const Digest& digest, std::string_view bytes);
  Status add(const StoredKernel& kernel, uint64_t epoch);
  Status add(const Program& program, const Audience& audience, uint64_t epoch);

  // kNotFound, also of what turned out damaged.
  Result<std::string> blob(const Digest& digest);
  Result<StoredKernel> kernel(const Digest& key);
  struct WaitingProgram {
    Program program;
    StoredProgram stored;
  };
  Result<WaitingProgram> program(const Digest& key);
  bool has_blob(const Digest& digest) const;
  bool has_any_blob(const std::vector<Digest>& digests) const;

  struct Row {
    Digest key;
    bool is_program = false;
    uint64_t epoch = 0;
    std::vector<Digest> blobs;
    int64_t bytes = 0;
    bool is_of_before = false;  // put before this process started
    bool is_overtaken = false;  // a later put of the key is being written to the store
  };
  // Kernels first, since programs need them.
  std::vector<Row> rows() const;
  // Says that a later put of the row is on its way to the store, or that it failed.
  void set_overtaken(const Digest& key, bool is_overtaken);
  // Whether it is here, and no later put of it is on its way.
  bool is_latest(const Digest& key) const;
  // Drops the row of this key, and binaries that no row needs any more; ok when there is none.
  void drop(const Digest& key);
  // Drops binaries that no row was put for within `patience`.
  void drop_unneeded(std::chrono::milliseconds patience);

  // The kernels of the programs that `what` names, of those that wait here.
  std::vector<Digest> kernels_of(const std::vector<Digest>& programs);
  // The rows that wait and are meant: `kernels` are those that the store found. Where a time is
  // said, all that the worker or key ever reported is meant: rows here are few, and are tuned again.
  TakenBack would_take_back(const TakeBack& what, const std::vector<Digest>& kernels);

  struct Waiting {
    int64_t programs = 0, kernels = 0;
    int64_t bytes = 0;  // of all files
  };
  Waiting waiting() const;

 private:
  struct Blob {
    int64_t bytes = 0;
    int named_by = 0;  // rows
    std::chrono::steady_clock::time_point added{};
  };
  Spool(Path folder, int64_t max_bytes, std::unique_ptr<BlobStore> blobs,
        std::function<void(std::string)> log);
  void scan();
  void scan_rows(bool programs);
  Path file_of(bool is_program, const Digest& key) const;
  Result<std::string> read(bool is_program, const Digest& key) const;
  Status write(Row row, std::string_view seal, std::string_view first, std::string_view second);
  void insert(Row row);
  void forget_row(std::map<Digest, Row>::iterator row);
  void forget_damaged(bool is_program, const Digest& key);
  // Removes the binary and its file; the iterator after it.
  std::map<Digest, Blob>::iterator drop_blob(std::map<Digest, Blob>::iterator blob);
  bool has_room(int64_t bytes) const { return bytes_ + bytes <= max_bytes_; }

  const Path folder_;
  const int64_t max_bytes_;
  const std::unique_ptr<BlobStore> store_;
  const std::function<void(std::string)> log_;

  mutable std::mutex mu_;
  std::map<Digest, Row> rows_;    // guarded by mu_; keys of both kinds are digests
  std::map<Digest, Blob> blobs_;  // guarded by mu_
  int64_t bytes_ = 0;             // guarded by mu_
};

}  // namespace kiln
