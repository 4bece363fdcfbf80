#include "coordinator/hit_reply.h"

#include <gtest/gtest.h>

#include "schema/codec.h"

namespace kiln {
namespace {

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

}  // namespace
}  // namespace kiln
