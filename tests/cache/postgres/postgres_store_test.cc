// The store on PostgreSQL: the contract of every store, and what is its own: terms, names that are
// never used twice, outages, formats.
#include "cache/postgres/postgres_store.h"

#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "cache/postgres/connection.h"
#include "tests/cache/objects/s3_servers.h"
#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

Result<std::unique_ptr<StorePlace>> on_postgres(std::unique_ptr<Place> (*make_objects)()) {
  TRY(auto* const server, postgres_server());
  return std::make_unique<PostgresPlace>(*server, make_objects());
}

template <testing::S3Server::Kind kind>
Result<std::unique_ptr<StorePlace>> with_s3() {
  if (testing::S3Server::program(kind).empty())
    return fail(Code::kUnsupported, "no S3 server here: `ops/python servers` installs one");
  return on_postgres(
      []() -> std::unique_ptr<Place> { return std::make_unique<testing::S3Place>(kind); });
}

Result<std::unique_ptr<StorePlace>> with_a_folder() {
  return on_postgres([]() -> std::unique_ptr<Place> { return std::make_unique<FolderPlace>(); });
}

// rclone takes conditional writes and ignores the condition.
INSTANTIATE_TEST_SUITE_P(
    Postgres, StoreContract,
    ::testing::Values(StoreKind{"AndAFolder", with_a_folder},
                      StoreKind{"AndSeaweedFS", with_s3<testing::S3Server::Kind::kSeaweedFS>},
                      StoreKind{"AndRclone", with_s3<testing::S3Server::Kind::kRclone>}),
    [](const auto& kind) { return kind.param.name; });

using PostgresStoreTest = PostgresTest;

// ---- Terms ----

TEST_F(PostgresStoreTest, AnotherCoordinatorWaitsAndIsToldWhoWrites) {
  PostgresStoreOptions options;
  options.address = "tcp://first:7557";
  auto first = open(std::move(options));
  PostgresStoreOptions impatient;
  impatient.wait_for_term = std::chrono::milliseconds(300);
  const auto second = place_->open_with(std::move(impatient));
  ASSERT_FALSE(second);
  EXPECT_EQ(second.error().code, Code::kUnavailable);
  EXPECT_NE(second.error().message.find("tcp://first:7557"), std::string::npos)
      << second.error().message;
  const uint64_t epoch = first->epoch();
  first.reset();
  EXPECT_GT(open()->epoch(), epoch);
}

// As after kill -9, or a pause that outlasts the term: it does not know yet that its term is over.
TEST_F(PostgresStoreTest, AWriterWhoseTermIsOverChangesNothingAndStillReads) {
  std::string log;
  PostgresStoreOptions options;
  options.log = [&](const std::string& line) { log += line; };
  auto first = open(std::move(options));
  ASSERT_TRUE(put_all(*first, 1));
  // Of nobody, so that it is not renewed meanwhile.
  (void)place_->ask("UPDATE kiln.terms SET until = '-infinity', holder = ''");
  auto second = open();
  const Status late = put_all(*first, 2);
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, Code::kUnavailable);
  EXPECT_FALSE(forget(*first, "program", 1));
  EXPECT_NE(log.find("another coordinator"), std::string::npos) << log;
  EXPECT_TRUE(look_up_program(*first, 1));
  EXPECT_TRUE(look_up_program(*second, 1));
  EXPECT_FALSE(look_up_program(*second, 2));
  EXPECT_TRUE(put_all(*second, 2));
  first.reset();  // which gives up a term that is not its own
  EXPECT_TRUE(put_all(*second, 3));
}

TEST_F(PostgresStoreTest, AStandbyThatStartsWhilePostgresIsAwayWaitsForIt) {
  server_->kill();
  EXPECT_FALSE(place_->open_with({})) << "who is no standby says so";
  PostgresStoreOptions options;
  std::atomic<bool> said{false};
  options.stands_by = [] { return true; };
  options.log = [&](const std::string&) { said = true; };
  auto opening = std::async(std::launch::async, [&] { return place_->open_with(options); });
  while (!said) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  server_->begin();
  auto opened = opening.get();
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_TRUE(put_all(**opened, 1));
}

// As a proxy whose server is away: it takes connections and resets them.
class Resetting {
 public:
  Resetting() {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address = {};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), size), 0);
    EXPECT_EQ(::listen(listener_, 16), 0);
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this] {
      for (int fd = 0; (fd = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        const linger at_once{1, 0};
        ::setsockopt(fd, SOL_SOCKET, SO_LINGER, &at_once, sizeof at_once);
        ::close(fd);
      }
    });
  }
  ~Resetting() {
    ::shutdown(listener_, SHUT_RDWR);
    thread_.join();
    ::close(listener_);
  }
  int port() const { return port_; }

 private:
  int listener_ = -1, port_ = 0;
  std::thread thread_;
};

TEST_F(PostgresStoreTest, AHostThatResetsItsConnectionsIsPassedOver) {
  const Resetting resetting;
  const std::string url = place_->url();
  PgConnection connection(fmt::format("postgresql://kiln@127.0.0.1:{},{}", resetting.port(),
                                      url.substr(url.find('@') + 1)),
                          "test");
  for (int tries = 0; tries < 1'200 && !connection.connect(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto rows = connection.run("SELECT 7");
  ASSERT_TRUE(rows) << rows.error().message;
}

TEST_F(PostgresStoreTest, ATermThatNobodyTookGoesOn) {
  auto store = open();
  (void)place_->ask("UPDATE kiln.terms SET until = clock_timestamp() - interval '1 min'");
  EXPECT_TRUE(put_all(*store, 1));
}

// ---- Objects ----

TEST_F(PostgresStoreTest, WhatIsPutAgainAfterItsObjectWentHasAnotherName) {
  PostgresStoreOptions options;
  options.doomed_s = 0;
  auto store = open(std::move(options));
  ASSERT_TRUE(put_all(*store, 1));
  const Path first = file_of(1);
  EXPECT_TRUE(std::filesystem::exists(first));
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  ASSERT_TRUE(answer_of<TakenBack>([&](auto then) { store->take_back(what, 1, then); }));
  EXPECT_NE(state_of(1), "L");  // the sweep at the start may come as late as here
  store->sweep();
  EXPECT_EQ(state_of(1), "");
  EXPECT_FALSE(std::filesystem::exists(first));
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_NE(file_of(1), first);
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
}

TEST_F(PostgresStoreTest, ADoomedBlobStaysForAWhileAndIsWantedAgainUntilThen) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  const Path file = file_of(1);
  TakeBack what;
  what.kernels = {key("kernel", 1)};
  ASSERT_TRUE(answer_of<TakenBack>([&](auto then) { store->take_back(what, 1, then); }));
  EXPECT_EQ(state_of(1), "D");
  store->sweep();
  EXPECT_TRUE(std::filesystem::exists(file)) << "a link to it may be good still";
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_EQ(state_of(1), "L");
  EXPECT_EQ(file_of(1), file);
}

TEST_F(PostgresStoreTest, ASweepThatWasKilledIsFinishedByTheNext) {
  auto store = open();
  ASSERT_TRUE(put_blob(*store, 1));
  (void)place_->ask("UPDATE kiln.blobs SET state = 'X'");
  store->sweep();
  EXPECT_EQ(state_of(1), "");
  EXPECT_EQ(look_up_blob(*store, 1).error().code, Code::kNotFound);
}

TEST_F(PostgresStoreTest, WhatAKilledSweepLeftIsPutAgainAtOnce) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  ASSERT_TRUE(forget(*store, "program", 1) && forget(*store, "kernel", 1));
  const Path first = file_of(1);
  store.reset();
  (void)place_->ask("UPDATE kiln.blobs SET state = 'X'");
  store = open();
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_NE(file_of(1), first);
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
}

TEST_F(PostgresStoreTest, WhatWasClaimedAndNeverPutIsNoBlob) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  (void)place_->ask("UPDATE kiln.blobs SET state = 'P'");
  EXPECT_EQ(look_up_blob(*store, 1).error().code, Code::kNotFound);
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  EXPECT_EQ(store->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  ASSERT_TRUE(put_all(*store, 1));
  EXPECT_TRUE(look_up_program(*store, 1));
}

// Removals reach it when others have long gone on.
class LateRemovals final : public ObjectStore {
 public:
  explicit LateRemovals(std::unique_ptr<ObjectStore> objects) : objects_(std::move(objects)) {}
  ~LateRemovals() override {
    for (std::thread& removal : removals_) removal.join();
  }
  void remove(std::string name, Then<void> done) override {
    const std::scoped_lock lock(mu_);
    removals_.emplace_back([this, name, done] {
      std::this_thread::sleep_for(std::chrono::milliseconds(15));
      objects_->remove(name, done);
    });
  }
  void put(std::string name, std::string bytes, Then<void> done) override {
    objects_->put(std::move(name), std::move(bytes), std::move(done));
  }
  void get(std::string name, Then<std::string> done) override {
    objects_->get(std::move(name), std::move(done));
  }
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override {
    objects_->list(std::move(after), limit, std::move(done));
  }
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override {
    return objects_->link(name, valid_for);
  }
  int64_t max_object_bytes() const override { return objects_->max_object_bytes(); }
  std::string describe() const override { return objects_->describe(); }

 private:
  const std::unique_ptr<ObjectStore> objects_;
  std::mutex mu_;
  std::vector<std::thread> removals_;  // guarded by mu_
};

TEST_F(PostgresStoreTest, WhatIsPutWhileItsLastCopyIsRemovedIsThere) {
  PostgresStoreOptions options;
  options.doomed_s = 0;
  auto store =
      PostgresStore::open(
          place_->url(), std::make_unique<LateRemovals>(open_objects(folder_.string(), {}).value()),
          std::move(options))
          .value();
  std::atomic<bool> stops{false};
  std::thread sweeper([&] {
    while (!stops) store->sweep();
  });
  for (int i = 0; i < 60; ++i) {
    const int n = i % 3;
    const Status put = put_all(*store, n);
    EXPECT_TRUE(put) << put.error().message;
    EXPECT_EQ(look_up_blob(*store, n).value_or("lost"), blob(n)) << i;
    EXPECT_TRUE(look_up_program(*store, n)) << i;
    TakeBack what;
    what.kernels = {key("kernel", n)};
    EXPECT_TRUE(answer_of<TakenBack>([&](auto then) { store->take_back(what, 1, then); }));
  }
  stops = true;
  sweeper.join();
  store->sweep();
  EXPECT_EQ(store->totals().corrupt_blobs, 0);
  EXPECT_EQ(place_->ask("SELECT count(*) FROM kiln.blobs"), "0");
}

// ---- What is away ----

TEST_F(PostgresStoreTest, WhilePostgresIsAwayNothingIsMissedAndAfterwardsAllGoesOn) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  server_->kill();
  const auto program = look_up_program(*store, 1), other = look_up_program(*store, 2);
  const auto bytes = look_up_blob(*store, 1);
  const Status put = put_all(*store, 2), gone = forget(*store, "program", 1);
  const auto kernel = store->kernel(key("kernel", 1));
  const auto records = store->records(key("kernel", 1));
  const int64_t counted = store->totals().programs;
  server_->begin();
  for (const auto& code :
       {program.error().code, other.error().code, bytes.error().code, put.error().code,
        gone.error().code, kernel.error().code, records.error().code})
    EXPECT_EQ(code, Code::kUnavailable);
  EXPECT_LE(counted, 1);
  EXPECT_TRUE(once_it_is_back([&] { return look_up_program(*store, 1); }))
      << "it connects again by itself";
  const Status again = once_it_is_back([&] { return put_all(*store, 2); });
  EXPECT_TRUE(again) << again.error().message;
  EXPECT_EQ(once_it_is_back([&] { return look_up_blob(*store, 2); }).value_or(""), blob(2));
}

// Its kernel still acknowledges what we send, so that no timeout of TCP's ends the wait.
TEST_F(PostgresStoreTest, AServerThatHangsHoldsNobodyForLong) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  ASSERT_TRUE(look_up_program(*store, 1));
  server_->signal_all(SIGSTOP);
  const auto begun = std::chrono::steady_clock::now();
  const auto program = look_up_program(*store, 1);
  const auto kernel = store->kernel(key("kernel", 1));
  const Status put = put_record(*store, 1);
  const auto took = std::chrono::steady_clock::now() - begun;
  server_->signal_all(SIGCONT);
  EXPECT_EQ(program.error().code, Code::kUnavailable);
  EXPECT_EQ(kernel.error().code, Code::kUnavailable);
  EXPECT_EQ(put.error().code, Code::kUnavailable);
  EXPECT_LT(took, std::chrono::seconds(60)) << "each of them ends by its own patience";
  EXPECT_TRUE(once_it_is_back([&] { return put_record(*store, 1); }));
  EXPECT_TRUE(once_it_is_back([&] { return look_up_program(*store, 1); }));
}

TEST_F(PostgresStoreTest, WhileTheObjectsAreAwayNoBlobIsLost) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  take_objects_away();
  EXPECT_EQ(look_up_blob(*store, 1).error().code, Code::kUnavailable);
  EXPECT_TRUE(look_up_program(*store, 1)) << "manifests go on";
  for (const int n : {2, 3}) EXPECT_EQ(put_blob(*store, n).error().code, Code::kUnavailable);
  bring_objects_back();
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
  EXPECT_TRUE(once_it_is_back([&] { return put_all(*store, 2); }));
  EXPECT_TRUE(put_all(*store, 3));
  EXPECT_EQ(look_up_blob(*store, 3).value_or(""), blob(3));
}

TEST_F(PostgresStoreTest, BinariesThatWereAskedForAreThereWhateverIsAway) {
  const TempDir copies = *TempDir::create();
  PostgresStoreOptions options;
  options.copies = copies.path();
  options.copies_bytes = 1 << 20;
  auto store = open(std::move(options));
  ASSERT_TRUE(put_all(*store, 1));
  ASSERT_TRUE(put_all(*store, 2));
  ASSERT_TRUE(look_up_blob(*store, 1));
  take_objects_away();
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
  EXPECT_EQ(look_up_blob(*store, 2).error().code, Code::kUnavailable);
  EXPECT_EQ(store->away(), "the store of binaries does not answer");
  server_->kill();
  EXPECT_EQ(look_up_blob(*store, 1).value_or(""), blob(1));
  server_->begin();
}

// ---- Formats ----

TEST_F(PostgresStoreTest, TablesOfANewerBuildAreRefusedAndNothingIsChanged) {
  ASSERT_TRUE(put_all(*open(), 1));
  (void)place_->ask("UPDATE kiln.meta SET schema = 9, min_writer = 8");
  const auto opened = place_->open_with({});
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_NE(opened.error().message.find("newer Kiln"), std::string::npos);
  // What an older build may still write.
  (void)place_->ask("UPDATE kiln.meta SET schema = 9, min_writer = 1");
  EXPECT_TRUE(look_up_program(*open(), 1));
}

TEST_F(PostgresStoreTest, ADamagedRowIsCorruptThenAMiss) {
  auto store = open();
  ASSERT_TRUE(put_all(*store, 1));
  (void)place_->ask("UPDATE kiln.programs SET audience = 'user eve'");
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kCorruption);
  store->flush();
  EXPECT_EQ(look_up_program(*store, 1).error().code, Code::kNotFound);
  (void)place_->ask("UPDATE kiln.kernels SET kernel = replace(kernel, 'pointwise', 'pointless')");
  EXPECT_EQ(store->kernel(key("kernel", 1)).error().code, Code::kCorruption);
  store->flush();
  EXPECT_EQ(store->kernel(key("kernel", 1)).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
