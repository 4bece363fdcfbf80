#include "schema/blob_assembly.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

BlobReply reply_of(std::vector<BlobChunk> chunks, bool last = false) {
  return {1, std::move(chunks), {}, last};
}

TEST(BlobAssembly, PutsChunksTogetherAndChecksTheDigest) {
  const std::string text = "one blob in three chunks";
  const Digest digest = Digest::of(text), wrong = Digest::of("another");
  BlobAssembly blobs({digest, wrong});
  const auto total = static_cast<int64_t>(text.size());
  ASSERT_TRUE(blobs.add(reply_of({{digest, 0, total, text.substr(0, 10)}})).has_value());
  EXPECT_EQ(blobs.find(digest), nullptr);
  ASSERT_TRUE(
      blobs.add(reply_of({{digest, 10, total, text.substr(10)}, {wrong, 0, 3, "abc"}}, true))
          .has_value());
  EXPECT_TRUE(blobs.done());
  ASSERT_NE(blobs.find(digest), nullptr);
  EXPECT_EQ(*blobs.find(digest), text);
  EXPECT_EQ(blobs.find(wrong), nullptr);
}

TEST(BlobAssembly, TakesAnEmptyBlob) {
  const Digest digest = Digest::of("");
  BlobAssembly blobs({digest});
  ASSERT_TRUE(blobs.add(reply_of({{digest, 0, 0, ""}}, true)).has_value());
  ASSERT_NE(blobs.find(digest), nullptr);
}

TEST(BlobAssembly, RefusesWhatNobodyAskedForAndChunksOutOfOrder) {
  const Digest digest = Digest::of("x");
  BlobAssembly blobs({digest});
  EXPECT_FALSE(blobs.add(reply_of({{Digest::of("y"), 0, 1, "y"}})).has_value());
  EXPECT_FALSE(blobs.add(reply_of({{digest, 5, 10, "y"}})).has_value());
}

TEST(BlobAssembly, GivesCreditBackForWhatItTook) {
  const Digest digest = Digest::of("x");
  BlobAssembly blobs({digest});
  int64_t credit = 0, sent = 0;
  for (int i = 0; i < 64; ++i) {
    const std::string bytes(128 << 10, 'x');
    const auto added = blobs.add(reply_of({{digest, sent, 64 * (128 << 10), bytes}}));
    ASSERT_TRUE(added.has_value());
    sent += static_cast<int64_t>(bytes.size());
    credit += *added;
    EXPECT_LT(sent - credit, kBlobWindowBytes / 2) << "the sender would wait";
  }
  EXPECT_LE(credit, sent);
}

}  // namespace
}  // namespace kiln
