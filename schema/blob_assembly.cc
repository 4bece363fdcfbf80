#include "schema/blob_assembly.h"

#include <utility>

namespace kiln {

BlobAssembly::BlobAssembly(const std::vector<Digest>& wanted) {
  for (const Digest& digest : wanted) blobs_[digest];
}

Result<int64_t> BlobAssembly::add(BlobReply&& reply) {
  for (BlobChunk& chunk : reply.chunks) {
    const auto found = blobs_.find(chunk.digest);
    if (found == blobs_.end()) return fail(Code::kInvalidArgument, "a blob that nobody asked for");
    Blob& blob = found->second;
    if (chunk.offset == 0) blob = {};  // asked for twice, or begun anew
    if (chunk.offset != static_cast<int64_t>(blob.bytes.size()) || blob.whole)
      return fail(Code::kInvalidArgument, "a chunk out of order");
    consumed_ += static_cast<int64_t>(chunk.bytes.size());
    if (blob.bytes.empty()) {
      blob.bytes = std::move(chunk.bytes);
    } else {
      blob.bytes += chunk.bytes;
    }
    if (static_cast<int64_t>(blob.bytes.size()) == chunk.total)
      blob.whole = Digest::of(blob.bytes) == chunk.digest;
  }
  done_ = done_ || reply.last;
  return consumed_ < kBlobWindowBytes / 4 || done_ ? 0 : std::exchange(consumed_, 0);
}

const std::string* BlobAssembly::find(const Digest& digest) const {
  const auto found = blobs_.find(digest);
  return found == blobs_.end() || !found->second.whole ? nullptr : &found->second.bytes;
}

}  // namespace kiln
