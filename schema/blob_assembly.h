// BlobAssembly: the receiver's side of a BlobRequest. It puts chunks together, checks digests, and
// says how much credit to give back. It holds the requested blobs only, each up to kMaxBlobBytes.
#pragma once

#include <string>
#include <unordered_map>
#include <vector>

#include "schema/messages.h"

namespace kiln {

class BlobAssembly {
 public:
  explicit BlobAssembly(const std::vector<Digest>& wanted);

  // Takes one reply. Returns the credit to give back now, 0 while it is little.
  // kInvalidArgument: a blob nobody asked for, or chunks out of order.
  Result<int64_t> add(BlobReply&& reply);
  bool done() const { return done_; }
  // Null when the coordinator has no such blob, or its bytes have another digest.
  const std::string* find(const Digest& digest) const;

 private:
  struct Blob {
    std::string bytes;
    bool whole = false;
  };
  std::unordered_map<Digest, Blob> blobs_;
  int64_t consumed_ = 0;  // since credit was given back
  bool done_ = false;
};

}  // namespace kiln
