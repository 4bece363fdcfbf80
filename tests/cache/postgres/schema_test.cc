// Steps of the tables' format, as builds of before and after meet them: a build of this format is the
// program itself, an earlier one knows the first of its steps, a later one has another one behind.
#include "cache/postgres/schema.h"

#include <atomic>
#include <future>
#include <thread>

#include "cache/postgres/term.h"
#include "tests/cache/postgres/postgres_fixture.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

SchemaFormats an_earlier_build() {
  SchemaFormats known = postgres_formats();
  known.steps.resize(1);
  return known;
}
// Drops what builds of before write, so that they must not come after it.
SchemaFormats a_later_build() {
  SchemaFormats known = postgres_formats();
  known.steps.push_back({1, kPostgresSchema + 1, {"ALTER TABLE kin DROP COLUMN sizes"}});
  return known;
}

class SchemaTest : public PostgresTest {
 protected:
  PgConnection connect() const { return PgConnection(place_->url(), "schema test"); }
  Status prepare(const SchemaFormats& known) const {
    PgConnection connection = connect();
    return prepare_postgres_schema(connection, known);
  }
  // Again where the server took longer than a statement may wait for another's lock.
  Status prepare_however_long(const SchemaFormats& known) const {
    Status done = prepare(known);
    for (int tries = 0;
         tries < 60 && !done && done.error().message.find("timeout") != std::string::npos; ++tries)
      done = prepare(known);
    return done;
  }
  Status check(SchemaUse use, const SchemaFormats& known = postgres_formats()) const {
    PgConnection connection = connect();
    return check_postgres_schema(connection, use, known);
  }
  std::string meta() const {
    return place_->ask("SELECT schema || ' ' || min_reader || ' ' || min_writer FROM kiln.meta");
  }
  std::string tables() const {
    return place_->ask(
        "SELECT string_agg(table_name || '.' || column_name || ' ' || data_type, ', '"
        " ORDER BY table_name, column_name) FROM information_schema.columns"
        " WHERE table_schema = 'kiln'");
  }
};

TEST_F(SchemaTest, ABuildOfThisFormatMakesItOfNothing) {
  EXPECT_EQ(check(SchemaUse::kRead).error().code, Code::kNotFound);
  ASSERT_EQ(postgres_formats().own(), kPostgresSchema);
  ASSERT_TRUE(prepare(postgres_formats()));
  EXPECT_EQ(meta(), "3 1 1");
  EXPECT_TRUE(check(SchemaUse::kWrite));
}

TEST_F(SchemaTest, TablesOfAnEarlierFormatAreTakenFurtherAndItsBuildsGoOn) {
  ASSERT_TRUE(prepare(an_earlier_build()));
  EXPECT_EQ(meta(), "1 1 1");
  PgConnection old = connect();
  std::atomic<bool> lost{false};
  const auto waits = [](const std::string&) { return false; };
  auto leads = Term::take(connect(), {"kiln", "an earlier build", "tcp://old"}, waits,
                          [&lost] { lost = true; });
  ASSERT_TRUE(leads) << leads.error().message;
  ASSERT_TRUE(prepare(postgres_formats())) << "while that one leads";
  EXPECT_EQ(meta(), "3 1 1");
  const auto fence = old.run(Term::kFence, (*leads)->fence_values());
  ASSERT_TRUE(fence);
  EXPECT_EQ(fence->size(), 1) << "it writes on";
  EXPECT_TRUE(check(SchemaUse::kWrite, an_earlier_build())) << "and may come again";
  leads->reset();
  EXPECT_FALSE(lost);

  const std::string made_in_two_steps = tables();
  (void)place_->ask("DROP SCHEMA kiln CASCADE");
  ASSERT_TRUE(prepare(postgres_formats()));
  EXPECT_EQ(tables(), made_in_two_steps);
}

TEST_F(SchemaTest, SeveralBuildsThatStartAtOnceTakeEachStepOnce) {
  std::vector<std::future<Status>> builds;
  for (const SchemaFormats& known : {an_earlier_build(), postgres_formats(), postgres_formats(),
                                     an_earlier_build(), postgres_formats()})
    builds.push_back(
        std::async(std::launch::async, [this, known] { return prepare_however_long(known); }));
  for (auto& build : builds) {
    const Status done = build.get();
    EXPECT_TRUE(done) << done.error().message;
  }
  EXPECT_EQ(meta(), "3 1 1");
}

TEST_F(SchemaTest, AStepBehindWhichThisBuildMustNotWriteEndsItsTerm) {
  std::promise<void> lost;
  PostgresStoreOptions options;
  options.lost = [&lost] { lost.set_value(); };
  auto store = open(std::move(options));
  ASSERT_TRUE(put_all(*store, 1));
  ASSERT_TRUE(prepare(a_later_build()));
  EXPECT_EQ(meta(), "4 1 4");
  EXPECT_EQ(put_all(*store, 2).error().code, Code::kUnavailable);
  EXPECT_EQ(lost.get_future().wait_for(std::chrono::seconds(60)), std::future_status::ready);
  EXPECT_TRUE(look_up_program(*store, 1)) << "it may read";
  EXPECT_TRUE(check(SchemaUse::kRead));
  store.reset();
  const auto again = place_->open_with({});
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code, Code::kUnsupported);
  EXPECT_NE(again.error().message.find("start a newer Kiln"), std::string::npos);
}

TEST_F(SchemaTest, AStandbyOfThisBuildIsRefusedWhenItsTurnComesBehindSuchAStep) {
  auto leads = open();
  std::promise<void> stands_by;
  std::atomic<bool> told{false};
  PostgresStoreOptions options;
  options.stands_by = [&] {
    if (!told.exchange(true)) stands_by.set_value();
    return true;
  };
  auto waiting = std::async(
      std::launch::async, [&] { return place_->open_with(std::move(options)).map([](auto&&) {}); });
  stands_by.get_future().wait();
  ASSERT_TRUE(prepare(a_later_build()));
  const Status opened = waiting.get();
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, Code::kUnsupported);
  EXPECT_EQ(place_->ask("SELECT count(*) FROM kiln.terms WHERE until > clock_timestamp()"), "0");
}

TEST_F(SchemaTest, SuchAStepWaitsForWhatIsBeingWritten) {
  ASSERT_TRUE(prepare(postgres_formats()));
  const auto waits = [](const std::string&) { return false; };
  const auto term = Term::take(connect(), {"kiln", "a writer", "tcp://w"}, waits, [] {}).value();
  PgConnection writer = connect();
  // The server ends who is idle in a transaction for two seconds, and the step waits for one of them.
  ASSERT_TRUE(writer.run("SET idle_in_transaction_session_timeout = 0"));
  writer.lazily("BEGIN");
  ASSERT_EQ(writer.run(Term::kFence, term->fence_values()).value().size(), 1);
  EXPECT_EQ(prepare(a_later_build()).error().code, Code::kUnavailable);
  EXPECT_EQ(meta(), "3 1 1") << "nothing is half done";
  EXPECT_NE(
      place_->ask("SELECT count(*) FROM information_schema.columns WHERE table_schema = 'kiln'"
                  " AND table_name = 'kin' AND column_name = 'sizes'"),
      "0");
  ASSERT_TRUE(writer.run("ROLLBACK"));
  ASSERT_TRUE(prepare(a_later_build()));
  EXPECT_EQ(meta(), "4 1 4");
}

TEST_F(SchemaTest, ABuildThatIsTooFarAheadNamesTheWay) {
  ASSERT_TRUE(prepare(an_earlier_build()));
  SchemaFormats far_ahead = a_later_build();
  far_ahead.oldest = 2;
  const Status prepared = prepare(far_ahead);
  ASSERT_FALSE(prepared);
  EXPECT_EQ(prepared.error().code, Code::kUnsupported);
  EXPECT_NE(prepared.error().message.find("start a release between them once"), std::string::npos);
  EXPECT_EQ(meta(), "1 1 1");
}

}  // namespace
}  // namespace kiln
