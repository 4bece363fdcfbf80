#include "compiler_core/base/digest.h"

#include <gtest/gtest.h>

#include <set>

namespace kiln {
namespace {

// RFC 7693 BLAKE2b with a 32-byte digest, of "abc" (published test vector).
TEST(Digest, IsBlake2b256) {
  EXPECT_EQ(Digest::of("abc").hex(),
            "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
}

TEST(Digest, HexRoundTripsAndBadHexIsRefused) {
  const Digest digest = Digest::of("x");
  EXPECT_EQ(*Digest::parse(digest.hex()), digest);
  EXPECT_FALSE(Digest::parse(digest.hex().substr(1)));
  EXPECT_FALSE(Digest::parse(std::string(64, 'g')));
}

TEST(Hasher, FieldsDoNotRunTogether) {
  std::set<Digest> seen;
  seen.insert(Hasher("d").add("ab").add("c").finish());
  seen.insert(Hasher("d").add("a").add("bc").finish());
  seen.insert(Hasher("d").add("abc").finish());
  seen.insert(Hasher("d").begin_list(1).add("abc").finish());
  seen.insert(Hasher("e").add("abc").finish());
  seen.insert(Hasher("d").add(int64_t{1}).finish());
  seen.insert(Hasher("d").add("1").finish());
  EXPECT_EQ(seen.size(), 7u);
}

}  // namespace
}  // namespace kiln
