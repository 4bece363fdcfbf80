// What a disk that gives or takes nothing makes of look-ups and stores, and what is made good when
// it works again.
#include "coordinator/storage/storage_executor.h"

#include <gtest/gtest.h>

#include "cache/kernel_cache.h"
#include "cache/sqlite.h"
#include "compiler_core/program/revocations.h"
#include "schema/codec.h"
#include "tests/cache/far_store.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

class StorageExecutorTest : public ::testing::Test, public EventLoop {
 protected:
  void post(Job job) override { inbox_.post(std::move(job)); }
  void step(Event event) override { events_.push_back(std::move(event)); }
  int64_t now_ms() const override { return now_ms_; }
  void log(const LogLine& line) const override { log_ += line.logfmt() + "\n"; }

  StorageExecutorTest() { open({}); }
  void open(CacheOptions options) {
    executor_.reset();
    cache_.reset();
    cache_ = KernelCache::open(data(), std::move(options)).value();
    tasks_ = PendingTaskStore::open(data() / "flights.sqlite").value();
    executor_.emplace(*cache_, *tasks_, signer_, manifests_, blobs_, 1'000, Digest{}, CoreOptions{},
                      *this);
  }
  Path data() const { return dir_.path() / "data"; }
  // What the writers answered.
  void settle() {
    cache_->flush();
    tasks_->flush();
    for (const Job& job : inbox_.take()) job();
  }
  template <class T>
  T last() {
    return events_.empty() || !std::holds_alternative<T>(events_.back())
               ? T{}
               : std::get<T>(events_.back());
  }
  void look_up(int n) {
    executor_->look_up({samples::key("program", n), samples::key("program", n)}, nullptr);
  }
  KeepProgram kept(int n) const {
    return {program_to_json(samples::program(n)), samples::key("program", n), {}};
  }
  bool in_memory(int n) { return manifests_.find(samples::key("program", n)) != nullptr; }

  const TempDir dir_ = TempDir::create("kiln-storage").value();
  int64_t now_ms_ = 1'000;
  std::vector<Event> events_;
  mutable std::string log_;
  Inbox inbox_{[] {}};
  Signer signer_{SigningKey::load_or_create(dir_.path() / "signing").value()};
  ManifestTable manifests_{1 << 20};
  BlobMemoryCache blobs_{1 << 20};
  std::unique_ptr<KernelCache> cache_;
  std::unique_ptr<PendingTaskStore> tasks_;
  std::optional<StorageExecutor> executor_;
};

TEST_F(StorageExecutorTest, WhatIsStoredAfterAllIsNotCalledMemoryOnlyAnyMore) {
  executor_->keep(kept(1));
  EXPECT_TRUE(in_memory(1));
  executor_->store(StoreProgram{samples::program(1), samples::key("program", 1)});
  settle();
  ASSERT_FALSE(last<ProgramStored>().status) << "its blob is not stored";
  EXPECT_TRUE(in_memory(1));
  ASSERT_TRUE(samples::put_all(*cache_, 1));
  executor_->store(StoreProgram{samples::program(1), samples::key("program", 1)});
  settle();
  ASSERT_TRUE(last<ProgramStored>().status);
  EXPECT_FALSE(in_memory(1)) << "the next look-up reads it from the index";
  look_up(1);
  EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
  const auto reply = decode(manifests_.find(samples::key("program", 1))->frame(1)).value();
  EXPECT_FALSE(std::get<CompileReply>(reply).memory_only);
  now_ms_ += KeptPrograms::kLongestMs;
  executor_->tick();
  EXPECT_TRUE(in_memory(1));
}

TEST_F(StorageExecutorTest, WhatOnlyMemoryHasIsAskedOfTheCoreAgainAfterAWhile) {
  executor_->keep(kept(1));
  executor_->tick();
  EXPECT_TRUE(in_memory(1));
  now_ms_ += KeptPrograms::kFirstMs;
  executor_->tick();
  EXPECT_FALSE(in_memory(1));
}

TEST_F(StorageExecutorTest, AnIndexThatTheDiskDoesNotGiveIsNoMiss) {
  ASSERT_TRUE(samples::put_all(*cache_, 1));
  open({});
  cache_->wait_for_first_round();
  for (const char* suffix : {"", "-wal", "-shm"})
    std::filesystem::remove(Path(data() / "index.sqlite") += suffix);
  look_up(1);
  now_ms_ += Outage::kShortMs;
  executor_->tick();
  EXPECT_EQ(last<ProgramLookedUp>().read.error().code, Code::kUnavailable);
  EXPECT_EQ(executor_->read_failures(), 1);
  EXPECT_NE(log_.find("state=unreadable"), std::string::npos) << log_;
}

TEST_F(StorageExecutorTest, AProgramsAudienceIsWhoeverItWasTunedFor) {
  ASSERT_TRUE(samples::put_blob(*cache_, 1));
  ASSERT_TRUE(samples::put_kernel(*cache_, 1));
  const Digest key = samples::key("program", 1);
  for (const char* user : {"ann", "bob"}) {
    executor_->store(StoreProgram{samples::program(1), key, Audience::of_user(user)});
    settle();
    ASSERT_TRUE(last<ProgramStored>().status);
  }
  look_up(1);
  const auto admits = [](const Audience& audience, const char* user) {
    return audience.admits({user, "", false});
  };
  for (const Audience& audience :
       {last<ProgramLookedUp>().audience, manifests_.find(key)->audience()}) {
    EXPECT_TRUE(admits(audience, "ann"));
    EXPECT_TRUE(admits(audience, "bob"));
    EXPECT_FALSE(admits(audience, "eve"));
  }
}

// ---- Programs answered before they are verified ----

TEST_F(StorageExecutorTest, AWithdrawnKernelIsRevokedUpToNowAndWhatComesNextIsNot) {
  PlanFinished plan;
  plan.program = samples::program(1);
  executor_->planned(plan);
  const int64_t before = plan.program->serial;
  executor_->withdraw({samples::key("kernel", 1), 7});
  settle();
  const auto withdrawn = last<KernelWithdrawn>();
  EXPECT_EQ(withdrawn.ticket, 7u);
  const auto list = Revocations::parse(executor_->revoked().text());
  ASSERT_TRUE(list) << list.error().message;
  Program program = samples::program(1);
  program.serial = before;
  EXPECT_TRUE(list->cover(program));
  program.serial = withdrawn.serial;
  EXPECT_FALSE(list->cover(program));
  EXPECT_NE(log_.find("state=withdrawn"), std::string::npos) << log_;
}

TEST_F(StorageExecutorTest, ASharedBinaryIsThereUntilItIsSharedAgain) {
  const std::string binary = "binary";
  executor_->share({Digest::of(binary), binary});
  now_ms_ += 30'000;
  blobs_.expire(now_ms_);
  ASSERT_NE(blobs_.find(Digest::of(binary)), nullptr);
  EXPECT_EQ(*blobs_.find(Digest::of(binary)), binary);
}

// ---- A store behind a network ----

class FarPrograms : public StorageExecutorTest {
 protected:
  FarPrograms() {
    far_.emplace(*cache_);
    executor_.emplace(*far_, *tasks_, signer_, manifests_, blobs_, 1'000, Digest{}, CoreOptions{},
                      *this);
    EXPECT_TRUE(samples::put_all(*cache_, 1));
  }
  void arrive() {
    far_->arrive();
    settle();
  }

  std::optional<FarStore> far_;
};

TEST_F(FarPrograms, TheCoreHearsWhenTheAnswerArrives) {
  look_up(1);
  EXPECT_TRUE(events_.empty());
  arrive();
  EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
  EXPECT_TRUE(in_memory(1));
}

TEST_F(FarPrograms, AStoreThatIsAwayHasMissedAndForgottenNothing) {
  far_->is_away = true;
  look_up(1);
  arrive();
  now_ms_ += Outage::kShortMs;
  executor_->tick();
  arrive();
  EXPECT_EQ(last<ProgramLookedUp>().read.error().code, Code::kUnavailable);
  far_->is_away = false;
  look_up(1);
  arrive();
  EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
}

TEST_F(FarPrograms, AStoreThatIsAwayForAMomentIsAskedAgain) {
  far_->is_away = true;
  look_up(1);
  arrive();
  EXPECT_TRUE(events_.empty());
  far_->is_away = false;
  executor_->tick();
  arrive();
  EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
  EXPECT_EQ(executor_->read_failures(), 0);
}

TEST_F(FarPrograms, AStoreThatStaysAwayIsNotWaitedForAgain) {
  far_->is_away = true;
  look_up(1);
  arrive();
  now_ms_ += Outage::kShortMs;
  look_up(2);
  arrive();
  EXPECT_EQ(last<ProgramLookedUp>().read.error().code, Code::kUnavailable);
}

TEST_F(FarPrograms, WhatWaitsOnThisDiskIsNotCalledStored) {
  for (const bool is_only_here : {true, false}) {
    far_->is_only_here = is_only_here;
    look_up(1);
    arrive();
    EXPECT_FALSE(last<ProgramLookedUp>().program_json.empty());
    EXPECT_EQ(last<ProgramLookedUp>().memory_only, is_only_here);
  }
}

TEST_F(FarPrograms, WhatOnlyMemoryHasIsTheCoresAgainOnceTheStoreIsBack) {
  far_->is_away = true;
  executor_->keep(kept(1));
  executor_->tick();
  EXPECT_TRUE(in_memory(1));
  far_->is_away = false;
  executor_->tick();
  EXPECT_FALSE(in_memory(1)) << "who asks next has it stored, not a minute later";
}

TEST_F(FarPrograms, AnAnswerFromBeforeItWasTakenBackIsNotServed) {
  look_up(1);
  TakeBack what;
  what.programs = {samples::key("program", 1)};
  bool taken_back = false;
  executor_->take_back(what,
                       [&](const Result<TakenBack>& taken) { taken_back = taken.has_value(); });
  for (int i = 0; i < 3; ++i) settle();
  ASSERT_TRUE(taken_back);
  EXPECT_EQ(executor_->revoked().text().empty(), false);
  arrive();
  EXPECT_FALSE(in_memory(1));
  arrive();
  EXPECT_TRUE(last<ProgramLookedUp>().program_json.empty());
  EXPECT_FALSE(in_memory(1));
}

TEST_F(StorageExecutorTest, AMissIsAMiss) {
  look_up(1);
  EXPECT_TRUE(last<ProgramLookedUp>().program_json.empty());
  EXPECT_TRUE(last<ProgramLookedUp>().read);
  EXPECT_EQ(executor_->read_failures(), 0);
  EXPECT_EQ(log_, "");
}

TEST_F(StorageExecutorTest, AQueueThatTheDiskDoesNotTakeCounts) {
  const DetachedTask task{Digest::of("g"), samples::program(1).target, Mode::kMaxAutotune};
  {
    auto db = Database::open(data() / "flights.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("DROP TABLE flights"));
  }
  executor_->store(StoreDetached{Digest::of("p"), task, "graph"});
  executor_->end(EndDetached{{}, task, {}});
  settle();
  EXPECT_EQ(executor_->write_failures(), 2);
}

TEST_F(StorageExecutorTest, AQueuedProgramThatCannotBeReadIsToldOfUntilItIsForgotten) {
  const DetachedTask task{Digest::of("g"), samples::program(1).target, Mode::kMaxAutotune};
  executor_->store(StoreDetached{Digest::of("p"), task, "graph"});
  settle();
  {
    auto db = Database::open(data() / "flights.sqlite", Database::Access::kReadWrite).value();
    ASSERT_TRUE(db.run("UPDATE flights SET units = 99"));
  }
  ASSERT_TRUE(executor_->recover_tasks());
  EXPECT_EQ(executor_->detached_damaged(), 1);
  EXPECT_NE(log_.find("flights state=damaged programs=1"), std::string::npos) << log_;
  executor_->forget_damaged_tasks();
  settle();
  ASSERT_TRUE(executor_->recover_tasks());
  EXPECT_EQ(executor_->detached_damaged(), 0);
}

}  // namespace
}  // namespace kiln
