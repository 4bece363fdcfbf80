// Who may read the page, and who may act on it.
#include "coordinator/page/viewer.h"

#include <gtest/gtest.h>

#include "schema/keys/page_token.h"

namespace kiln::page {
namespace {

HttpRequest request(std::string peer, std::vector<std::pair<std::string, std::string>> headers) {
  HttpRequest made{"GET", "/", ""};
  made.peer = std::move(peer);
  made.headers = std::move(headers);
  return made;
}

class ViewerTest : public ::testing::Test {
 protected:
  ViewerTest() : dir_(*TempDir::create("kiln-viewer")) {
    server_ = ensure_server_keys(dir_.path())->public_key;
    for (const Grant grant : {Grant::kRead, Grant::kWorker, Grant::kAdmin}) {
      ClientKey& key = keys_[grant];
      key.name = std::string(to_string(grant));
      key.grant = grant;
      key.pair = make_key_pair();
      key.server_key = server_;
      EXPECT_TRUE(authorize(dir_.path(), {grant, key.name, key.pair.public_key}).has_value());
    }
    ring_ = *Keyring::open(dir_.path());
  }
  std::string token(Grant of, Grant grant, int64_t until_s = kNow + 60) {
    const auto made = make_page_token(keys_[of], grant, until_s);
    EXPECT_TRUE(made.has_value()) << made.error().message;
    return made.value_or("");
  }
  Result<Viewer> from_afar(const std::string& token) const {
    return viewer_of(
        request("10.0.0.7", {{"host", "kiln:9557"}, {"cookie", "a=b; kiln_page=" + token}}),
        ring_.get(), kNow);
  }

  static constexpr int64_t kNow = 1'000'000;
  const TempDir dir_;
  std::string server_;
  std::map<Grant, ClientKey> keys_;
  std::shared_ptr<Keyring> ring_;
};

TEST_F(ViewerTest, BeyondLoopbackNobodyReadsWithoutAToken) {
  EXPECT_FALSE(viewer_of(request("10.0.0.7", {{"host", "kiln"}}), ring_.get(), kNow).has_value());
  EXPECT_FALSE(viewer_of(request("10.0.0.7", {}), nullptr, kNow).has_value())
      << "nor where there are no keys";
  const auto reader = from_afar(token(Grant::kRead, Grant::kRead));
  ASSERT_TRUE(reader.has_value()) << reader.error().message;
  EXPECT_EQ(reader->user.name, "read");
  EXPECT_EQ(reader->user.grant, Grant::kRead);
  const auto bearer = viewer_of(
      request("10.0.0.7", {{"authorization", "Bearer " + token(Grant::kAdmin, Grant::kAdmin)}}),
      ring_.get(), kNow);
  ASSERT_TRUE(bearer.has_value());
  EXPECT_EQ(bearer->user.grant, Grant::kAdmin);
}

TEST_F(ViewerTest, ATokenAllowsWhatItSaysAndItsKeyHas) {
  EXPECT_EQ(from_afar(token(Grant::kAdmin, Grant::kRead))->user.grant, Grant::kRead);
  EXPECT_FALSE(make_page_token(keys_[Grant::kRead], Grant::kAdmin, kNow).has_value());
  EXPECT_FALSE(make_page_token(keys_[Grant::kWorker], Grant::kRead, kNow).has_value());
  ClientKey liar = keys_[Grant::kRead];
  liar.grant = Grant::kAdmin;  // its file says so; the coordinator's list does not
  EXPECT_FALSE(from_afar(*make_page_token(liar, Grant::kAdmin, kNow + 60)).has_value());
}

TEST_F(ViewerTest, ATokenEndsWithItsTimeAndWithItsKey) {
  const std::string ended = token(Grant::kRead, Grant::kRead, kNow - 1);
  EXPECT_NE(from_afar(ended).error().message.find("ended"), std::string::npos);
  const std::string good = token(Grant::kRead, Grant::kRead);
  ASSERT_TRUE(from_afar(good).has_value());
  ASSERT_TRUE(revoke(dir_.path(), "read").has_value());
  ASSERT_TRUE(ring_->refresh().has_value());
  EXPECT_FALSE(from_afar(good).has_value());
}

TEST_F(ViewerTest, AnAlteredTokenIsNone) {
  const std::string good = token(Grant::kRead, Grant::kRead);
  for (size_t i = 0; i < good.size(); ++i) {
    std::string altered = good;
    altered[i] = altered[i] == '1' ? '2' : '1';  // always another
    EXPECT_FALSE(from_afar(altered).has_value()) << i;
  }
  EXPECT_FALSE(from_afar(good + "0").has_value());
  EXPECT_FALSE(from_afar(good + ".").has_value());
  EXPECT_FALSE(from_afar(good.substr(0, good.size() - 1)).has_value());
  EXPECT_FALSE(from_afar("kiln1....").has_value());
  EXPECT_FALSE(from_afar(std::string(5000, '.')).has_value());
}

TEST_F(ViewerTest, ThisMachineReadsAndActsWhereThereAreNoKeys) {
  for (const char* host : {"127.0.0.1:9557", "localhost:9557", "[::1]:9557", "localhost"}) {
    EXPECT_EQ(viewer_of(request("127.0.0.1", {{"host", host}}), nullptr, kNow)->user.grant,
              Grant::kAdmin);
    EXPECT_EQ(viewer_of(request("::1", {{"host", host}}), ring_.get(), kNow)->user.grant,
              Grant::kRead)
        << "with keys, acting takes one";
  }
}

TEST_F(ViewerTest, ASiteWhoseNameLeadsHereIsNotThisMachine) {
  EXPECT_FALSE(
      viewer_of(request("127.0.0.1", {{"host", "evil.example:9557"}}), nullptr, kNow).has_value());
  EXPECT_FALSE(viewer_of(request("127.0.0.1", {{"host", "127.0.0.1.evil.example"}}), nullptr, kNow)
                   .has_value());
}

TEST_F(ViewerTest, WhatAProxyForwardsIsNotThisMachine) {
  for (const char* header : {"x-forwarded-for", "forwarded", "x-real-ip", "via"})
    EXPECT_FALSE(viewer_of(request("127.0.0.1", {{"host", "127.0.0.1"}, {header, "10.0.0.7"}}),
                           nullptr, kNow)
                     .has_value())
        << header;
}

TEST_F(ViewerTest, FormsComeFromThisPage) {
  const auto is_own = [](std::vector<std::pair<std::string, std::string>> headers) {
    headers.emplace_back("host", "kiln:9557");
    return is_same_origin(request("", std::move(headers)));
  };
  EXPECT_TRUE(is_own({{"origin", "http://kiln:9557"}, {"sec-fetch-site", "same-origin"}}));
  EXPECT_TRUE(is_own({})) << "no browser";
  EXPECT_FALSE(is_own({{"origin", "http://evil.example"}}));
  EXPECT_FALSE(is_own({{"origin", "null"}}));
  EXPECT_FALSE(is_own({{"sec-fetch-site", "cross-site"}}));
}

}  // namespace
}  // namespace kiln::page
