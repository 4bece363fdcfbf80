// Places for a PostgresStore: a database of its own on one server of the test program's, and a place
// for the objects.
#pragma once

#include "cache/postgres/postgres_store.h"
#include "tests/cache/objects/places.h"
#include "tests/cache/store_contract.h"
#include "tests/support/postgres_server.h"

namespace kiln {

// Started when it is first asked for; an error where there is no PostgreSQL.
inline Result<testing::PostgresServer*> postgres_server() {
  static const auto server = testing::PostgresServer::start();
  if (!server) return fail(server.error());
  return server->get();
}

class PostgresPlace final : public StorePlace {
 public:
  PostgresPlace(testing::PostgresServer& server, std::unique_ptr<Place> objects)
      : server_(server), url_(server.new_database()), objects_(std::move(objects)) {}

  const std::string& url() const { return url_; }
  Result<std::unique_ptr<PostgresStore>> open_with(PostgresStoreOptions options) const {
    return PostgresStore::open(url_, objects_->open(), std::move(options));
  }
  Result<std::unique_ptr<Store>> open(StoreSettings settings) override {
    PostgresStoreOptions options;
    options.max_bytes = settings.max_bytes;
    options.keep_used_ms = settings.keep_used_ms;
    options.now_ms = std::move(settings.now_ms);
    options.evicted = std::move(settings.evicted);
    options.believed_after = std::chrono::milliseconds(0);
    TRY(auto store, open_with(std::move(options)));
    return std::unique_ptr<Store>(std::move(store));
  }
  std::string ask(const std::string& sql) const { return server_.ask(url_, sql); }
  std::string object_of(const Digest& blob) const {
    return ask(fmt::format("SELECT object FROM kiln.blobs WHERE digest = '\\x{}'", blob.hex()));
  }
  void lose(const Digest& blob) override {
    EXPECT_TRUE(remove(*objects_->open(), object_of(blob)));
  }
  void damage(const Digest& blob) override {
    const auto objects = objects_->open();
    std::string bytes = get(*objects, object_of(blob)).value();
    bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 4);
    EXPECT_TRUE(put(*objects, object_of(blob), bytes));
  }

 private:
  testing::PostgresServer& server_;
  const std::string url_;
  const std::unique_ptr<Place> objects_;
};

}  // namespace kiln
