// A store written out, and read in again: `kiln cache export` and `import`. Every row is read with
// its seal and every binary with its digest. Free functions; they take as long as the store is large.
#pragma once

#include "cache/store.h"
#include "cache/transfer/store_source.h"

namespace kiln {

struct Exported {
  ExportFacts facts;
  int64_t written_blobs = 0, written_bytes = 0;  // the others were there from an earlier export
  int64_t read_back = 0;                         // binaries: a sample, read back and compared
};

// Writes the store in `source` out to `to`, beside what an earlier export left there: binaries that
// are there are not written again. The export before it is good until this one is whole.
// kCorruption: what was read back is not what was written; errors of both stores.
Result<Exported> export_store(StoreSource& source, ObjectStore& to,
                              const TransferProgress& progress = {});

struct Imported {
  int64_t programs = 0, kernels = 0;  // taken over
  int64_t blobs = 0, records = 0;     // read; what the store has already it keeps once
  int64_t bytes = 0;                  // of blobs
  int64_t present = 0;     // programs and kernels that the store had already: its own stay
  int64_t revoked = 0;     // programs and kernels that the store once took back: left out
  int64_t incomplete = 0;  // programs and kernels whose binaries are gone or damaged: left out
  int64_t damaged = 0;     // rows of `source` that do not match their seals: left out
};

// Makes a store in `directory`, which holds none, of all that is in `source`, as it was: revocations,
// last uses and pins too. kInvalidArgument: there is a store; kUnavailable: a coordinator serves the
// directory, or a full disk.
Result<Imported> restore_store(StoreSource& source, const Path& directory,
                               const TransferProgress& progress = {});

// Adds to `into` what it lacks: binaries, kernels, programs with their audiences, pins, records, and
// what finds winners of other sizes. Revocations of `source` are not taken over; those of `into`
// hold. Reads every row back in the end, and a sample of the binaries. kCorruption: what was read
// back is bad; kUnavailable.
Result<Imported> merge_store(StoreSource& source, Store& into,
                             const TransferProgress& progress = {});

}  // namespace kiln
