// What a coordinator stores and hands out, also when its disk is damaged or full.
#include <sys/resource.h>

#include <csignal>
#include <fstream>

#include "tests/coordinator/service/service_fixture.h"

namespace kiln {
namespace {

TEST_F(ServiceTest, LargeAnswersComeInPiecesAndAbsentBlobsAreNamed) {
  FakeWorkerOptions large = worker_named("large");
  large.binary_bytes = 700'000;
  const FakeWorker worker(endpoint(), tally_, large);
  TestClient client(endpoint());
  std::vector<Digest> digests = {Digest::of("absent")};
  for (int constant = 3; constant < 7; ++constant) {
    const CompileReply reply = client.compile(test_graph(constant));
    ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
    digests.push_back(program_of(reply).kernels.at(0).blob);
  }
  int pieces = 0;
  const auto reply = client.fetch(digests, &pieces);
  EXPECT_GT(pieces, 1);
  ASSERT_EQ(reply.blobs.size(), 4u);
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(Digest::of(reply.blobs[i]), digests[i + 1]);
  EXPECT_EQ(reply.missing, std::vector<Digest>{digests[0]});
}

TEST_F(ServiceTest, ABlobWithOneBitFlippedIsMissingAndMadeAgain) {
  Program before;
  {
    const FakeWorker worker(endpoint(), tally_);
    before = program_of(TestClient(endpoint()).compile(test_graph(3)));
  }
  service_.reset();
  for (const Path& file : stored_blobs()) {
    std::string bytes = *read_file(file);
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
    std::filesystem::permissions(file, std::filesystem::perms::owner_all);
    ASSERT_TRUE(write_file(file, bytes));
  }
  start();
  const FakeWorker worker(endpoint(), tally_);
  TestClient client(endpoint());
  for (int i = 0; i < 3; ++i)  // found on disk, in memory, and known by its words
    EXPECT_EQ(*client.compile(test_graph(3)).outcome, CacheOutcome::kHit);
  EXPECT_EQ(client.fetch(blobs_of(before)).missing, blobs_of(before));
  const CompileReply again = client.compile(test_graph(3));
  ASSERT_TRUE(again.outcome.has_value()) << again.outcome.error().message;
  EXPECT_EQ(*again.outcome, CacheOutcome::kTuned);
  EXPECT_EQ(client.fetch(blobs_of(program_of(again))).blobs.size(), 1u);
  EXPECT_GE(client.stats().corrupt_blobs, 1);
}

// No file may grow beyond `bytes` while the object lives: to whoever writes, a full disk.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) : old_handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &old_);
    const rlimit limit{bytes, old_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  ~FullDisk() {
    setrlimit(RLIMIT_FSIZE, &old_);
    std::signal(SIGXFSZ, old_handler_);
  }

 private:
  void (*const old_handler_)(int);
  rlimit old_{};
};

TEST_F(ServiceTest, AFullDiskStillReturnsTheProgramAndItsBlobs) {
  FakeWorkerOptions large = worker_named("large");
  large.binary_bytes = 2 << 20;
  const FakeWorker worker(endpoint(), tally_, large);
  TestClient client(endpoint());
  {
    const FullDisk full(1 << 20);
    const CompileReply reply = client.compile(test_graph(3));
    ASSERT_TRUE(reply.outcome.has_value()) << reply.outcome.error().message;
    EXPECT_EQ(*reply.outcome, CacheOutcome::kTuned);
    EXPECT_TRUE(reply.memory_only);
    EXPECT_EQ(client.fetch(blobs_of(program_of(reply))).blobs.size(), 1u);
    EXPECT_GE(client.stats().store_failures, 1);
    const CompileReply again = client.compile(test_graph(3));
    ASSERT_TRUE(again.outcome.has_value()) << again.outcome.error().message;
    EXPECT_EQ(*again.outcome, CacheOutcome::kHit) << "from memory: not tuned for each who asks";
    EXPECT_TRUE(again.memory_only);
    EXPECT_EQ(client.fetch(blobs_of(program_of(again))).blobs.size(), 1u);
  }
  const CompileReply later = client.compile(test_graph(3));
  ASSERT_TRUE(later.outcome.has_value()) << later.outcome.error().message;
  EXPECT_TRUE(later.memory_only) << "nobody has stored it since";
  EXPECT_EQ(*client.compile(test_graph(3)).outcome, CacheOutcome::kHit);
}

}  // namespace
}  // namespace kiln
