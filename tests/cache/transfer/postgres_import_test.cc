// A store on one disk that moves to the store of several machines.
#include <gtest/gtest.h>

#include "cache/kernel_cache.h"
#include "cache/postgres/postgres_store.h"
#include "cache/sealed_rows.h"
#include "cache/transfer/transfer.h"
#include "tests/cache/samples.h"
#include "tests/support/postgres_server.h"

namespace kiln {
namespace {

TEST(PostgresImport, AStoreOnOneDiskMovesToSeveralMachinesAndASecondTimeNothingIsAdded) {
  const auto server = testing::PostgresServer::start();
  if (!server) GTEST_SKIP() << server.error().message;
  const TempDir dir = TempDir::create("kiln-transfer-test").value();
  CacheOptions options;
  options.sweeps = false;
  const auto cache = KernelCache::open(dir.path() / "from", std::move(options)).value();
  for (int n = 1; n <= 5; ++n) ASSERT_TRUE(samples::put_all(*cache, n));
  for (int n = 1; n <= 3; ++n) ASSERT_TRUE(samples::put_record(*cache, n));
  ASSERT_TRUE(samples::wait([&](auto done) { cache->pin(samples::key("program", 3), done); }));

  auto objects = open_objects((dir.path() / "blobs").string(), {}).value();
  const auto into = PostgresStore::open((*server)->new_database(), std::move(objects), {});
  ASSERT_TRUE(into) << into.error().message;
  for (const int added : {5, 0}) {
    auto source = StoreSource::of_directory(dir.path() / "from").value();  // it is served
    const auto merged = merge_store(source, **into);
    ASSERT_TRUE(merged) << merged.error().message;
    EXPECT_EQ(merged->programs, added);
    EXPECT_EQ(merged->kernels, added);
    EXPECT_EQ(merged->present, 2 * (5 - added));
  }
  for (int n = 1; n <= 5; ++n) {
    const auto program = (*into)->listed_program(samples::key("program", n));
    ASSERT_TRUE(program) << program.error().message;
    EXPECT_EQ(program->manifest, program_to_json(samples::program(n)));
    EXPECT_EQ(program->pinned, n == 3);
    const auto blob = wait_for_answer<std::string>(
        [&](auto then) { (*into)->look_up_blob(Digest::of(samples::blob(n)), then); });
    EXPECT_EQ(blob.value_or(""), samples::blob(n));
  }
  const auto records = (*into)->records(samples::key("kernel", 0)).value();
  const auto were = cache->records(samples::key("kernel", 0)).value();
  ASSERT_EQ(records.size(), were.size());
  for (size_t i = 0; i < were.size(); ++i) EXPECT_EQ(seal_record(records[i]), seal_record(were[i]));
}

}  // namespace
}  // namespace kiln
