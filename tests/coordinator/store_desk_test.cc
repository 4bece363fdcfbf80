// What a disk that gives or takes nothing makes of look-ups and stores, and what is made good when
// it works again.
#include "coordinator/store_desk.h"

#include <gtest/gtest.h>

#include "cache/sqlite.h"
#include "schema/codec.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

class StoreDeskTest : public ::testing::Test {
 protected:
  StoreDeskTest() { open({}); }
  void open(CacheOptions options) {
    desk_.reset();
    cache_.reset();
    cache_ = KernelCache::open(data(), std::move(options)).value();
    flights_ = PendingTaskStore::open(data() / "flights.sqlite").value();
    desk_.emplace(*cache_, *flights_, signer_, manifests_, shelf_, 1'000,
                  StoreDesk::Loop{inbox_, [this](Event event) { events_.push_back(event); },
                                  [this] { return now_ms_; },
                                  [this](const LogLine& line) { log_ += line.logfmt() + "\n"; }});
  }
  Path data() const { return dir_.path() / "data"; }
  // What the writers answered.
  void settle() {
    cache_->flush();
    flights_->flush();
    for (const Inbox::Task& task : inbox_.take()) task();
  }
  template <class T>
  T last() {
    return events_.empty() || !std::holds_alternative<T>(events_.back())
               ? T{}
               : std::get<T>(events_.back());
  }
  KeepProgram kept(int n) const { return {program_to_json(samples::program(n))}; }
  bool in_memory(int n) { return manifests_.find(samples::key("program", n)) != nullptr; }

  const TempDir dir_ = TempDir::create("kiln-desk").value();
  int64_t now_ms_ = 1'000;
  std::vector<Event> events_;
  std::string log_;
  Inbox inbox_{[] {}};
  Signer signer_{SigningKey::load_or_create(dir_.path() / "signing").value()};
  ManifestTable manifests_{1 << 20};
  BlobShelf shelf_{1 << 20};
  std::unique_ptr<KernelCache> cache_;
  std::unique_ptr<PendingTaskStore> flights_;
  std::optional<StoreDesk> desk_;
};

TEST_F(StoreDeskTest, WhatIsStoredAfterAllIsNotCalledMemoryOnlyAnyMore) {
  desk_->keep(kept(1));
  EXPECT_TRUE(in_memory(1));
  desk_->store(StoreProgram{samples::program(1)});
  settle();
  ASSERT_FALSE(last<ProgramStored>().status) << "its blob is not stored";
  EXPECT_TRUE(in_memory(1));
  ASSERT_TRUE(samples::put_all(*cache_, 1));
  desk_->store(StoreProgram{samples::program(1)});
  settle();
  ASSERT_TRUE(last<ProgramStored>().status);
  EXPECT_FALSE(in_memory(1)) << "the next look-up reads it from the index";
  desk_->look_up(samples::key("program", 1));
  EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
  const auto reply = decode(manifests_.find(samples::key("program", 1))->frame(1)).value();
  EXPECT_FALSE(std::get<CompileReply>(reply).memory_only);
  now_ms_ += KeptPrograms::kLongestMs;
  desk_->tick();
  EXPECT_TRUE(in_memory(1));
}

TEST_F(StoreDeskTest, WhatOnlyMemoryHasIsAskedOfTheCoreAgainAfterAWhile) {
  desk_->keep(kept(1));
  desk_->tick();
  EXPECT_TRUE(in_memory(1));
  now_ms_ += KeptPrograms::kFirstMs;
  desk_->tick();
  EXPECT_FALSE(in_memory(1));
}

TEST_F(StoreDeskTest, AnIndexThatTheDiskDoesNotGiveIsNoMiss) {
  ASSERT_TRUE(samples::put_all(*cache_, 1));
  open({});
  cache_->wait_for_first_round();
  for (const char* suffix : {"", "-wal", "-shm"})
    std::filesystem::remove(Path(data() / "index.sqlite") += suffix);
  desk_->look_up(samples::key("program", 1));
  EXPECT_EQ(last<ProgramLookedUp>().read.error().code, Code::kUnavailable);
  EXPECT_EQ(desk_->read_failures(), 1);
  EXPECT_NE(log_.find("state=unreadable"), std::string::npos) << log_;
}

TEST_F(StoreDeskTest, AMissIsAMiss) {
  desk_->look_up(samples::key("program", 1));
  EXPECT_TRUE(last<ProgramLookedUp>().program_json.empty());
  EXPECT_TRUE(last<ProgramLookedUp>().read);
  EXPECT_EQ(desk_->read_failures(), 0);
  EXPECT_EQ(log_, "");
}

TEST_F(StoreDeskTest, AQueueThatTheDiskDoesNotTakeCounts) {
  const DetachedFlight flight{Digest::of("g"), samples::program(1).target, Mode::kMaxAutotune};
  {
    auto db = Database::open(data() / "flights.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("DROP TABLE flights"));
  }
  desk_->store(StoreFlight{Digest::of("p"), flight, "graph"});
  desk_->end(EndFlight{flight, {}});
  settle();
  EXPECT_EQ(desk_->write_failures(), 2);
}

TEST_F(StoreDeskTest, AQueuedProgramThatCannotBeReadIsToldOfUntilItIsForgotten) {
  const DetachedFlight flight{Digest::of("g"), samples::program(1).target, Mode::kMaxAutotune};
  desk_->store(StoreFlight{Digest::of("p"), flight, "graph"});
  settle();
  {
    auto db = Database::open(data() / "flights.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("UPDATE flights SET units = 99"));
  }
  ASSERT_TRUE(desk_->recover_flights());
  EXPECT_EQ(desk_->flights_damaged(), 1);
  EXPECT_NE(log_.find("flights state=damaged programs=1"), std::string::npos) << log_;
  desk_->forget_damaged_flights();
  settle();
  ASSERT_TRUE(desk_->recover_flights());
  EXPECT_EQ(desk_->flights_damaged(), 0);
}

}  // namespace
}  // namespace kiln
