// A store that was exported and imported is the store it was, or the import says what is amiss.
#include "cache/transfer/transfer.h"

#include <gtest/gtest.h>

#include "cache/audit.h"
#include "cache/kernel_cache.h"
#include "cache/sealed_rows.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

// An ObjectStore that fails, or lies, from some call on.
class Unsteady final : public ObjectStore {
 public:
  explicit Unsteady(std::unique_ptr<ObjectStore> below) : below_(std::move(below)) {}
  int puts_left = 1 << 30, gets_left = 1 << 30;
  bool lies = false;  // about what it has

  void put(std::string name, std::string bytes, Then<void> done) override {
    if (puts_left-- <= 0) return done(fail(Code::kUnavailable, "away"));
    below_->put(std::move(name), std::move(bytes), std::move(done));
  }
  void get(std::string name, Then<std::string> done) override {
    if (gets_left-- <= 0) return done(fail(Code::kUnavailable, "away"));
    below_->get(std::move(name), [this, done](Result<std::string> bytes) {
      if (bytes && lies) bytes->back() = static_cast<char>(bytes->back() ^ 1);
      done(std::move(bytes));
    });
  }
  void remove(std::string name, Then<void> done) override {
    below_->remove(std::move(name), std::move(done));
  }
  void list(std::string after, int limit, Then<std::vector<ObjectInfo>> done) override {
    below_->list(std::move(after), limit, std::move(done));
  }
  Result<std::string> link(const std::string& name, std::chrono::seconds valid_for) override {
    return below_->link(name, valid_for);
  }
  int64_t max_object_bytes() const override { return below_->max_object_bytes(); }
  std::string describe() const override { return "an unsteady " + below_->describe(); }

 private:
  const std::unique_ptr<ObjectStore> below_;
};

class TransferTest : public ::testing::Test {
 protected:
  static constexpr int kPrograms = 70;  // more than one page of binaries

  void SetUp() override {
    cache_ = open(from());
    const auto stored = [](const Status& put) { EXPECT_TRUE(put) << put.error().message; };
    for (int n = 1; n <= kPrograms; ++n) {
      cache_->put_blob(samples::blob(n), stored);
      cache_->put_kernel(samples::kernel(n), stored);
      cache_->put_program(samples::program(n), stored);
    }
    cache_->flush();
    for (int n = 1; n <= 5; ++n) ASSERT_TRUE(samples::put_record(*cache_, n));
    ASSERT_TRUE(samples::wait([&](auto done) { cache_->pin(samples::key("program", 3), done); }));
    ASSERT_TRUE(samples::wait([&](auto done) {
      cache_->put_shape_generic_key(samples::key("workload", 4), kin(), done);
    }));
    take_back(*cache_, 7);
  }
  static std::unique_ptr<KernelCache> open(const Path& directory) {
    CacheOptions options;
    options.sweeps = false;
    return KernelCache::open(directory, std::move(options)).value();
  }
  static ShapeGenericKey kin() { return {samples::key("kin", 4), {4, 5}}; }
  static void take_back(KernelCache& cache, int n) {
    TakeBack what;
    what.programs = {samples::key("program", n)};
    ASSERT_TRUE(samples::wait([&](auto done) {
      cache.take_back(what, 100, [done](const Result<TakenBack>& took) {
        done(took ? Status() : fail(took.error()));
      });
    }));
  }
  Path from() const { return dir_.path() / "from"; }
  Path to() const { return dir_.path() / "to"; }
  Path place() const { return dir_.path() / "export"; }
  std::unique_ptr<Unsteady> objects() const {
    return std::make_unique<Unsteady>(open_objects(place().string(), {}).value());
  }

  Result<Exported> export_it(ObjectStore& objects) const {
    TRY(StoreSource source, StoreSource::of_directory(from()));
    return export_store(source, objects);
  }
  Result<Exported> export_it() const { return export_it(*objects()); }
  Result<Imported> restore_it() const {
    TRY(StoreSource source, StoreSource::open(place().string(), {}));
    return restore_store(source, to());
  }
  Result<Imported> merge_it(KernelCache& into) const {
    TRY(StoreSource source, StoreSource::open(place().string(), {}));
    return merge_store(source, into);
  }

  static bool has(KernelCache& cache, int n) {
    const auto blob = answer<std::string>(
        [&](auto then) { cache.look_up_blob(Digest::of(samples::blob(n)), then); });
    return cache.listed_program(samples::key("program", n)).has_value() &&
           cache.kernel(samples::key("kernel", n)).has_value() &&
           blob.value_or("") == samples::blob(n);
  }
  static std::vector<Digest> seals(KernelCache& cache) {
    std::vector<Digest> all;
    const auto records = cache.records(samples::key("kernel", 0)).value();
    for (const TuningRecord& record : records) all.push_back(seal_record(record));
    EXPECT_EQ(all.size(), 5u);
    return all;
  }
  template <class T, class Ask>
  static Result<T> answer(Ask ask) {
    return wait_for_answer<T>(ask);
  }
  static size_t bad_entries(const Path& directory) {
    const auto report = audit(directory);
    EXPECT_TRUE(report) << report.error().message;
    return report ? report->findings.size() : 1;
  }

  TempDir dir_ = TempDir::create("kiln-transfer-test").value();
  std::unique_ptr<KernelCache> cache_;  // open all the while, as a coordinator's
};

TEST_F(TransferTest, ARestoredStoreIsTheStoreThatWasExported) {
  const auto exported = export_it();
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->facts.programs, kPrograms - 1);
  EXPECT_EQ(exported->facts.records, 5);
  EXPECT_EQ(exported->facts.missing_blobs, 0);
  EXPECT_EQ(exported->written_blobs, exported->facts.blobs);
  EXPECT_GT(exported->read_back, 0);
  const auto imported = restore_it();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->programs, kPrograms - 1);
  EXPECT_EQ(imported->incomplete + imported->damaged, 0);
  EXPECT_EQ(bad_entries(to()), 0u);
  const auto copy = open(to());
  for (int n = 1; n <= kPrograms; ++n) EXPECT_EQ(has(*copy, n), n != 7) << n;
  EXPECT_EQ(seals(*copy), seals(*cache_));
  EXPECT_TRUE(copy->listed_program(samples::key("program", 3))->pinned);
  EXPECT_FALSE(copy->listed_program(samples::key("program", 4))->pinned);
  EXPECT_EQ(copy->revocations().value(), cache_->revocations().value());
  EXPECT_EQ(copy->nearest_winners(kin()).value(), cache_->nearest_winners(kin()).value());
  EXPECT_EQ(copy->nearest_winners(kin())->size(), 1u);
  EXPECT_EQ(copy->totals().stored_bytes, cache_->totals().stored_bytes);
  EXPECT_EQ(restore_it().error().code, Code::kUnavailable) << "it is served now";
}

TEST_F(TransferTest, ADirectoryIsASourceToo) {
  auto source = StoreSource::open(from().string(), {}).value();
  ASSERT_TRUE(samples::put_all(*cache_, kPrograms + 1));  // after the moment
  const auto imported = restore_store(source, to());
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->programs, kPrograms - 1);
  EXPECT_EQ(bad_entries(to()), 0u);
  EXPECT_EQ(restore_store(source, to()).error().code, Code::kInvalidArgument) << "there is one";
}

TEST_F(TransferTest, ALaterExportWritesWhatIsNew) {
  ASSERT_TRUE(export_it());
  ASSERT_TRUE(samples::put_all(*cache_, 100));
  const auto again = export_it();
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->written_blobs, 1);
  ASSERT_TRUE(restore_it());
  EXPECT_TRUE(has(*open(to()), 100));
  int parts = 0;
  for (const auto& part : std::filesystem::directory_iterator(place() / "index"))
    parts += part.is_regular_file();
  EXPECT_EQ(parts, 1) << "the index of the export before is gone";
}

TEST_F(TransferTest, AnExportThatEndsEarlyLeavesTheOneBefore) {
  ASSERT_TRUE(export_it());
  ASSERT_TRUE(samples::put_all(*cache_, 100));
  for (const int puts : {0, 1, 1}) {  // at the binary, the index, the list
    const auto unsteady = objects();
    unsteady->puts_left = puts;
    const auto failed = export_it(*unsteady);
    ASSERT_FALSE(failed) << puts;
    EXPECT_EQ(failed.error().code, Code::kUnavailable);
  }
  const auto imported = restore_it();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->programs, kPrograms - 1);
}

TEST_F(TransferTest, APlaceThatGivesBackOtherBytesIsNoExport) {
  const auto liar = objects();
  liar->lies = true;
  EXPECT_EQ(export_it(*liar).error().code, Code::kCorruption);
  EXPECT_EQ(StoreSource::open(place().string(), {}).error().code, Code::kNotFound);
}

// An outage says nothing about what is there: no half a store is made of it.
TEST_F(TransferTest, AnOutageEndsAnImportAndLeavesNoStore) {
  ASSERT_TRUE(export_it());
  auto unsteady = objects();
  unsteady->gets_left = 20;
  auto source = StoreSource::of_export(std::move(unsteady)).value();
  const auto failed = restore_store(source, to());
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kUnavailable);
  EXPECT_FALSE(std::filesystem::exists(to() / "index.sqlite"));
  EXPECT_TRUE(restore_it());
  EXPECT_EQ(bad_entries(to()), 0u);
}

TEST_F(TransferTest, WhatLacksItsBinaryIsLeftOut) {
  ASSERT_TRUE(export_it());
  const Path one = place() / export_blob_name(Digest::of(samples::blob(1)));
  const Path two = place() / export_blob_name(Digest::of(samples::blob(2)));
  ASSERT_TRUE(std::filesystem::remove(one));
  samples::flip_one_bit(two);
  const auto imported = restore_it();
  ASSERT_TRUE(imported) << imported.error().message;
  EXPECT_EQ(imported->incomplete, 4) << "two programs and their kernels";
  EXPECT_EQ(bad_entries(to()), 0u);
  const auto copy = open(to());
  for (int n : {1, 2, 3}) EXPECT_EQ(has(*copy, n), n == 3);
  const auto into = open(dir_.path() / "third");
  const auto merged = merge_it(*into);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->incomplete, 4);
}

TEST_F(TransferTest, ADamagedIndexIsNotImported) {
  ASSERT_TRUE(export_it());
  for (const auto& part : std::filesystem::directory_iterator(place() / "index"))
    samples::flip_one_bit(part.path());
  EXPECT_EQ(restore_it().error().code, Code::kCorruption);
}

TEST_F(TransferTest, WhatIsNoExportIsSaidToBeNone) {
  EXPECT_EQ(StoreSource::open(place().string(), {}).error().code, Code::kNotFound);
  EXPECT_EQ(StoreSource::of_directory(to()).error().code, Code::kNotFound);
  ASSERT_TRUE(export_it());
  ASSERT_TRUE(write_file(place() / "export", "kiln-export 2\n"));
  const auto newer = StoreSource::open(place().string(), {});
  EXPECT_EQ(newer.error().code, Code::kUnsupported);
  for (const char* text : {"", "hello", "kiln-export 1\n", "kiln-export 1\npart x y\n"}) {
    ASSERT_TRUE(write_file(place() / "export", text));
    EXPECT_FALSE(StoreSource::open(place().string(), {})) << text;
  }
}

TEST_F(TransferTest, AStoreGetsWhatItLacksAndKeepsItsOwn) {
  ASSERT_TRUE(export_it());
  const auto into = open(to());
  ASSERT_TRUE(samples::put_all(*into, 1));
  ASSERT_TRUE(samples::put_all(*into, 200));
  take_back(*into, 9);  // never had it, and does not want it
  const auto merged = merge_it(*into);
  ASSERT_TRUE(merged) << merged.error().message;
  EXPECT_EQ(merged->programs, kPrograms - 3);  // 1 is there, 7 and 9 were taken back
  EXPECT_EQ(merged->present, 2);
  EXPECT_GE(merged->revoked, 1);
  EXPECT_EQ(merged->records, 5);
  for (int n : {1, 2, 3, 10, kPrograms, 200}) EXPECT_TRUE(has(*into, n)) << n;
  for (int n : {7, 9}) EXPECT_FALSE(has(*into, n)) << n;
  EXPECT_TRUE(into->listed_program(samples::key("program", 3))->pinned);
  EXPECT_EQ(seals(*into), seals(*cache_));
  EXPECT_EQ(into->nearest_winners(kin())->size(), 1u);
  const auto again = merge_it(*into);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->programs + again->kernels, 0);
  EXPECT_EQ(into->totals().programs, kPrograms - 1);  // 70 less 7 and 9, and 200
  EXPECT_EQ(into->totals().records, 5);
  EXPECT_EQ(bad_entries(to()), 0u);
}

TEST(ExportFacts, AreReadAsTheyWerePrinted) {
  ExportFacts facts;
  facts.parts = {{1 << 26, samples::key("part", 1)}, {17, samples::key("part", 2)}};
  facts.programs = 1;
  facts.kernels = 2;
  facts.blobs = 3;
  facts.records = 4;
  facts.blob_bytes = 5;
  facts.missing_blobs = 6;
  EXPECT_EQ(ExportFacts::parse(facts.to_text()).value(), facts);
}

}  // namespace
}  // namespace kiln
