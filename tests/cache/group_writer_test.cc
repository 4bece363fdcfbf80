#include "cache/group_writer.h"

#include <gtest/gtest.h>

#include <deque>

#include "cache/index.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using samples::record;
using Writer = GroupWriter<CacheIndex>;

class WriterTest : public ::testing::Test {
 protected:
  // Holds the thread in a done, so that what is submitted next becomes one batch.
  void hold() {
    writer_.submit(
        0, [](CacheIndex&) -> Status { return {}; },
        [started = &started_, released = release_.get_future().share()](Status) {
          started->set_value();
          released.wait();
        });
    started_.get_future().wait();
  }
  void submit(Writer::Job job) {
    answers_.emplace_back();
    writer_.submit(0, std::move(job),
                   [&answer = answers_.back()](Status status) { answer = std::move(status); });
  }
  void release() {
    release_.set_value();
    writer_.flush();
  }
  std::vector<int64_t> stored() {
    CacheIndex reader = CacheIndex::open_for_reading(dir_.path() / "index.sqlite").value();
    std::vector<int64_t> numbers;
    const std::vector<TuningRecord> records = reader.records(record(0).kernel_key).value();
    for (const TuningRecord& found : records) numbers.push_back(found.schedule.get("vector", -1));
    return numbers;
  }

  TempDir dir_ = TempDir::create("kiln-writer").value();
  Writer writer_{CacheIndex::open_for_writing(dir_.path() / "index.sqlite").value()};
  std::promise<void> started_, release_;
  std::deque<Status> answers_;  // which stay where they are: the writer's thread gives them
};

Writer::Job put(int n) {
  return [n](CacheIndex& index) { return index.put_record(record(n)); };
}

TEST_F(WriterTest, AJobThatFailsUndoesItsOwnPartOnly) {
  hold();
  submit(put(1));
  submit([](CacheIndex& index) -> Status {
    TRY_STATUS(index.put_record(record(2)));
    return fail(Code::kInternal, "after half of it");
  });
  submit(put(3));
  release();
  EXPECT_TRUE(answers_[0]);
  EXPECT_FALSE(answers_[1]);
  EXPECT_TRUE(answers_[2]);
  EXPECT_EQ(stored(), (std::vector<int64_t>{1, 3}));
}

// SQLite itself rolls back when the disk is full in the middle of a transaction.
TEST_F(WriterTest, WhenTheTransactionIsLostEveryOtherJobIsDoneAgain) {
  hold();
  submit(put(1));
  submit([](CacheIndex& index) -> Status {
    index.roll_back();
    return fail(Code::kUnavailable, "no space");
  });
  submit(put(3));
  release();
  EXPECT_TRUE(answers_[0]);
  EXPECT_FALSE(answers_[1]);
  EXPECT_TRUE(answers_[2]);
  EXPECT_EQ(stored(), (std::vector<int64_t>{1, 3}));
}

TEST_F(WriterTest, OneBatchIsOneTransaction) {
  std::vector<size_t> visible;  // to others, while the batch runs
  hold();
  for (int n = 0; n < 3; ++n)
    submit([&, n](CacheIndex& index) -> Status {
      visible.push_back(stored().size());
      return index.put_record(record(n));
    });
  release();
  EXPECT_EQ(visible, (std::vector<size_t>{0, 0, 0}));
  EXPECT_EQ(stored().size(), 3u);
}

TEST_F(WriterTest, StopsAfterWhatWasSubmitted) {
  for (int n = 0; n < 10; ++n) submit(put(n));
  writer_.stop();
  EXPECT_EQ(stored().size(), 10u);
}

}  // namespace
}  // namespace kiln
