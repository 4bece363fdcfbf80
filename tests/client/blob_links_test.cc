// A coordinator played by hand that hands out links: what they lead to is checked, and what cannot be
// had so is asked for again.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>

#include "client/remote.h"
#include "tests/client/scripted_service.h"

namespace kiln {
namespace {

using Urls = std::vector<std::string>;
using Bodies = std::vector<Result<std::string>>;

const std::string kOne = "one", kTwo = "two";

class BlobLinks : public ::testing::Test {
 protected:
  Result<Remote::Blobs> fetch(Remote::LinkReader reader) {
    Remote remote(service_.endpoint(), std::chrono::seconds(60));
    remote.read_links_with(std::move(reader));
    return fetch_with(remote);
  }
  static Result<Remote::Blobs> fetch_with(Remote& remote) {
    return remote.fetch({Digest::of(kOne), Digest::of(kTwo)},
                        Remote::Clock::now() + std::chrono::seconds(60));
  }
  const std::string& endpoint() const { return service_.endpoint(); }
  // Whether each request allowed links, in order.
  std::vector<bool> asked() {
    const std::scoped_lock lock(mu_);
    return asked_;
  }
  static Bodies good(const Urls& urls) {
    Bodies bodies;
    for (const std::string& url : urls) bodies.emplace_back(url.substr(url.rfind('/') + 1));
    return bodies;
  }

 private:
  // Links to all that it is asked for by whoever can read them, else the bytes.
  void answer(Listener& listener, const Received& received) {
    const auto* request = std::get_if<BlobRequest>(&received.message);
    if (request == nullptr) return;
    BlobReply reply;
    reply.request = request->request;
    for (const std::string& blob : {kOne, kTwo}) {
      const Digest digest = Digest::of(blob);
      if (std::ranges::find(request->digests, digest) == request->digests.end()) continue;
      if (request->links_ok)
        reply.links.push_back({digest, "https://far/" + blob});
      else
        reply.chunks.push_back({digest, 0, static_cast<int64_t>(blob.size()), blob});
    }
    const std::scoped_lock lock(mu_);
    asked_.push_back(request->links_ok);
    listener.send(received.peer, reply);
  }

  std::mutex mu_;
  std::vector<bool> asked_;  // guarded by mu_
  testing::ScriptedService service_{
      [this](Listener& listener, const Received& received) { answer(listener, received); }};
};

TEST_F(BlobLinks, AreFollowedByWhoCanReadThem) {
  Urls read;
  const auto blobs = fetch([&](const Urls& urls, auto) {
    read = urls;
    return good(urls);
  });
  ASSERT_TRUE(blobs) << blobs.error().message;
  EXPECT_EQ(*blobs, (Remote::Blobs{kOne, kTwo}));
  EXPECT_EQ(read, (Urls{"https://far/one", "https://far/two"}));
  EXPECT_EQ(asked(), std::vector{true});
}

TEST_F(BlobLinks, AreNotAskedForWithoutAReader) {
  EXPECT_EQ(fetch({}).value(), (Remote::Blobs{kOne, kTwo}));
  EXPECT_EQ(asked(), std::vector{false});
}

TEST_F(BlobLinks, OtherBytesAreAskedForAgain) {
  const auto blobs = fetch([](const Urls& urls, auto) {
    Bodies bodies = good(urls);
    bodies[0] = "something else";
    return bodies;
  });
  EXPECT_EQ(blobs.value(), (Remote::Blobs{kOne, kTwo}));
  EXPECT_EQ(asked(), (std::vector{true, false}));
}

TEST_F(BlobLinks, AReaderThatSaysNothingOfSomeHasThemSentByTheService) {
  const auto blobs = fetch([](const Urls& urls, auto) {
    Bodies bodies = good(urls);
    bodies.pop_back();
    return bodies;
  });
  EXPECT_EQ(blobs.value(), (Remote::Blobs{kOne, kTwo}));
  EXPECT_EQ(asked(), (std::vector{true, false}));
}

TEST_F(BlobLinks, APlaceThatCannotBeReachedIsTriedOnce) {
  int tried = 0;
  Remote remote(endpoint(), std::chrono::seconds(60));
  remote.read_links_with([&](const Urls& urls, auto) {
    ++tried;
    return Bodies(urls.size(), fail(Code::kUnavailable, "nobody answers"));
  });
  for (int i = 0; i < 3; ++i) EXPECT_EQ(fetch_with(remote).value(), (Remote::Blobs{kOne, kTwo}));
  EXPECT_EQ(tried, 1);
  EXPECT_EQ(asked(), (std::vector{true, false, false, false}));
}

}  // namespace
}  // namespace kiln
