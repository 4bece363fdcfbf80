// What every ObjectStore promises, tried on each kind of place.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <ctime>
#include <thread>

#include "cache/objects/http_client.h"
#include "tests/cache/objects/places.h"
#include "tests/cache/objects/s3_servers.h"

namespace kiln {
namespace {

using testing::S3Place;
using testing::S3Server;

struct Kind {
  const char* name;
  std::unique_ptr<Place> (*make)();  // null: what it needs is not installed
};
void PrintTo(const Kind& kind, std::ostream* out) {
  *out << kind.name;
}

class ObjectStoreContract : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    place_ = GetParam().make();
    if (place_ == nullptr)
      GTEST_SKIP() << GetParam().name << " is not installed: `ops/python servers` installs it";
    store_ = place_->open();
  }

  std::vector<std::string> names_after(const std::string& after, int limit) {
    const auto listed = list(*store_, after, limit);
    EXPECT_TRUE(listed) << listed.error().message;
    std::vector<std::string> names;
    if (!listed) return names;
    for (const ObjectInfo& object : *listed) names.push_back(object.name);
    return names;
  }

  std::unique_ptr<Place> place_;
  std::unique_ptr<ObjectStore> store_;
};

std::string every_byte(size_t size) {
  std::string bytes(size, '\0');
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(i * 31 + i / 256);
  return bytes;
}

TEST_P(ObjectStoreContract, GivesBackWhatWasPut) {
  for (const size_t size : {size_t{0}, size_t{1}, size_t{1000}, size_t{3} << 20}) {
    const std::string bytes = every_byte(size);
    ASSERT_TRUE(put(*store_, "object", bytes));
    const auto got = get(*store_, "object");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_TRUE(*got == bytes) << size << " bytes";
  }
}

TEST_P(ObjectStoreContract, WhatWasPutIsSeenByAnotherStoreOfThePlace) {
  ASSERT_TRUE(put(*store_, "a/b", "content"));
  store_.reset();
  EXPECT_EQ(get(*place_->open(), "a/b").value(), "content");
}

TEST_P(ObjectStoreContract, AnObjectIsReplacedAsAWhole) {
  ASSERT_TRUE(put(*store_, "object", std::string(5000, 'x')));
  ASSERT_TRUE(put(*store_, "object", "short"));
  EXPECT_EQ(get(*store_, "object").value(), "short");
}

TEST_P(ObjectStoreContract, WhatIsNotThereIsNotFound) {
  EXPECT_EQ(get(*store_, "never").error().code, Code::kNotFound);
  EXPECT_EQ(get(*store_, "never/put").error().code, Code::kNotFound);
  ASSERT_TRUE(put(*store_, "deep/er", "x"));
  EXPECT_EQ(get(*store_, "deep").error().code, Code::kNotFound) << "a folder is no object";
}

TEST_P(ObjectStoreContract, RemovedIsGoneAndRemovingNothingIsFine) {
  EXPECT_TRUE(remove(*store_, "never/put"));
  ASSERT_TRUE(put(*store_, "a/b", "content"));
  EXPECT_TRUE(remove(*store_, "a/b"));
  EXPECT_EQ(get(*store_, "a/b").error().code, Code::kNotFound);
  EXPECT_TRUE(remove(*store_, "a/b"));
  ASSERT_TRUE(put(*store_, "a/b", "again"));
  EXPECT_EQ(get(*store_, "a/b").value(), "again");
}

TEST_P(ObjectStoreContract, ListsInTheOrderOfNamesFromAnyPlaceInPages) {
  EXPECT_TRUE(list(*store_, "")->empty());
  const std::vector<std::string> names = {"A",       "B.c",   "a/b",  "a/b.c",
                                          "a/c/d/e", "a/d-1", "a0/x", "b_"};
  for (const std::string& name : names)
    ASSERT_TRUE(put(*store_, name, std::string(name.size(), 'x'))) << name;
  EXPECT_EQ(names_after("", ObjectStore::kMaxListed), names);
  for (size_t i = 0; i < names.size(); ++i) {
    const std::vector<std::string> rest(names.begin() + static_cast<int64_t>(i) + 1, names.end());
    EXPECT_EQ(names_after(names[i], ObjectStore::kMaxListed), rest) << "after " << names[i];
  }
  for (const int limit : {1, 3, 10}) {
    std::vector<std::string> all;
    for (std::string after;;) {
      const auto page = names_after(after, limit);
      EXPECT_LE(page.size(), static_cast<size_t>(limit));
      all.insert(all.end(), page.begin(), page.end());
      if (page.size() < static_cast<size_t>(limit)) break;
      after = page.back();
    }
    EXPECT_EQ(all, names) << "in pages of " << limit;
  }
  const std::vector<std::string> between = {"a/c/d/e", "a/d-1"};
  EXPECT_EQ(names_after("a/c/d/dd", 2), between) << "after what is no object";
}

TEST_P(ObjectStoreContract, AListSaysSizeAndTime) {
  const auto before = static_cast<double>(std::time(nullptr)) * 1000;
  ASSERT_TRUE(put(*store_, "sized", std::string(12345, 'x')));
  const auto listed = list(*store_, "").value();
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].name, "sized");
  EXPECT_EQ(listed[0].bytes, 12345);
  EXPECT_NEAR(static_cast<double>(listed[0].written_ms), before, 600'000);
}

TEST_P(ObjectStoreContract, RefusesNamesThatAreNone) {
  const std::string long_name(513, 'x');
  for (const std::string& name :
       {std::string(), std::string("/a"), std::string("a/"), std::string("a//b"), std::string("."),
        std::string(".."), std::string("a/../b"), std::string(".hidden"), std::string("a/.b"),
        std::string("a b"), std::string("a%2f"), std::string("a?b"), std::string("a\nb"),
        std::string("\xc3\xa4"), std::string("a.tmp.1"), std::string("a\0b", 3), long_name}) {
    EXPECT_EQ(put(*store_, name, "x").error().code, Code::kInvalidArgument) << name;
    EXPECT_EQ(get(*store_, name).error().code, Code::kInvalidArgument) << name;
    EXPECT_EQ(remove(*store_, name).error().code, Code::kInvalidArgument) << name;
  }
  const std::string longest(512, 'x');
  EXPECT_TRUE(check_object_name(longest));
}

TEST_P(ObjectStoreContract, AnswersEachOfManyCallsOnce) {
  constexpr int kThreads = 4, kEach = 60;
  std::vector<std::atomic<int>> answers(kThreads * kEach);
  std::atomic<int> failed{0};
  {
    std::vector<std::thread> threads;
    for (int thread = 0; thread < kThreads; ++thread)
      threads.emplace_back([&, thread] {
        for (int i = thread * kEach; i < (thread + 1) * kEach; ++i)
          store_->put(fmt::format("many/{:03}", i), fmt::format("bytes {}", i), [&, i](Status put) {
            ++answers[static_cast<size_t>(i)];
            if (!put) ++failed;
          });
      });
    for (std::thread& thread : threads) thread.join();
  }
  while (std::ranges::any_of(answers, [](const auto& count) { return count == 0; }))
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(failed, 0);
  EXPECT_TRUE(std::ranges::all_of(answers, [](const auto& count) { return count == 1; }));
  EXPECT_EQ(list(*store_, "")->size(), answers.size());
  for (int i = 0; i < kThreads * kEach; i += 17)
    EXPECT_EQ(get(*store_, fmt::format("many/{:03}", i)).value(), fmt::format("bytes {}", i));
}

TEST_P(ObjectStoreContract, AReaderGetsAllOfOneVersion) {
  ASSERT_TRUE(put(*store_, "object", std::string(1 << 18, 'a')));
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    for (char c = 'b'; !stop; c = static_cast<char>(c == 'z' ? 'a' : c + 1))
      EXPECT_TRUE(put(*store_, "object", std::string(1 << 18, c)));
  });
  for (int i = 0; i < 30; ++i) {
    const auto got = get(*store_, "object");
    ASSERT_TRUE(got) << got.error().message;
    EXPECT_EQ(*got, std::string(1 << 18, got->front()));
  }
  stop = true;
  writer.join();
}

TEST_P(ObjectStoreContract, ACallbackMayCallTheStore) {
  const auto got = answer<std::string>([&](auto then) {
    store_->put("first", "1", [this, then](Status) {
      store_->put("second", "2", [this, then](Status) { store_->get("first", then); });
    });
  });
  EXPECT_EQ(got.value(), "1");
  EXPECT_EQ(get(*store_, "second").value(), "2");
}

TEST_P(ObjectStoreContract, AStoreThatGoesAnswersWhatIsOpen) {
  ASSERT_TRUE(put(*store_, "object", "content"));
  std::atomic<int> answered{0}, wrong{0};
  for (int i = 0; i < 100; ++i)
    store_->get("object", [&](Result<std::string> got) {
      ++answered;
      if (!(got ? *got == "content" : got.error().code == Code::kUnavailable)) ++wrong;
    });
  store_.reset();
  EXPECT_EQ(answered, 100);
  EXPECT_EQ(wrong, 0);
}

// Status of a GET without credentials, and the body.
std::pair<int, std::string> fetch(const std::string& url) {
  HttpClient client({});
  OutgoingRequest request;
  request.url = url;
  const auto response =
      answer<HttpResponse>([&](auto then) { client.ask(std::move(request), then); });
  EXPECT_TRUE(response) << response.error().message;
  return response ? std::pair(response->status, response->body) : std::pair(0, std::string());
}

TEST_P(ObjectStoreContract, ALinkIsOfOneObjectAndEnds) {
  ASSERT_TRUE(put(*store_, "a/b", "content"));
  ASSERT_TRUE(put(*store_, "a/c", "secret"));
  const auto link = store_->link("a/b", std::chrono::minutes(15));
  if (!place_->has_links()) {
    EXPECT_EQ(link.error().code, Code::kUnsupported);
    return;
  }
  ASSERT_TRUE(link) << link.error().message;
  EXPECT_EQ(fetch(*link), std::pair(200, std::string("content")));
  std::string other = *link;
  other.replace(other.find("a/b"), 3, "a/c");
  EXPECT_EQ(fetch(other).first / 100, 4) << "a link is of one object";
  EXPECT_EQ(fetch(link->substr(0, link->find('?'))).first / 100, 4) << "without a signature";
  const auto short_lived = store_->link("a/b", std::chrono::seconds(1));
  std::this_thread::sleep_for(std::chrono::milliseconds(2100));
  EXPECT_EQ(fetch(*short_lived).first / 100, 4) << "it has ended";

  EXPECT_EQ(store_->link("a/../b", std::chrono::minutes(15)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store_->link("a/b", std::chrono::seconds(0)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store_->link("a/b", std::chrono::hours(24 * 8)).error().code, Code::kInvalidArgument);
}

template <S3Server::Kind kind>
std::unique_ptr<Place> s3_place() {
  if (S3Server::program(kind).empty()) return nullptr;
  return std::make_unique<S3Place>(kind);
}

INSTANTIATE_TEST_SUITE_P(
    Objects, ObjectStoreContract,
    ::testing::Values(Kind{"Folder", [] { return std::unique_ptr<Place>(new FolderPlace); }},
                      Kind{"SeaweedFS", s3_place<S3Server::Kind::kSeaweedFS>},
                      Kind{"Rclone", s3_place<S3Server::Kind::kRclone>}),
    [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace kiln
