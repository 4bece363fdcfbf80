// A coordinator's HTTP and Redis ports, the artifacts behind them and the files that people hand each
// other, attacked from outside: by strangers, by a key that has ended, by names and by sizes.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <future>
#include <list>

#include "cache/artifact_store.h"
#include "tests/support/http_get.h"
#include "tests/system/keyed_service.h"

namespace kiln::testing {
namespace {

constexpr char kEntry[] = "pt2:fx-graph-v1::an-entry:c1";

std::string words(const std::vector<std::string>& request) {
  std::string text = "*" + std::to_string(request.size()) + "\r\n";
  for (const std::string& word : request)
    text += "$" + std::to_string(word.size()) + "\r\n" + word + "\r\n";
  return text;
}

class HostilePorts : public KeyedService {
 protected:
  void SetUp() override {
    for (const char* name : {"anna", "bert"}) add_key({name, "--role", "publish"});
    coordinator_ =
        Child::start({binary("kiln-coordinator"), "--data-dir", at("data"), "--listen",
                      "tcp://127.0.0.1:0", "--keys", at("data/keys"), "--http", "127.0.0.1:0",
                      "--redis-listen", "127.0.0.1:0", "--ready-file", at("ready.json")},
                     at("coordinator.out"), at("coordinator.err"));
    ASSERT_TRUE(eventually([this] { return std::filesystem::exists(at("ready.json")); }, 60))
        << log();
    const auto ready = nlohmann::json::parse(read_file(at("ready.json")).value());
    http_ = ready["http"];
    redis_ = ready["redis"];
  }
  std::string token(const std::string& name) const {
    const Finished made = kiln({"page-token", "--key", at(name + ".key"), "--role", "publish"});
    EXPECT_EQ(made.exit_code, 0) << made.err;
    return made.out.substr(0, made.out.find('\n'));
  }
  // Everything that the port answers to `requests` of the token's owner.
  std::string asked(const std::string& token, const std::string& requests) const {
    const HttpPeer peer(redis_);
    peer.say(words({"AUTH", token}) + requests + words({"QUIT"}));
    return peer.hear();
  }
  int64_t resident_mib() const {
    std::ifstream file("/proc/" + std::to_string(coordinator_.pid()) + "/statm");
    int64_t pages = 0, resident = 0;
    file >> pages >> resident;
    return resident * sysconf(_SC_PAGESIZE) >> 20;
  }

  std::string http_, redis_;
};

TEST_F(HostilePorts, ARevokedKeyPublishesNothingOnAConnectionThatItHas) {
  const std::string anna = token("anna"), bert = token("bert");
  const HttpPeer open(redis_);
  ASSERT_TRUE(open.say(words({"AUTH", anna})));
  ASSERT_EQ(asked(anna, words({"SET", kEntry, "a pickle"}) + words({"GET", kEntry})),
            "+OK\r\n+OK\r\n$8\r\na pickle\r\n+OK\r\n");
  const Finished revoked = kiln({"keys", "revoke", "anna", "--data-dir", at("data")});
  ASSERT_EQ(revoked.exit_code, 0) << revoked.err;
  ASSERT_TRUE(eventually(
      [&] {
        return asked(bert, words({"GET", kEntry})) == "+OK\r\n$-1\r\n+OK\r\n";
      },
      60))
      << "what it put is taken back";
  ASSERT_TRUE(open.say(words({"SET", kEntry, "another"}) + words({"QUIT"})));
  const std::string heard = open.hear();
  EXPECT_NE(heard.find("-NOAUTH"), std::string::npos) << heard;
  EXPECT_EQ(asked(bert, words({"GET", kEntry})), "+OK\r\n$-1\r\n+OK\r\n");
}

TEST_F(HostilePorts, StrangersKeepNeitherPortFromAnsweringAndCostNoMemory) {
  const std::string anna = token("anna");
  const HttpPeer honest(redis_);
  ASSERT_TRUE(honest.say(words({"AUTH", anna})));
  const int64_t before = resident_mib();
  std::list<HttpPeer> strangers;
  for (int i = 0; i < 600; ++i) {  // more than the port has places
    strangers.emplace_back(redis_).say("*2\r\n$4\r\nAUTH\r\n$4000\r\n" + std::string(3000, 'x'));
    if (i < 200) strangers.emplace_back(http_).say("GET /" + std::string(4000, 'x'));
  }
  EXPECT_NE(http_get(http_, "/healthz").find(" 200 "), std::string::npos);
  ASSERT_TRUE(honest.say(words({"SET", kEntry, "v"}) + words({"QUIT"})));
  EXPECT_EQ(honest.hear(), "+OK\r\n+OK\r\n+OK\r\n");
  EXPECT_LT(resident_mib() - before, 128);
}

TEST_F(HostilePorts, KeysThatATerminalWouldObeyAreNotKept) {
  const std::string anna = token("anna");
  for (const std::string name : {"\x1b]0;mine\x07", "a\nb", "\xff", "../../etc/passwd\x01"}) {
    const std::string key = "pt2:fx-graph-v1::" + name;
    EXPECT_EQ(asked(anna, words({"SET", key, "v"}) + words({"GET", key})),
              "+OK\r\n+OK\r\n$-1\r\n+OK\r\n");
  }
  // A path is a key like any other: no file is named by it.
  const std::string path = "pt2:fx-graph-v1::../../../escaped";
  EXPECT_EQ(asked(anna, words({"SET", path, "v"}) + words({"GET", path})),
            "+OK\r\n+OK\r\n$1\r\nv\r\n+OK\r\n");
  for (const auto& file : std::filesystem::recursive_directory_iterator(dir_.path()))
    EXPECT_EQ(file.path().string().find("escaped"), std::string::npos) << file.path();
}

// Keys that a Kiln of before kept.
TEST(HostileArtifacts, KeysAreShownAsWords) {
  const TempDir dir = *TempDir::create();
  {
    auto store = ArtifactStore::open(dir.path() / kArtifactsFile, SigningKey::generate(), {});
    ASSERT_TRUE(store) << store.error().message;
    std::promise<Status> stored;
    (*store)->put({"inductor.fx_graph", "a\x1b[2J\nforged  1 KiB\xff"}, "v", {}, "anna",
                  [&](Status status) { stored.set_value(std::move(status)); });
    ASSERT_TRUE(stored.get_future().get());
  }
  const std::vector<std::string> list = {
      binary("kiln"), "cache", "ls", "--kind", "inductor", "--data-dir", dir.path().string()};
  const Finished shown = run(list);
  ASSERT_EQ(shown.exit_code, 0) << shown.err;
  EXPECT_EQ(shown.out.find('\x1b'), std::string::npos) << shown.out;
  EXPECT_EQ(std::ranges::count(shown.out, '\n'), 2) << shown.out;
  std::vector<std::string> with_json = list;
  with_json.push_back("--json");
  const Finished listed = run(with_json);
  ASSERT_EQ(listed.exit_code, 0) << listed.err;
  EXPECT_EQ(listed.json()["entries"].size(), 1u) << listed.out;
}

TEST(HostileFiles, WhatNeverEndsOrIsTooLargeIsRefusedByName) {
  const TempDir dir = *TempDir::create();
  const std::string signer = to_hex(SigningKey::generate().public_key());
  const Path large = dir.path() / "large.kiln", pipe = dir.path() / "pipe.kiln";
  ASSERT_TRUE(write_file(large, "kiln-bundle 1\n"));
  std::filesystem::resize_file(large, size_t{40} << 30);  // of which the disk has a block
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  for (const Path& file : {large, pipe, Path("/dev/zero")}) {
    const Finished loaded = run({binary("kiln"), "load", file.string(), "--signer", signer,
                                 "--cache-dir", (dir.path() / "cache").string()});
    EXPECT_EQ(loaded.exit_code, 2) << loaded.err;
    EXPECT_NE(loaded.err.find(file.string()), std::string::npos) << loaded.err;
  }
  EXPECT_FALSE(std::filesystem::exists(dir.path() / "cache"));
}

}  // namespace
}  // namespace kiln::testing
