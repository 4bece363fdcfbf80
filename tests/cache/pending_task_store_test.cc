#include "cache/pending_task_store.h"

#include <gtest/gtest.h>

#include <fstream>
#include <future>

namespace kiln {
namespace {

PendingTask task_of(const std::string& name) {
  PendingTask task;
  task.graph = Digest::of(name);
  task.target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
  task.mode = Mode::kMaxAutotune;
  return task;
}

class PendingTaskStoreTest : public ::testing::Test {
 protected:
  void SetUp() override { reopen(); }
  void reopen() {
    store.reset();
    auto opened = PendingTaskStore::open(file);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    store = *std::move(opened);
  }
  Status put(const PendingTask& task, const std::string& text) {
    std::promise<Status> done;
    store->put(task, text, [&](Status status) { done.set_value(std::move(status)); });
    return done.get_future().get();
  }
  std::vector<PendingTask> all() {
    auto tasks = store->all();
    EXPECT_TRUE(tasks.has_value());
    damaged = tasks ? tasks->damaged : -1;
    return tasks ? tasks->tasks : std::vector<PendingTask>{};
  }

  const TempDir dir = *TempDir::create();
  const Path file = dir.path() / "flights.sqlite";
  std::unique_ptr<PendingTaskStore> store;
  int64_t damaged = 0;  // as all() said last
};

TEST_F(PendingTaskStoreTest, KeepsTheirOrderTheirTargetsAndTheirGraphs) {
  const PendingTask b = task_of("b"), a = task_of("a");
  ASSERT_TRUE(put(b, "graph b").has_value());
  ASSERT_TRUE(put(a, "graph a").has_value());
  reopen();
  const auto tasks = all();
  ASSERT_EQ(tasks.size(), 2u);
  EXPECT_EQ(tasks[0].graph, b.graph);
  EXPECT_EQ(tasks[0].target, b.target);
  EXPECT_EQ(tasks[0].mode, b.mode);
  EXPECT_FALSE(tasks[0].failure);
  EXPECT_EQ(tasks[1].graph, a.graph);
  EXPECT_EQ(store->graph_text(a).value(), "graph a");
}

TEST_F(PendingTaskStoreTest, OneOfAnotherTargetOrModeIsAnother) {
  PendingTask other = task_of("a");
  other.target.isa = "sm_80";
  PendingTask guess = task_of("a");
  guess.mode = Mode::kDefault;
  for (const PendingTask& task : {task_of("a"), other, guess})
    ASSERT_TRUE(put(task, "graph").has_value());
  EXPECT_EQ(all().size(), 3u);
  ASSERT_TRUE(put(other, "again").has_value());
  EXPECT_EQ(all().size(), 3u);
  EXPECT_EQ(store->graph_text(other).value(), "again");
}

TEST_F(PendingTaskStoreTest, KeepsForWhomWhoseAndWhatItHasCost) {
  PendingTask mine = task_of("a");
  mine.audience = Audience::of_user("ann");
  mine.owner = "ann";
  ASSERT_TRUE(put(task_of("a"), "graph").has_value());
  ASSERT_TRUE(put(mine, "graph").has_value());
  mine.lost = 2;
  std::promise<Status> done;
  store->set_lost(mine, [&](Status status) { done.set_value(std::move(status)); });
  ASSERT_TRUE(done.get_future().get().has_value());
  reopen();
  const auto tasks = all();
  ASSERT_EQ(tasks.size(), 2u) << "another audience is another task";
  EXPECT_TRUE(tasks[0].audience.is_all());
  EXPECT_EQ(tasks[0].lost, 0);
  EXPECT_EQ(tasks[1].audience, mine.audience);
  EXPECT_EQ(tasks[1].owner, "ann");
  EXPECT_EQ(tasks[1].lost, 2);
  EXPECT_EQ(damaged, 0);
  EXPECT_EQ(store->graph_text(mine).value(), "graph");
}

// As version 1 wrote them.
TEST_F(PendingTaskStoreTest, TasksOfBeforeAudiencesAreEverybodys) {
  ASSERT_TRUE(put(task_of("a"), "graph").has_value());
  store.reset();
  {
    auto db = Database::open(file, Database::Access::kReadWrite).value();
    for (const char* column : {"audience", "owner", "lost"})
      ASSERT_TRUE(db.run(("ALTER TABLE flights DROP COLUMN " + std::string(column)).c_str()));
    ASSERT_TRUE(db.run("PRAGMA user_version = 1"));
  }
  reopen();
  const auto tasks = all();
  ASSERT_EQ(tasks.size(), 1u);
  EXPECT_EQ(damaged, 0);
  EXPECT_TRUE(tasks[0].audience.is_all());
  EXPECT_EQ(store->graph_text(task_of("a")).value(), "graph");
}

TEST_F(PendingTaskStoreTest, WhatIsDoneIsForgotten) {
  ASSERT_TRUE(put(task_of("a"), "graph").has_value());
  store->remove(task_of("a"), nullptr);
  store->flush();
  EXPECT_TRUE(all().empty());
  EXPECT_EQ(store->graph_text(task_of("a")).error().code, Code::kNotFound);
}

TEST_F(PendingTaskStoreTest, WhatFailedKeepsItsReasonAndNotItsGraph) {
  ASSERT_TRUE(put(task_of("a"), "graph").has_value());
  store->fail_for_good(task_of("a"), {Code::kUnsupported, "an op nobody knows", 0}, nullptr);
  store->fail_for_good(task_of("unknown"), {Code::kInternal, "no matter", 0}, nullptr);
  store->flush();
  reopen();
  const auto tasks = all();
  ASSERT_EQ(tasks.size(), 1u);
  ASSERT_TRUE(tasks[0].failure);
  EXPECT_EQ(tasks[0].failure->code, Code::kUnsupported);
  EXPECT_EQ(tasks[0].failure->message, "an op nobody knows");
  EXPECT_EQ(store->graph_text(task_of("a")).value(), "");
  ASSERT_TRUE(put(task_of("a"), "graph").has_value()) << "asked again, it starts afresh";
  EXPECT_FALSE(all().at(0).failure);
}

TEST_F(PendingTaskStoreTest, ADamagedRowIsCountedAndADamagedGraphRefused) {
  ASSERT_TRUE(put(task_of("a"), "graph a").has_value());
  ASSERT_TRUE(put(task_of("b"), "graph b").has_value());
  store.reset();
  {
    auto db = Database::open(file, Database::Access::kReadWrite);
    ASSERT_TRUE(db.has_value());
    ASSERT_TRUE(
        db->run("UPDATE flights SET units = 1 WHERE turn = 1;"
                "UPDATE flights SET graph_text = 'graph c' WHERE turn = 2;"));
  }
  reopen();
  ASSERT_EQ(all().size(), 1u);
  EXPECT_EQ(all().at(0).graph, task_of("b").graph);
  EXPECT_EQ(damaged, 1);
  EXPECT_EQ(store->graph_text(task_of("b")).error().code, Code::kCorruption);
  store->remove_damaged(nullptr);
  store->flush();
  EXPECT_EQ(all().size(), 1u);
  EXPECT_EQ(damaged, 0);
}

TEST_F(PendingTaskStoreTest, ADamagedFileIsSetAsideAndSaysSo) {
  ASSERT_TRUE(put(task_of("a"), "graph").has_value());
  store.reset();
  std::ofstream(file, std::ios::binary | std::ios::trunc) << std::string(8192, 'x');
  reopen();
  EXPECT_TRUE(all().empty());
  EXPECT_NE(store->warning().find("flights.sqlite.damaged.1"), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(file.string() + ".damaged.1"));
}

TEST_F(PendingTaskStoreTest, AFileOfANewerKilnIsRefused) {
  store.reset();
  {
    auto db = Database::open(file, Database::Access::kReadWrite);
    ASSERT_TRUE(db.has_value() && db->run("PRAGMA user_version = 3"));
  }
  const auto opened = PendingTaskStore::open(file);
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
}

}  // namespace
}  // namespace kiln
