// A store on one disk that moves to the store of several machines, and back.
#include "cache/kernel_cache.h"
#include "cache/postgres/schema.h"
#include "cache/sealed_rows.h"
#include "cache/transfer/transfer.h"
#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

using PostgresTransferTest = PostgresTest;

TEST_F(PostgresTransferTest, AStoreOnOneDiskMovesToSeveralMachinesAndASecondTimeNothingIsAdded) {
  const TempDir dir = TempDir::create("kiln-transfer-test").value();
  CacheOptions options;
  options.sweeps = false;
  const auto cache = KernelCache::open(dir.path() / "from", std::move(options)).value();
  for (int n = 1; n <= 5; ++n) ASSERT_TRUE(samples::put_all(*cache, n));
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(samples::put_record(*cache, n));
  ASSERT_TRUE(samples::wait([&](auto done) { cache->pin(samples::key("program", 3), done); }));

  const auto into = open();
  for (const int added : {5, 0}) {
    auto source = StoreSource::of_directory(dir.path() / "from").value();  // it is served
    const auto merged = merge_store(source, *into);
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->programs, added);
    EXPECT_EQ(merged->kernels, added);
    EXPECT_EQ(merged->present, 2 * (5 - added));
  }
  for (int n = 1; n <= 5; ++n) {
    const auto program = into->listed_program(samples::key("program", n));
    ASSERT_TRUE(program) << program.error().message;
    EXPECT_EQ(program->manifest, program_to_json(samples::program(n)));
    EXPECT_EQ(program->pinned, n == 3);
    const auto blob = wait_for_answer<std::string>(
        [&](auto then) { into->look_up_blob(Digest::of(samples::blob(n)), then); });
    EXPECT_EQ(blob.value_or(""), samples::blob(n));
  }
  const auto records = into->records(samples::key("kernel", 0)).value();
  const auto were = cache->records(samples::key("kernel", 0)).value();
  ASSERT_EQ(records.size(), were.size());
  for (size_t i = 0; i < were.size(); ++i) EXPECT_EQ(seal_record(records[i]), seal_record(were[i]));
}

Result<Exported> export_from(const std::string& url, const Path& folder, ObjectStore& to) {
  TRY(auto objects, open_objects(folder.string(), {}));
  TRY(StoreSource source, StoreSource::of_postgres(url, std::move(objects)));
  return export_store(source, to);
}

TEST_F(PostgresTransferTest, WhatSeveralMachinesStoredComesBackToOneDiskBesideTheirCoordinator) {
  const TempDir dir = TempDir::create("kiln-transfer-test").value();
  const auto store = open();
  for (int n = 1; n <= 5; ++n) ASSERT_TRUE(samples::put_all(*store, n));
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(samples::put_record(*store, n));
  ASSERT_TRUE(samples::wait([&](auto done) { store->pin(samples::key("program", 3), done); }));
  ASSERT_TRUE(samples::wait(
      [&](auto done) { store->put_program(samples::program(4), done, Audience::of_user("ann")); }));
  ASSERT_TRUE(samples::wait([&](auto done) {
    store->put_shape_generic_key(samples::key("workload", 1), {Digest::of("kin"), {64, 8}}, done);
  }));
  TakeBack what;
  what.kernels = {samples::key("kernel", 5)};
  const AdminAct forget{0, 7, "tcp://a:7557", "ops", "forget kernel", false, ""};
  ASSERT_TRUE(
      samples::answer_of<TakenBack>([&](auto then) { store->take_back(what, 9, then, forget); }));
  AdminAct drain{0, 8, "tcp://a:7557", "ops", "drain gpu7", true, "{}"};
  ASSERT_TRUE(samples::wait([&](auto done) { store->note(drain, done); }));

  const auto to = open_objects((dir.path() / "export").string(), {}).value();
  const auto exported = export_from(place_->url(), folder_, *to);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->facts.programs, 4);
  EXPECT_EQ(exported->facts.kernels, 4);
  EXPECT_EQ(exported->facts.records, 3);
  EXPECT_EQ(exported->facts.missing_blobs, 0);
  EXPECT_EQ(exported->read_back, exported->written_blobs);
  EXPECT_TRUE(samples::put_all(*store, 6)) << "the coordinator goes on";

  auto source = StoreSource::open((dir.path() / "export").string(), {}).value();
  ASSERT_TRUE(restore_store(source, dir.path() / "back"));
  CacheOptions options;
  options.sweeps = false;
  const auto back = KernelCache::open(dir.path() / "back", std::move(options)).value();
  for (const int n : {1, 2, 3, 4}) {
    const auto was = samples::look_up_program(*store, n), is = samples::look_up_program(*back, n);
    ASSERT_TRUE(was && is) << n;
    EXPECT_EQ(is->manifest, was->manifest);
    EXPECT_EQ(is->audience.to_text(), was->audience.to_text());
    EXPECT_EQ(back->kernel(samples::key("kernel", n)).value().kernel, samples::kernel(n).kernel);
    EXPECT_TRUE(samples::look_up_blob(*back, n).value_or("") == samples::blob(n)) << n;
  }
  EXPECT_TRUE(back->listed_program(samples::key("program", 3)).value().pinned);
  EXPECT_EQ(samples::look_up_program(*back, 5).error().code, Code::kNotFound);
  EXPECT_EQ(back->revocations().value(), store->revocations().value());
  const auto acts = samples::answer_of<std::vector<AdminAct>>(
      [&](auto then) { back->list_acts(INT64_MAX, 10, then); });
  ASSERT_EQ(acts.value().size(), 2u);
  drain.number = 2;
  EXPECT_EQ(acts->at(0), drain);
  EXPECT_EQ(acts->at(1).request, "forget kernel");
  EXPECT_EQ(back->records(samples::key("kernel", 0)).value().size(), 3u);
  EXPECT_EQ(back->earlier_winners(samples::key("workload", 1)).value().size(), 1u);
  EXPECT_EQ(back->nearest_winners({Digest::of("kin"), {64, 8}}).value().size(), 1u);

  const auto again = export_from(place_->url(), folder_, *to);
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->written_blobs, 1) << "what came since";
}

// No coordinator of this release has written that database yet.
TEST_F(PostgresTransferTest, ADatabaseOfBeforeTheAuditTrailIsExportedToo) {
  const TempDir dir = TempDir::create("kiln-transfer-test").value();
  {
    const auto store = open();
    ASSERT_TRUE(samples::put_all(*store, 1));
  }
  (void)place_->ask("DROP TABLE kiln.acts, kiln.offers; UPDATE kiln.meta SET schema = 1");
  const auto to = open_objects((dir.path() / "export").string(), {}).value();
  const auto exported = export_from(place_->url(), folder_, *to);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->facts.programs, 1);
  EXPECT_TRUE(samples::look_up_program(*open(), 1)) << "and a coordinator brings it up to date";
  EXPECT_EQ(place_->ask("SELECT schema FROM kiln.meta"), std::to_string(kPostgresSchema));
}

TEST_F(PostgresTransferTest, AnExportLeavesOutDamagedRowsAndSaysWhenRowsAreMissing) {
  const TempDir dir = TempDir::create("kiln-transfer-test").value();
  const auto store = open();
  for (const int n : {1, 2, 3}) ASSERT_TRUE(samples::put_all(*store, n));
  (void)place_->ask(fmt::format(
      "UPDATE kiln.programs SET stamp = stamp, audience = 'user eve' WHERE key = '\\x{}'",
      samples::key("program", 2).hex()));
  std::filesystem::remove(file_of(3));
  const auto to = open_objects((dir.path() / "export").string(), {}).value();
  const auto exported = export_from(place_->url(), folder_, *to);
  ASSERT_TRUE(exported) << exported.error().message;
  EXPECT_EQ(exported->facts.programs, 2);
  EXPECT_EQ(exported->facts.missing_blobs, 1);
  (void)place_->ask("UPDATE kiln.totals SET records = records + 1");
  const auto short_of_one = export_from(place_->url(), folder_, *to);
  ASSERT_FALSE(short_of_one);
  EXPECT_EQ(short_of_one.error().code, Code::kCorruption);
}

}  // namespace
}  // namespace kiln
