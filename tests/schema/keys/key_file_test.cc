#include "schema/keys/key_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "schema/keys/keyring.h"

namespace kiln {
namespace {

class KeyFileTest : public ::testing::Test {
 protected:
  Path folder() const { return dir_.path() / "keys"; }
  static unsigned mode_of(const Path& path) {
    struct stat status {};
    return ::stat(path.c_str(), &status) == 0 ? status.st_mode & 0777 : 0;
  }
  static AuthorizedKey key_of(const std::string& name, Grant grant = Grant::kSubmit) {
    return {grant, name, make_key_pair().public_key};
  }
  void write_authorized(const std::string& text) const {
    ASSERT_TRUE(make_directories(folder()).has_value());
    ASSERT_TRUE(publish_file(folder() / "authorized_keys", text).has_value());
  }

  const TempDir dir_ = *TempDir::create("kiln-keys");
};

TEST_F(KeyFileTest, PairsAreNotAlike) {
  const KeyPair a = make_key_pair(), b = make_key_pair();
  EXPECT_EQ(a.public_key.size(), 40u);
  EXPECT_EQ(a.secret_key.size(), 40u);
  EXPECT_NE(a.public_key, b.public_key);
  EXPECT_NE(a.secret_key, b.secret_key);
}

// Z85 has every sign that a reader of lines could stumble over, so: many of them.
TEST_F(KeyFileTest, AClientsKeyComesBackWholeAndIsItsOwnersAlone) {
  for (int i = 0; i < 40; ++i) {
    const Path file = dir_.path() / (std::to_string(i) + ".key");
    const ClientKey key{"ci@example.com", Grant::kSubmit, make_key_pair(),
                        make_key_pair().public_key, std::string(64, 'a')};
    ASSERT_TRUE(write_client_key(file, key).has_value());
    EXPECT_EQ(mode_of(file), 0600u);
    const auto read = read_client_key(file);
    ASSERT_TRUE(read.has_value()) << read.error().message;
    EXPECT_EQ(read->name, key.name);
    EXPECT_EQ(read->grant, key.grant);
    EXPECT_EQ(read->pair.public_key, key.pair.public_key);
    EXPECT_EQ(read->pair.secret_key, key.pair.secret_key);
    EXPECT_EQ(read->server_key, key.server_key);
    EXPECT_EQ(read->signing_key, key.signing_key);
  }
}

TEST_F(KeyFileTest, AFileOfKeysIsNeverOverwritten) {
  const Path file = dir_.path() / "a.key";
  const ClientKey key{"a", Grant::kRead, make_key_pair(), make_key_pair().public_key, ""};
  ASSERT_TRUE(write_client_key(file, key).has_value());
  const std::string before = *read_file(file);
  EXPECT_EQ(write_client_key(file, key).error().code, Code::kInvalidArgument);
  EXPECT_EQ(*read_file(file), before);
}

TEST_F(KeyFileTest, AKeyThatAnybodyCanReadIsRefused) {
  const Path file = dir_.path() / "a.key";
  ASSERT_TRUE(
      write_client_key(file, {"a", Grant::kRead, make_key_pair(), make_key_pair().public_key, ""})
          .has_value());
  ::chmod(file.c_str(), 0644);
  const auto read = read_client_key(file);
  ASSERT_FALSE(read.has_value());
  EXPECT_EQ(read.error().code, Code::kPermissionDenied);
  EXPECT_NE(read.error().message.find("chmod 600"), std::string::npos);
  ::chmod(file.c_str(), 0440);  // a secret that Kubernetes mounts
  EXPECT_TRUE(read_client_key(file).has_value());
}

TEST_F(KeyFileTest, SaysWhatIsWrongWithAFile) {
  const Path file = dir_.path() / "a.key";
  EXPECT_EQ(read_client_key(file).error().code, Code::kNotFound);
  const std::string good = "name = a\nrole = read\npublic = " + make_key_pair().public_key +
                           "\nsecret = " + make_key_pair().secret_key +
                           "\nserver = " + make_key_pair().public_key + "\n";
  const auto refused = [&](const std::string& text) {
    EXPECT_TRUE(write_file(file, text).has_value());
    ::chmod(file.c_str(), 0600);
    const auto read = read_client_key(file);
    return read ? Code::kInternal : read.error().code;
  };
  EXPECT_EQ(refused(good), Code::kInternal);  // not refused: signing_key may be absent
  EXPECT_EQ(refused("hello"), Code::kInvalidArgument);
  EXPECT_EQ(refused(""), Code::kInvalidArgument);
  EXPECT_EQ(refused(good + "secret = short\n"), Code::kInvalidArgument);
  EXPECT_EQ(refused(good + "secret = " + std::string(40, '"') + "\n"), Code::kInvalidArgument);
  for (const char c : {'\0', ' ', '"', '~'}) {  // libzmq would take some of these
    std::string secret(40, '0');
    secret[20] = c;
    EXPECT_EQ(refused(good + "secret = " + secret + "\n"), Code::kInvalidArgument) << c;
  }
  EXPECT_EQ(refused(good + "role = king\n"), Code::kInvalidArgument);
  EXPECT_EQ(refused(good + "name = ../../etc\n"), Code::kInvalidArgument);
}

TEST_F(KeyFileTest, ACoordinatorsPairIsMadeOnce) {
  EXPECT_EQ(read_server_keys(folder()).error().code, Code::kNotFound);
  const auto made = ensure_server_keys(folder());
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(ensure_server_keys(folder())->secret_key, made->secret_key);
  EXPECT_EQ(read_server_keys(folder())->public_key, made->public_key);
  EXPECT_EQ(mode_of(folder()), 0700u);
  EXPECT_EQ(mode_of(folder() / "coordinator.key"), 0600u);
}

TEST_F(KeyFileTest, ACoordinatorThatIsKilledWhileItMakesItsPairMakesAnother) {
  const pid_t killed = ::fork();
  if (killed == 0) {
    const rlimit few{10, 10};  // bytes of a file: the next one kills
    ::setrlimit(RLIMIT_FSIZE, &few);
    (void)ensure_server_keys(folder());
    ::_exit(0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(killed, &status, 0), killed);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto made = ensure_server_keys(folder());
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(read_server_keys(folder())->public_key, made->public_key);
  for (const auto& entry : std::filesystem::directory_iterator(folder()))
    EXPECT_EQ(entry.path().string().find(".tmp."), std::string::npos) << entry.path();
}

TEST_F(KeyFileTest, ACoordinatorsPairThatAnybodyCanReadIsRefused) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  ::chmod((folder() / "coordinator.key").c_str(), 0644);
  EXPECT_EQ(read_server_keys(folder()).error().code, Code::kPermissionDenied);
  EXPECT_EQ(ensure_server_keys(folder()).error().code, Code::kPermissionDenied);
  ::chmod((folder() / "coordinator.key").c_str(), 0440);
  EXPECT_TRUE(read_server_keys(folder()).has_value());
}

TEST_F(KeyFileTest, KeysAreAddedListedAndRevoked) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  const AuthorizedKey ci = key_of("ci"), bob = key_of("bob", Grant::kAdmin);
  ASSERT_TRUE(authorize(folder(), ci).has_value());
  ASSERT_TRUE(authorize(folder(), bob).has_value());
  EXPECT_EQ(authorize(folder(), key_of("ci")).error().code, Code::kInvalidArgument);
  EXPECT_EQ(authorize(folder(), key_of("no spaces")).error().code, Code::kInvalidArgument);
  auto keys = *read_authorized_keys(folder());
  ASSERT_EQ(keys.size(), 2u);
  EXPECT_EQ(keys[0].name, "ci");
  EXPECT_EQ(keys[0].public_key, ci.public_key);
  EXPECT_EQ(keys[1].grant, Grant::kAdmin);
  EXPECT_EQ(revoke(folder(), "nobody").error().code, Code::kNotFound);
  ASSERT_TRUE(revoke(folder(), "ci").has_value());
  keys = *read_authorized_keys(folder());
  ASSERT_EQ(keys.size(), 1u);
  EXPECT_EQ(keys[0].name, "bob");
}

TEST_F(KeyFileTest, OptionsOfAKeyAreKeptAndThoseThatMakeNoSenseRefused) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  AuthorizedKey ci = key_of("ci"), gpu = key_of("gpu", Grant::kWorker);
  ci.share = Share::kTeam;
  EXPECT_EQ(authorize(folder(), ci).error().code, Code::kInvalidArgument) << "which team?";
  ci.team = "vision";
  gpu.trust = Trust::kScreens;
  ASSERT_TRUE(authorize(folder(), ci).has_value());
  ASSERT_TRUE(authorize(folder(), gpu).has_value());
  ASSERT_TRUE(authorize(folder(), key_of("plain")).has_value());
  const auto keys = read_authorized_keys(folder()).value();
  ASSERT_EQ(keys.size(), 3u);
  EXPECT_EQ(keys[0].user(), ci.user());
  EXPECT_EQ(keys[1].user(), gpu.user());
  EXPECT_EQ(options_of(keys[0]), "share=team team=vision");
  EXPECT_EQ(options_of(keys[1]), "trust=screens");
  EXPECT_EQ(options_of(keys[2]), "");
  AuthorizedKey bad = key_of("bad");
  bad.trust = Trust::kAlone;
  EXPECT_FALSE(authorize(folder(), bad)) << "trust is a worker's";
  bad = key_of("bad", Grant::kWorker);
  bad.share = Share::kPrivate;
  EXPECT_FALSE(authorize(folder(), bad)) << "a worker has no programs";
  bad = key_of("bad");
  bad.team = "two words";
  EXPECT_FALSE(authorize(folder(), bad));
  for (const char* option : {"share=some", "trust=", "colour=red", "share", "team=a b"}) {
    write_authorized("submit ci " + ci.public_key + " " + option + "\n");
    EXPECT_EQ(read_authorized_keys(folder()).error().code, Code::kInvalidArgument) << option;
  }
}

TEST_F(KeyFileTest, WhatIsRevokedIsRememberedWithWhatBecomesOfItsResults) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  EXPECT_TRUE(read_revoked_keys(folder())->empty());
  for (const char* name : {"evil", "retired"})
    ASSERT_TRUE(authorize(folder(), key_of(name)).has_value());
  ASSERT_TRUE(revoke(folder(), "evil").has_value());
  ASSERT_TRUE(revoke(folder(), "retired", true).has_value());
  const auto revoked = read_revoked_keys(folder()).value();
  ASSERT_EQ(revoked.size(), 2u);
  EXPECT_EQ(revoked[0].name, "evil");
  EXPECT_FALSE(revoked[0].keep_results);
  EXPECT_GT(revoked[0].at_ms, 1'700'000'000'000);
  EXPECT_TRUE(revoked[1].keep_results);
  ASSERT_TRUE(write_file(folder() / "revoked_keys", "evil yesterday taken\n"));
  EXPECT_EQ(read_revoked_keys(folder()).error().code, Code::kInvalidArgument);
}

TEST_F(KeyFileTest, NoKeyIsLostWhenSeveralAreAddedAtOnce) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  std::vector<std::thread> people;
  for (int i = 0; i < 8; ++i)
    people.emplace_back(
        [&, i] { EXPECT_TRUE(authorize(folder(), key_of("n" + std::to_string(i))).has_value()); });
  for (std::thread& person : people) person.join();
  EXPECT_EQ(read_authorized_keys(folder())->size(), 8u);
}

TEST_F(KeyFileTest, ALineThatCannotBeReadIsNamed) {
  write_authorized("# mine\n\nsubmit ci " + make_key_pair().public_key + "\nread bob tooshort\n");
  const auto keys = read_authorized_keys(folder());
  ASSERT_FALSE(keys.has_value());
  EXPECT_NE(keys.error().message.find("line 4"), std::string::npos) << keys.error().message;
}

TEST_F(KeyFileTest, AKeyringSeesWhatChangesAndKeepsWhatItHasWhenItCannotRead) {
  ASSERT_TRUE(ensure_server_keys(folder()).has_value());
  const AuthorizedKey ci = key_of("ci");
  ASSERT_TRUE(authorize(folder(), ci).has_value());
  const auto ring = *Keyring::open(folder());
  ASSERT_TRUE(ring->find(ci.public_key).has_value());
  EXPECT_EQ(ring->find(ci.public_key)->name, "ci");
  EXPECT_FALSE(ring->find("").has_value());
  EXPECT_FALSE(*ring->refresh());
  write_authorized("nonsense\n");
  EXPECT_EQ(ring->refresh().error().code, Code::kInvalidArgument);
  EXPECT_FALSE(*ring->refresh()) << "it says so once";
  EXPECT_TRUE(ring->find(ci.public_key).has_value());
  write_authorized("read ci " + ci.public_key + "\n");
  EXPECT_TRUE(*ring->refresh());
  EXPECT_EQ(ring->find(ci.public_key)->grant, Grant::kRead);
  write_authorized("");
  EXPECT_TRUE(*ring->refresh());
  EXPECT_FALSE(ring->find(ci.public_key).has_value());
}

TEST(Grant, CoversWhatItShould) {
  const Grant all[] = {Grant::kRead, Grant::kSubmit, Grant::kPublish, Grant::kWorker,
                       Grant::kAdmin};
  for (const Grant grant : all) {
    EXPECT_TRUE(covers(Grant::kAdmin, grant));
    EXPECT_EQ(covers(grant, Grant::kAdmin), grant == Grant::kAdmin);
    EXPECT_EQ(covers(Grant::kRead, grant), grant == Grant::kRead);
    EXPECT_EQ(covers(Grant::kWorker, grant), grant == Grant::kWorker);
    EXPECT_EQ(*parse_grant(to_string(grant)), grant);
  }
  EXPECT_TRUE(covers(Grant::kSubmit, Grant::kRead));
  EXPECT_FALSE(covers(Grant::kSubmit, Grant::kWorker));
  EXPECT_TRUE(covers(Grant::kPublish, Grant::kSubmit));
  EXPECT_TRUE(covers(Grant::kPublish, Grant::kRead));
  EXPECT_FALSE(covers(Grant::kPublish, Grant::kWorker));
  EXPECT_FALSE(covers(Grant::kSubmit, Grant::kPublish));
  EXPECT_FALSE(parse_grant("root").has_value());
}

}  // namespace
}  // namespace kiln
