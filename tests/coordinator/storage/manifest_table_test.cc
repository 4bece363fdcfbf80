#include "coordinator/storage/manifest_table.h"

#include <gtest/gtest.h>

#include "schema/codec.h"

namespace kiln {
namespace {

const std::string kSignature(64, 's');

Digest named(const std::string& name) {
  return Digest::of(name);
}

// What a client would be told.
CompileReply reply_of(HitReply* hit) {
  const auto message = decode(hit->frame(1));
  EXPECT_TRUE(message.has_value());
  return message ? std::get<CompileReply>(*message) : CompileReply{};
}

// A program whose kernels are called `kernels`; kernel "k" has blob "blob k".
Program program_of(const std::string& name, const std::vector<std::string>& kernels) {
  Program program;
  program.key = named(name);
  for (const std::string& kernel : kernels) {
    ProgramKernel entry;
    entry.key = named(kernel);
    entry.blob = named("blob " + kernel);
    program.kernels.push_back(entry);
  }
  return program;
}

TEST(HitReply, IsWhatEncodingSaysWhateverTheNumber) {
  HitReply hit("{\"manifest\": 1}", std::string(64, 's'));
  for (const uint64_t number :
       {uint64_t{0}, uint64_t{1}, uint64_t{0x0123456789abcdef}, ~uint64_t{0}, uint64_t{7}}) {
    EXPECT_EQ(hit.frame(number), encode(CompileReply{number, CacheOutcome::kHit,
                                                     "{\"manifest\": 1}", std::string(64, 's')}));
  }
}

TEST(HitReply, SaysOfWhatOnlyMemoryHasThatItMayBeGone) {
  EXPECT_EQ(HitReply("{}", "", true).frame(1),
            encode(CompileReply{1, CacheOutcome::kHit, "{}", "", true}));
}

TEST(HitReply, AlsoOfAManifestThatIsAllOnes) {
  const std::string manifest(10'000, '\xff');
  HitReply hit(manifest, "");
  const auto message = decode(hit.frame(42));
  ASSERT_TRUE(message.has_value());
  const auto& reply = std::get<CompileReply>(*message);
  EXPECT_EQ(reply.request, 42u);
  EXPECT_EQ(reply.outcome, CacheOutcome::kHit);
  EXPECT_EQ(reply.program_json, manifest);
}

TEST(ManifestTable, FindsWhatWasInserted) {
  ManifestTable table(1 << 20);
  table.insert(program_of("p", {"a"}), {"{p}", kSignature});
  ASSERT_NE(table.find(named("p")), nullptr);
  EXPECT_EQ(reply_of(table.find(named("p"))).program_json, "{p}");
  EXPECT_EQ(reply_of(table.find(named("p"))).signature, kSignature);
  EXPECT_EQ(table.find(named("q")), nullptr);
}

TEST(ManifestTable, InsertingAgainReplaces) {
  ManifestTable table(1 << 20);
  table.insert(program_of("p", {"a"}), {"{old}", kSignature});
  table.insert(program_of("p", {"b"}), {"{new}", kSignature});
  EXPECT_EQ(reply_of(table.find(named("p"))).program_json, "{new}");
  EXPECT_TRUE(table.take_users_of(named("blob a")).programs.empty());
  EXPECT_EQ(table.take_users_of(named("blob b")).programs.size(), 1u);
}

TEST(ManifestTable, TheLeastRecentlyUsedGoesFirst) {
  ManifestTable table(4'000);
  table.insert(program_of("a", {"k"}), {std::string(1'000, 'a'), kSignature});
  table.insert(program_of("b", {"k"}), {std::string(1'000, 'b'), kSignature});
  EXPECT_NE(table.find(named("a")), nullptr);
  table.insert(program_of("c", {"k"}), {std::string(1'000, 'c'), kSignature});
  EXPECT_NE(table.find(named("a")), nullptr);
  EXPECT_EQ(table.find(named("b")), nullptr);
  EXPECT_NE(table.find(named("c")), nullptr);
}

TEST(ManifestTable, WhatIsLargerThanTheTableIsNotKept) {
  ManifestTable table(4'000);
  table.insert(program_of("small", {"k"}), {"{}", kSignature});
  table.insert(program_of("large", {"k"}), {std::string(5'000, 'x'), kSignature});
  EXPECT_EQ(table.find(named("large")), nullptr);
  EXPECT_NE(table.find(named("small")), nullptr);
}

TEST(ManifestTable, ABadBlobNamesAndDropsWhatNeedsIt) {
  ManifestTable table(1 << 20);
  table.insert(program_of("p", {"shared", "own", "shared"}), {"{p}", kSignature});
  table.insert(program_of("q", {"shared"}), {"{q}", kSignature});
  table.insert(program_of("r", {"other"}), {"{r}", kSignature});
  const ManifestTable::Users users = table.take_users_of(named("blob shared"));
  EXPECT_EQ(users.programs.size(), 2u);
  EXPECT_EQ(users.kernels, std::vector<Digest>{named("shared")});
  EXPECT_EQ(table.find(named("p")), nullptr);
  EXPECT_EQ(table.find(named("q")), nullptr);
  EXPECT_NE(table.find(named("r")), nullptr);
  EXPECT_TRUE(table.take_users_of(named("blob own")).programs.empty());
}

TEST(ManifestTable, WhatTheCacheGaveUpIsForgotten) {
  ManifestTable table(1 << 20);
  table.insert(program_of("p", {"a"}), {"{p}", kSignature});
  table.remove(named("p"));
  table.remove(named("p"));
  EXPECT_EQ(table.find(named("p")), nullptr);
  EXPECT_TRUE(table.take_users_of(named("blob a")).programs.empty());
}

TEST(ManifestTable, TellsOnceWhatWasUsed) {
  ManifestTable table(4'000);
  for (const char* name : {"a", "b", "c"})
    table.insert(program_of(name, {"k"}), {"{}", kSignature});
  EXPECT_TRUE(table.take_used().empty()) << "inserting is not using";
  (void)table.find(named("b"));
  (void)table.find(named("a"));
  (void)table.find(named("a"));
  table.insert(program_of("d", {"k"}), {"{}", kSignature});
  EXPECT_EQ(table.take_used(), (std::vector<Digest>{named("a"), named("b")}));
  EXPECT_TRUE(table.take_used().empty());
  (void)table.find(named("c"));
  table.insert(program_of("large", {"k"}), {std::string(3'200, 'x'), kSignature});
  EXPECT_EQ(table.find(named("c")), nullptr) << "pushed out";
  EXPECT_EQ(table.take_used(), std::vector<Digest>{named("c")}) << "and not forgotten";
}

}  // namespace
}  // namespace kiln
