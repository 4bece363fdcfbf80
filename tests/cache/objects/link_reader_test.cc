#include "cache/objects/link_reader.h"

#include <gtest/gtest.h>

#include "tests/cache/objects/faulty_server.h"

namespace kiln {
namespace {

using testing::FaultyServer;
using Reply = FaultyServer::Reply;
using Ms = std::chrono::milliseconds;

// What it answers is in the path.
Reply answer(const FaultyServer::Request& request) {
  const auto asks = [&](const char* path) { return request.head.starts_with(path); };
  if (asks("GET /good")) return FaultyServer::reply(200, "bytes");
  if (asks("GET /large")) return FaultyServer::reply(200, std::string(101, 'x'));
  if (asks("GET /moved"))
    return FaultyServer::reply(302, "", "location: http://127.0.0.1:1/good\r\n");
  if (asks("GET /half"))
    return {"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf", Reply::Then::kClose};
  if (asks("GET /stalls")) return {"", Reply::Then::kStall};
  return FaultyServer::error(403, "AccessDenied");
}

TEST(LinkReader, ReadsWhatIsThereAndSaysOfTheRestThatItIsNot) {
  const FaultyServer server(answer);
  LinkReader reader("", 100);
  const auto at = [&](const char* path) { return server.endpoint() + path; };
  const auto bodies = reader.read({at("/good"), at("/denied"), at("/large"), at("/half"),
                                   at("/moved"), "file:///etc/hostname", at("/good?again")},
                                  Ms(60'000));
  ASSERT_EQ(bodies.size(), 7u);
  EXPECT_EQ(bodies[0].value_or(""), "bytes");
  EXPECT_EQ(bodies[6].value_or(""), "bytes");
  EXPECT_EQ(bodies[1].error().code, Code::kUnavailable) << bodies[1].error().message;
  EXPECT_EQ(bodies[2].error().code, Code::kUnsupported);
  EXPECT_EQ(bodies[3].error().code, Code::kUnavailable);
  EXPECT_EQ(bodies[4].error().code, Code::kUnavailable) << "no redirect is followed";
  EXPECT_FALSE(bodies[5]) << "only HTTP";
}

TEST(LinkReader, OneThatStallsEndsWithTheTime) {
  const FaultyServer server(answer);
  LinkReader reader("", 100);
  std::string good;
  // For longer where what does not stall took longer.
  for (Ms given(300); given < Ms(100'000) && good.empty(); given *= 4) {
    const auto bodies =
        reader.read({server.endpoint() + "/stalls", server.endpoint() + "/good"}, given);
    EXPECT_EQ(bodies[0].error().code, Code::kDeadlineExceeded);
    good = bodies[1].value_or("");
  }
  EXPECT_EQ(good, "bytes");
}

TEST(LinkReader, NothingIsReadOfNothing) {
  EXPECT_TRUE(LinkReader("", 100).read({}, Ms(1)).empty());
}

}  // namespace
}  // namespace kiln
