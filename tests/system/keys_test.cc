// A service that other machines can reach: kiln keys, a coordinator on every interface, a worker
// and clients with right, wrong, missing and revoked keys.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <nlohmann/json.hpp>
#include <thread>

#include "tests/support/process.h"

namespace kiln {
namespace {

using testing::Finished;

class KeysTest : public ::testing::Test {
 protected:
  std::string at(const std::string& name) const { return (dir_.path() / name).string(); }
  Finished kiln(std::vector<std::string> arguments, const std::string& key = "") const {
    arguments.insert(arguments.begin(), testing::binary("kiln"));
    std::vector<std::string> environment;
    if (!key.empty()) environment.push_back("KILN_KEY=" + key);
    return testing::run(arguments, environment);
  }
  void make_key(const std::string& name, const std::string& role) const {
    const Finished made = kiln({"keys", "new", name, "--role", role, "--data-dir", at("data"),
                                "--out", at(name + ".key"), "--json"});
    ASSERT_EQ(made.exit_code, 0) << made.err;
    EXPECT_EQ(made.json()["file"], at(name + ".key"));
    struct stat status {};
    ASSERT_EQ(::stat(at(name + ".key").c_str(), &status), 0);
    EXPECT_EQ(status.st_mode & 0777, 0600u);
  }
  testing::Child start(const std::string& program, std::vector<std::string> arguments) const {
    arguments.insert(arguments.begin(), testing::binary(program));
    return testing::Child::start(arguments, at(program + ".out"), at(program + ".err"));
  }
  std::string ready() const {
    for (int i = 0; i < 600; ++i) {
      const std::string out = read_file(at("kiln-coordinator.out")).value_or("");
      if (out.starts_with("ready ") && out.ends_with("\n")) return out.substr(6, out.size() - 7);
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    ADD_FAILURE() << read_file(at("kiln-coordinator.err")).value_or("");
    return "";
  }
  Finished stats(const std::string& endpoint, const std::string& key) const {
    return kiln({"stats", "--coordinator", endpoint, "--json"}, key);
  }

  // As the holder of ci.key sees it.
  void wait_for_a_worker(const std::string& endpoint) const {
    for (int i = 0; i < 600; ++i) {
      const Finished seen = stats(endpoint, at("ci.key"));
      if (seen.exit_code == 0 && !seen.json()["workers"].empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    ADD_FAILURE() << "no worker came";
  }

  const TempDir dir_ = *TempDir::create("kiln-keys");
};

TEST_F(KeysTest, AServiceForOtherMachinesTakesThoseWithAKeyAndNobodyElse) {
  auto keyless = start("kiln-coordinator",
                       {"--data-dir", at("data"), "--listen", "tcp://0.0.0.0:0", "--http", "none"});
  EXPECT_EQ(keyless.wait(), 2);
  EXPECT_NE(read_file(at("kiln-coordinator.err"))->find("kiln keys new"), std::string::npos);

  make_key("ci", "submit");
  make_key("replica", "read");
  make_key("box", "worker");
  const auto coordinator = start("kiln-coordinator", {"--data-dir", at("data"), "--listen",
                                                      "tcp://0.0.0.0:0", "--http", "none"});
  const std::string endpoint = ready();
  const auto worker = start("kiln-worker", {"--coordinator", endpoint, "--key", at("box.key"),
                                            "--cache-dir", at("worker"), "--name", "box"});
  wait_for_a_worker(endpoint);
  const std::string graph = testing::small_graph("softmax.pt2");
  const std::vector<std::string> compile = {"compile",       graph,      "--coordinator", endpoint,
                                            "--no-fallback", "--verify", "--json"};
  const Finished early = kiln(compile, at("replica.key"));
  EXPECT_EQ(early.exit_code, 2) << "a replica starts no work";
  EXPECT_NE(early.err.find("--role submit"), std::string::npos) << early.err;
  const Finished tuned = kiln(compile, at("ci.key"));
  EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  EXPECT_EQ(tuned.json()["cache"], "tuned");
  const Finished hit = kiln(compile, at("replica.key"));
  EXPECT_EQ(hit.exit_code, 0) << hit.err;
  EXPECT_EQ(hit.json()["cache"], "hit");

  const Finished nobody = stats(endpoint, "");
  EXPECT_EQ(nobody.exit_code, 2);
  EXPECT_NE(nobody.err.find("KILN_KEY"), std::string::npos) << nobody.err;
  ASSERT_EQ(
      kiln({"keys", "new", "eve", "--data-dir", at("elsewhere"), "--out", at("eve.key")}).exit_code,
      0);
  EXPECT_NE(stats(endpoint, at("eve.key")).exit_code, 0) << "another coordinator's key";
  EXPECT_NE(kiln({"keys", "list", "--data-dir", at("data")}).out.find("replica"),
            std::string::npos);
  ASSERT_EQ(kiln({"keys", "revoke", "replica", "--data-dir", at("data")}).exit_code, 0);
  Finished revoked;
  for (int i = 0; i < 600; ++i) {
    revoked = stats(endpoint, at("replica.key"));
    if (revoked.exit_code != 0) break;
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  EXPECT_EQ(revoked.exit_code, 2);
  EXPECT_NE(revoked.err.find("revoked"), std::string::npos) << revoked.err;
  EXPECT_EQ(stats(endpoint, at("ci.key")).exit_code, 0);
}

// A signing key that is changed: key files of before go on for the overlap, and stop where there is
// none; what a client keeps is good under its own pin both times.
TEST_F(KeysTest, AChangedSigningKeyIsTrustedByTheWordOfTheOldOne) {
  const auto serve = [this](auto ask) {
    std::filesystem::remove(at("kiln-coordinator.out"));
    auto coordinator = start("kiln-coordinator", {"--data-dir", at("data"), "--listen",
                                                  "tcp://0.0.0.0:0", "--http", "none"});
    const std::string endpoint = ready();
    {
      const auto worker = start("kiln-worker", {"--coordinator", endpoint, "--key", at("box.key"),
                                                "--cache-dir", at("worker"), "--name", "box"});
      wait_for_a_worker(endpoint);
      ask(endpoint);
    }
    coordinator.signal(SIGTERM);
    EXPECT_EQ(coordinator.wait(), 0);
  };
  const auto compile = [this](const std::string& endpoint, const std::string& key,
                              const std::string& cache) {
    return kiln({"compile", testing::small_graph("softmax.pt2"), "--coordinator", endpoint,
                 "--no-fallback", "--verify", "--json", "--cache-dir", at(cache)},
                at(key + ".key"));
  };
  const auto rotate = [this](const std::string& days) {
    const Finished done =
        kiln({"keys", "rotate", "--data-dir", at("data"), "--days", days, "--json"});
    EXPECT_EQ(done.exit_code, 0) << done.err;
    return done.exit_code == 0 ? done.json() : nlohmann::json();
  };
  make_key("box", "worker");  // the first key makes the signing key, too
  make_key("ci", "submit");
  serve([&](const std::string& endpoint) {
    const Finished tuned = compile(endpoint, "ci", "kept");
    EXPECT_EQ(tuned.exit_code, 0) << tuned.err;
  });

  const auto rotated = rotate("30");
  EXPECT_GT(rotated["endorsed_until_s"], 0);
  EXPECT_EQ(kiln({"keys", "rotate", "--data-dir", at("data")}).exit_code, 2) << "too soon";
  make_key("new", "submit");
  serve([&](const std::string& endpoint) {
    for (const std::string key : {"ci", "new"}) {
      const Finished hit = compile(endpoint, key, "fresh-" + key);
      EXPECT_EQ(hit.exit_code, 0) << key << ": " << hit.err;
      EXPECT_EQ(hit.json()["cache"], "hit");
      const Finished kept = compile("tcp://127.0.0.1:1", key, "fresh-" + key);
      EXPECT_EQ(kept.exit_code, 0) << key << ", from its directory: " << kept.err;
    }
    EXPECT_EQ(compile("tcp://127.0.0.1:1", "ci", "kept").exit_code, 0);
  });

  EXPECT_EQ(rotate("0")["endorsed_until_s"], 0);
  make_key("newest", "submit");
  serve([&](const std::string& endpoint) {
    const Finished refused = compile(endpoint, "new", "none");
    EXPECT_EQ(refused.exit_code, 2) << refused.out;
    EXPECT_NE(refused.err.find("new key file"), std::string::npos) << refused.err;
    EXPECT_EQ(compile(endpoint, "newest", "none").exit_code, 0);
  });
}

TEST_F(KeysTest, WhatIsWrongIsSaid) {
  EXPECT_EQ(kiln({"keys", "rotate", "--data-dir", at("data")}).exit_code, 2) << "no key yet";
  EXPECT_EQ(kiln({"keys"}).exit_code, 2);
  EXPECT_EQ(kiln({"keys", "new", "a b", "--data-dir", at("data")}).exit_code, 2);
  EXPECT_EQ(kiln({"keys", "new", "a", "--role", "king", "--data-dir", at("data")}).exit_code, 2);
  EXPECT_EQ(kiln({"keys", "revoke", "a", "--data-dir", at("data")}).exit_code, 2);
  EXPECT_EQ(kiln({"keys", "show", "--data-dir", at("data")}).exit_code, 2);
  make_key("a", "read");
  EXPECT_EQ(kiln({"keys", "new", "a", "--data-dir", at("data"), "--out", at("b.key")}).exit_code,
            2);
  EXPECT_FALSE(std::filesystem::exists(at("b.key")));
  EXPECT_EQ(kiln({"keys", "show", "--data-dir", at("data"), "--json"})
                .json()["server"]
                .get<std::string>()
                .size(),
            40u);
  EXPECT_EQ(stats("tcp://192.0.2.1:7557", "").exit_code, 2) << "no key";
  EXPECT_EQ(stats("tcp://127.0.0.1:1", at("nothing.key")).exit_code, 2);
}

}  // namespace
}  // namespace kiln
