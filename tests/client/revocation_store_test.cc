// What a client has heard is kept beside its programs, and counts only if it is signed.
#include "client/revocation_store.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

class RevocationStoreTest : public ::testing::Test {
 protected:
  static Program program() {
    Program program;
    program.key = Digest::of("program");
    return program;
  }
  static std::string list(uint64_t serial) {
    Revocations revoked(serial);
    revoked.revoke_program(program().key, 1);
    return revoked.to_text();
  }
  Signature signature(const std::string& text) const { return key_.sign(signed_revocations(text)); }
  Path file() const { return dir_.path() / "revoked"; }

  const TempDir dir_ = TempDir::create("kiln-revoked").value();
  const SigningKey key_ = SigningKey::generate();
};

TEST_F(RevocationStoreTest, TheNextProcessKnowsWhatThisOneHeard) {
  {
    RevocationStore store(file(), key_.public_key());
    EXPECT_TRUE(store.check(program()));
    store.hear(list(5), signature(list(5)));
    EXPECT_EQ(store.check(program()).error().code, Code::kUnavailable);
  }
  for (const std::string& signer : {key_.public_key(), std::string()}) {
    const RevocationStore next(file(), signer);
    EXPECT_EQ(next.serial(), 5u);
    EXPECT_TRUE(next.cover(program()));
  }
  EXPECT_EQ(RevocationStore(file(), SigningKey::generate().public_key()).serial(), 0u)
      << "another coordinator's";
}

TEST_F(RevocationStoreTest, AnOlderListChangesNothing) {
  RevocationStore store(file(), key_.public_key());
  store.hear(list(5), signature(list(5)));
  const std::string older = Revocations(4).to_text();
  store.hear(older, signature(older));
  EXPECT_EQ(store.serial(), 5u);
  EXPECT_TRUE(store.cover(program()));
}

TEST_F(RevocationStoreTest, AnAlteredFileIsNoList) {
  RevocationStore(file(), key_.public_key()).hear(list(5), signature(list(5)));
  std::string text = read_file(file()).value();
  text[text.size() - 2] = '9';
  ASSERT_TRUE(write_file(file(), text));
  EXPECT_EQ(RevocationStore(file(), key_.public_key()).serial(), 0u);
}

}  // namespace
}  // namespace kiln
