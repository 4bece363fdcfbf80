// A worker that lies, with a real key, against the real programs: with --confirm 2 nothing of it is
// served; without, what it got in is taken back by `kiln keys revoke` and `kiln cache forget`, from
// the service and from what clients keep.
#include "client/client.h"
#include "compiler_core/frontend/exported_program.h"
#include "tests/system/keyed_service.h"

namespace kiln {
namespace {

using testing::Finished;

class TrustTest : public testing::KeyedService {
 protected:
  // Like an honest worker in all but what it reports: nothing that it sends was ever compiled.
  FakeWorkerOptions liar(const WorkerStats& like) const {
    FakeWorkerOptions options;
    options.name = "aaa";
    options.target = like.target;
    options.toolkit = like.toolkit;
    options.key = read_client_key(at("mallory.key")).value();
    options.slots = 4;
    return options;
  }
  Finished compile(const std::string& graph, const std::string& key = "ci") const {
    return kiln({"compile", testing::small_graph(graph), "--no-fallback", "--verify", "--json",
                 "--deadline", "60"},
                key);
  }
  Finished check(const std::string& graph, const std::string& key = "ci") const {
    return kiln({"compile", testing::small_graph(graph), "--check", "--json"}, key);
  }

  Tally tally_;
};

TEST_F(TrustTest, WithConfirm2NothingOfALiarIsServed) {
  serve("2");
  const auto honest = worker("honest");
  const WorkerStats like = comes("honest");
  {
    const FakeWorker evil(endpoint_, tally_, liar(like));
    for (const char* graph : {"softmax.pt2", "colsum.pt2"}) {
      const Finished refused = compile(graph);
      EXPECT_EQ(refused.exit_code, 3) << graph << refused.out << refused.err;
      EXPECT_NE(refused.err.find("mallory"), std::string::npos) << refused.err;
    }
  }
  ASSERT_EQ(kiln({"keys", "revoke", "mallory", "--data-dir", at("data")}).exit_code, 0);
  const auto second = worker("second");
  comes("second");
  EXPECT_TRUE(eventually([&] { return !seen("aaa"); }));
  // What lately failed is remembered for a moment.
  Finished tuned;
  EXPECT_TRUE(eventually([&] { return (tuned = compile("softmax.pt2")).exit_code == 0; }, 60))
      << tuned.err << log();
  const Finished ran =
      kiln({"run", testing::small_graph("softmax.pt2"), "--expect",
            testing::small_graph("softmax.safetensors"), "--no-fallback", "--json"},
           "ci");
  EXPECT_EQ(ran.exit_code, 0) << ran.out << ran.err;
}

TEST_F(TrustTest, WhatARevokedKeyReportedIsGoneFromTheServiceAndFromWhatClientsKeep) {
  serve("1");
  WorkerStats like;
  like.target = host_cpu_target();
  like.toolkit = "g++";
  ClientOptions how;
  how.coordinator = endpoint_;
  how.key_file = at("ci.key");
  how.cache_dir = at("tier");
  how.allow_fallback = false;
  how.connect_timeout = std::chrono::seconds(60);
  const Graph graph = read_graph_file(testing::small_graph("softmax.pt2")).value().graph;
  CompileOptions options;
  options.target = host_cpu_target();
  {
    const FakeWorker evil(endpoint_, tally_, liar(like));
    const auto client = Client::create(how).value();
    const auto fetched = client->fetch(graph, options);
    ASSERT_TRUE(fetched) << fetched.error().message << log();
    const ProgramKernel& kernel = (*fetched)->program().kernels.front();
    EXPECT_EQ(kernel.provenance.built, (Reporter{"aaa", "mallory"}))
        << "the signed manifest says it";
    EXPECT_GT((*fetched)->program().serial, 0);
    EXPECT_GT((*fetched)->program().made_at_ms, 1'700'000'000'000);
  }
  EXPECT_EQ(check("softmax.pt2").exit_code, 0);
  const Finished would = kiln({"cache", "forget", "--worker", "aaa", "--json"}, "boss");
  ASSERT_EQ(would.exit_code, 0) << would.err;
  EXPECT_EQ(would.json()["forgotten"], false);
  EXPECT_EQ(would.json()["programs"], 1);
  EXPECT_EQ(kiln({"cache", "forget", "--worker", "aaa", "--yes"}, "ci").exit_code, 2)
      << "an admin's request";
  EXPECT_EQ(check("softmax.pt2").exit_code, 0);

  ASSERT_EQ(kiln({"keys", "revoke", "mallory", "--data-dir", at("data")}).exit_code, 0);
  EXPECT_TRUE(eventually([&] { return check("softmax.pt2").exit_code == 4; })) << log();
  coordinator_.signal(SIGTERM);
  EXPECT_EQ(coordinator_.wait(), 0);
  serve("1");
  EXPECT_EQ(check("softmax.pt2").exit_code, 4) << "also after a restart";

  // The tier has the copy still, and drops it once it has heard.
  how.coordinator = endpoint_;
  const auto client = Client::create(how).value();
  EXPECT_TRUE(client->look_up(graph, options)) << "it has not asked anybody";
  const Graph other = read_graph_file(testing::small_graph("colsum.pt2")).value().graph;
  EXPECT_FALSE(client->look_up(other, options));
  EXPECT_FALSE(client->look_up(graph, options));
  how.coordinator.clear();
  EXPECT_FALSE(Client::create(how).value()->look_up(graph, options)) << "nor does the next process";
}

TEST_F(TrustTest, ForgetTakesBackWhatItNamesAndSaysWhatItWould) {
  serve("1");
  const auto honest = worker("honest");
  comes("honest");
  const Finished tuned = compile("softmax.pt2");
  ASSERT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(kiln({"cache", "forget"}, "boss").exit_code, 2);
  EXPECT_EQ(kiln({"cache", "forget", "--program", "12"}, "boss").exit_code, 2);
  EXPECT_EQ(kiln({"cache", "forget", "--since", "yesterday"}, "boss").exit_code, 2);
  EXPECT_EQ(kiln({"cache", "forget", "--since", "1h", "--json"}, "boss").json()["programs"], 1);
  const std::string program =
      kiln({"cache", "forget", "--since", "1h", "--json"}, "boss").json()["program_keys"][0];
  const Finished gone = kiln({"cache", "forget", "--program", program, "--yes", "--json"}, "boss");
  ASSERT_EQ(gone.exit_code, 0) << gone.err;
  EXPECT_EQ(gone.json()["forgotten"], true);
  EXPECT_EQ(gone.json()["programs"], 1);
  EXPECT_GT(gone.json()["records"], 0);
  EXPECT_EQ(check("softmax.pt2").exit_code, 4);
  EXPECT_EQ(kiln({"cache", "verify", "--data-dir", at("data")}).exit_code, 0);
  const Finished again = compile("softmax.pt2");
  EXPECT_EQ(again.exit_code, 0) << again.err;
  EXPECT_EQ(again.json()["cache"], "tuned");
}

TEST_F(TrustTest, AProgramIsOfThoseThatItsKeySharesItWith) {
  add_key({"ann", "--role", "submit", "--share", "private"});
  add_key({"bob", "--role", "submit", "--share", "team", "--team", "vision"});
  add_key({"replica", "--role", "read", "--team", "vision"});
  add_key({"reader", "--role", "read"});
  EXPECT_EQ(kiln({"keys", "new", "x", "--share", "team", "--data-dir", at("data")}).exit_code, 2)
      << "which team?";
  EXPECT_NE(kiln({"keys", "list", "--data-dir", at("data")}).out.find("share=team team=vision"),
            std::string::npos);
  serve("1");
  const auto honest = worker("honest");
  comes("honest");
  const auto may_have = [&](const char* graph, std::initializer_list<const char*> those) {
    for (const char* key : {"ann", "bob", "replica", "reader", "ci", "boss"}) {
      const bool is_one = std::ranges::find(those, std::string_view(key)) != those.end();
      EXPECT_EQ(check(graph, key).exit_code, is_one ? 0 : 4) << graph << " " << key;
    }
  };
  EXPECT_EQ(compile("softmax.pt2", "ann").json()["cache"], "tuned");
  may_have("softmax.pt2", {"ann", "boss"});
  EXPECT_EQ(compile("colsum.pt2", "bob").json()["cache"], "tuned");
  may_have("colsum.pt2", {"bob", "replica", "boss"});
  EXPECT_EQ(compile("softmax.pt2").json()["cache"], "tuned") << "with ci's own graph";
  may_have("softmax.pt2", {"ann", "bob", "replica", "reader", "ci", "boss"});
}

TEST_F(TrustTest, Confirm2WithoutKeysIsRefusedAtTheStart) {
  auto refused =
      testing::Child::start({testing::binary("kiln-coordinator"), "--data-dir", at("other"),
                             "--listen", "tcp://127.0.0.1:0", "--http", "none", "--confirm", "2"},
                            at("other.out"), at("other.err"));
  EXPECT_EQ(refused.wait(), 2);
  EXPECT_NE(read_file(at("other.err")).value().find("kiln keys new"), std::string::npos);
}

}  // namespace
}  // namespace kiln
