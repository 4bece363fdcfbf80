// PostgresTest: a fixture with a database of its own and a folder for the objects; skipped where this
// machine has no PostgreSQL.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>

#include "tests/cache/postgres/postgres_place.h"

namespace kiln {

class PostgresTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto server = postgres_server();
    if (!server && server.error().code == Code::kUnsupported)
      GTEST_SKIP() << server.error().message;
    ASSERT_TRUE(server) << server.error().message;
    server_ = *server;
    auto objects = std::make_unique<FolderPlace>();
    folder_ = objects->url();
    place_ = std::make_unique<PostgresPlace>(*server_, std::move(objects));
  }
  std::unique_ptr<PostgresStore> open(PostgresStoreOptions options = {}) {
    auto opened = place_->open_with(std::move(options));
    EXPECT_TRUE(opened) << opened.error().message;
    return opened ? *std::move(opened) : nullptr;
  }
  std::string state_of(int n) {
    return place_->ask(fmt::format("SELECT state FROM kiln.blobs WHERE digest = '\\x{}'",
                                   Digest::of(samples::blob(n)).hex()));
  }
  Status forget(Store& store, const char* kind, int n) {
    return samples::wait([&](auto done) { store.forget(samples::key(kind, n), done); });
  }
  Path file_of(int n) const { return folder_ / place_->object_of(Digest::of(samples::blob(n))); }

  // The answer to `ask`, which is asked again while it is that a part is away: each connection to a
  // server that came back waits a while before it tries again.
  template <class Ask>
  static auto once_it_is_back(Ask ask) {
    auto answer = ask();
    for (int tries = 0; tries < 1'200 && !answer && answer.error().code == Code::kUnavailable;
         ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      answer = ask();
    }
    return answer;
  }

  // As a network file system that is not mounted.
  void take_objects_away() { std::filesystem::rename(folder_, away()); }
  void bring_objects_back() {
    std::error_code none;
    std::filesystem::remove_all(folder_, none);
    std::filesystem::rename(away(), folder_);
  }

  testing::PostgresServer* server_ = nullptr;
  Path folder_;
  std::unique_ptr<PostgresPlace> place_;

 private:
  Path away() const { return Path(folder_) += ".away"; }
};

}  // namespace kiln
