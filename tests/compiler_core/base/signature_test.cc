#include "compiler_core/base/signature.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <ctime>
#include <thread>

namespace kiln {
namespace {

constexpr char kManifest[] = "{\"key\":\"abc\",\"kernels\":[{\"blob\":\"00ff\"}]}";

std::string flipped(std::string text, size_t bit) {
  text[bit / 8] = static_cast<char>(text[bit / 8] ^ (1 << bit % 8));
  return text;
}

Status check(const Signature& signature, const SigningKey& key, std::string_view manifest) {
  return verify_signature(signed_program(manifest), signature, key.public_key(), "program abc");
}

TEST(Signature, OfTheTrustedSignerIsAccepted) {
  const SigningKey key = SigningKey::generate();
  EXPECT_TRUE(check(key.sign(signed_program(kManifest)), key, kManifest));
}

TEST(Signature, EveryFlippedBitOfTheManifestIsFound) {
  const SigningKey key = SigningKey::generate();
  const Signature signature = key.sign(signed_program(kManifest));
  for (size_t bit = 0; bit < 8 * (sizeof kManifest - 1); ++bit) {
    const Status status = check(signature, key, flipped(kManifest, bit));
    ASSERT_FALSE(status.has_value()) << bit;
    EXPECT_EQ(status.error().code, Code::kCorruption);
    EXPECT_NE(status.error().message.find("program abc"), std::string::npos);
  }
}

TEST(Signature, EveryFlippedBitOfTheSignatureIsFound) {
  const SigningKey key = SigningKey::generate();
  Signature signature = key.sign(signed_program(kManifest));
  const std::string good = signature.bytes;
  for (size_t bit = 0; bit < 8 * kSignatureBytes; ++bit) {
    signature.bytes = flipped(good, bit);
    EXPECT_FALSE(check(signature, key, kManifest).has_value()) << bit;
  }
  for (size_t size = 1; size < kSignatureBytes; ++size) {
    signature.bytes = good.substr(0, size);
    EXPECT_FALSE(check(signature, key, kManifest).has_value()) << size;
  }
}

TEST(Signature, SomebodyElsesIsRefusedAndBothAreNamed) {
  const SigningKey trusted = SigningKey::generate(), other = SigningKey::generate();
  const Status status = check(other.sign(signed_program(kManifest)), trusted, kManifest);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kPermissionDenied);
  for (const SigningKey* key : {&trusted, &other})
    EXPECT_NE(status.error().message.find(to_hex(key->public_key()).substr(0, 16)),
              std::string::npos);
}

TEST(Signature, OfSomebodyWhoPosesAsTheTrustedOneIsRefused) {
  const SigningKey trusted = SigningKey::generate(), other = SigningKey::generate();
  Signature forged = other.sign(signed_program(kManifest));
  forged.signer = trusted.public_key();
  EXPECT_EQ(check(forged, trusted, kManifest).error().code, Code::kCorruption);
}

TEST(Signature, WhatIsUnsignedIsRefused) {
  const SigningKey trusted = SigningKey::generate();
  const Status status = check({}, trusted, kManifest);
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, Code::kPermissionDenied);
  EXPECT_NE(status.error().message.find("unsigned"), std::string::npos);
}

TEST(Signature, OfOneKindIsNoneOfAnother) {
  const SigningKey key = SigningKey::generate();
  const Digest kernel = Digest::of("kernel");
  const Digest messages[] = {signed_program(kManifest),
                             signed_copy(kernel, kManifest, ""),
                             signed_copy(kernel, kManifest, "x"),
                             signed_candidate(kernel, "", "", "b"),
                             signed_candidate(kernel, "s", "", "b"),
                             signed_candidate(kernel, "", "s", "b"),
                             signed_candidate(Digest::of("other"), "", "", "b")};
  for (const Digest& signed_message : messages)
    for (const Digest& claimed : messages)
      EXPECT_EQ(
          verify_signature(claimed, key.sign(signed_message), key.public_key(), "it").has_value(),
          claimed == signed_message);
}

TEST(Signature, TextFormRoundTripsAndRefusesAnythingElse) {
  const Signature signature = SigningKey::generate().sign(signed_program(kManifest));
  const std::string text = signature.to_string();
  EXPECT_EQ(Signature::parse(text).value(), signature);
  EXPECT_EQ(Signature::parse("").value(), Signature{});
  for (const std::string& bad : {text + "0", text.substr(1), text.substr(0, 80), std::string("x y"),
                                 std::string("ed25519 "), std::string("ed25519 00 00")})
    EXPECT_FALSE(Signature::parse(bad).has_value()) << bad;
}

class SigningKeyFile : public ::testing::Test {
 protected:
  static int mode_of(const Path& path) {
    struct stat facts {};
    EXPECT_EQ(::stat(path.c_str(), &facts), 0);
    return facts.st_mode & 0777;
  }
  const TempDir dir = *TempDir::create();
  const Path folder = dir.path() / "signing";
};

TEST_F(SigningKeyFile, IsMadeOnceAndNobodyElseCanReadIt) {
  const auto made = SigningKey::load_or_create(folder);
  ASSERT_TRUE(made.has_value()) << made.error().message;
  EXPECT_EQ(mode_of(folder / "ed25519.key"), 0600);
  EXPECT_EQ(mode_of(folder / "ed25519.pub") & 0444, 0444);
  const auto again = SigningKey::load_or_create(folder);
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->public_key(), made->public_key());
  EXPECT_EQ(read_public_key(folder).value(), made->public_key());
}

// Many that begin at once sign with one key: another's would make each other's signatures void.
TEST_F(SigningKeyFile, IsOneWhoeverMakesItFirst) {
  std::vector<std::string> keys(8);
  std::vector<std::thread> makers;
  for (std::string& key : keys)
    makers.emplace_back([&] { key = SigningKey::load_or_create(folder).value().public_key(); });
  for (std::thread& maker : makers) maker.join();
  for (const std::string& key : keys) EXPECT_EQ(key, read_public_key(folder).value());
}

TEST_F(SigningKeyFile, LeavesNothingOfOneThatWasKilledWhileItMadeOne) {
  std::filesystem::create_directories(folder);
  const Path half = folder / ("ed25519.key.tmp." + std::to_string(1 << 30) + ".0");
  ASSERT_TRUE(write_file(half, "12"));
  ASSERT_TRUE(SigningKey::load_or_create(folder).has_value());
  EXPECT_FALSE(std::filesystem::exists(half));
}

TEST_F(SigningKeyFile, ThatOthersCanReadIsRefused) {
  ASSERT_TRUE(SigningKey::load_or_create(folder).has_value());
  ASSERT_EQ(::chmod((folder / "ed25519.key").c_str(), 0644), 0);
  const auto again = SigningKey::load_or_create(folder);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kPermissionDenied);
}

TEST_F(SigningKeyFile, ThatIsNoneIsRefusedAndNotReplaced) {
  ASSERT_TRUE(SigningKey::load_or_create(folder).has_value());
  ASSERT_TRUE(write_file(folder / "ed25519.key", "torn").has_value());
  const auto again = SigningKey::load_or_create(folder);
  ASSERT_FALSE(again.has_value());
  EXPECT_EQ(again.error().code, Code::kCorruption);
  EXPECT_EQ(read_file(folder / "ed25519.key").value(), "torn");
}

class Rotation : public ::testing::Test {
 protected:
  SigningKey rotated(std::chrono::seconds overlap) {
    auto key = SigningKey::rotate(folder.path(), overlap);
    EXPECT_TRUE(key) << key.error().message;
    return *std::move(key);
  }
  const TempDir folder = *TempDir::create("kiln-rotation");
  const SigningKey first = *SigningKey::load_or_create(folder.path());
};

TEST_F(Rotation, TheOldKeysWordMakesTheNewOneTrusted) {
  const SigningKey next = rotated(std::chrono::hours(1));
  EXPECT_NE(next.public_key(), first.public_key());
  const Signature signature = next.sign(signed_program(kManifest));
  EXPECT_TRUE(check(signature, first, kManifest));
  EXPECT_TRUE(check(signature, next, kManifest));
  EXPECT_EQ(check(signature, first, flipped(kManifest, 9)).error().code, Code::kCorruption);
  const SigningKey loaded = *SigningKey::load_or_create(folder.path());
  EXPECT_EQ(loaded.sign(signed_program(kManifest)), signature);
  EXPECT_EQ(*read_public_key(folder.path()), next.public_key());
}

TEST_F(Rotation, WithoutThatWordOnlyTheNewKeyIsTrusted) {
  const SigningKey next = rotated(std::chrono::seconds(0));
  const Signature signature = next.sign(signed_program(kManifest));
  EXPECT_EQ(check(signature, first, kManifest).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(check(signature, next, kManifest));
}

TEST_F(Rotation, AnEndorsementIsOfOneKeyAndEnds) {
  const SigningKey next = rotated(std::chrono::hours(1)), other = SigningKey::generate();
  Signature signature = other.sign(signed_program(kManifest));
  signature.endorsement = next.endorsement();
  EXPECT_EQ(check(signature, first, kManifest).error().code, Code::kPermissionDenied);

  const auto word_until = [&](int64_t until_s) {
    Signature made = next.sign(signed_program(kManifest));
    made.endorsement = {first.public_key(), until_s,
                        first.sign(signed_endorsement(next.public_key(), until_s)).bytes};
    return made;
  };
  const int64_t now_s = std::time(nullptr);
  EXPECT_TRUE(check(word_until(now_s + 60), first, kManifest));
  EXPECT_EQ(check(word_until(now_s - 60), first, kManifest).error().code, Code::kPermissionDenied);
  Signature longer = next.sign(signed_program(kManifest));
  longer.endorsement.until_s += 3'600;  // nobody but the old key prolongs it
  EXPECT_EQ(check(longer, first, kManifest).error().code, Code::kPermissionDenied);
}

TEST_F(Rotation, IsRefusedWhileKeyFilesDependOnTheLastOne) {
  const SigningKey next = rotated(std::chrono::hours(1));
  EXPECT_EQ(SigningKey::rotate(folder.path(), std::chrono::hours(1)).error().code,
            Code::kInvalidArgument);
  EXPECT_EQ(SigningKey::load_or_create(folder.path())->public_key(), next.public_key());
  rotated(std::chrono::seconds(0));  // for a key that is known to others there is no waiting
}

TEST_F(Rotation, AnEndorsementOfAKeyThatWasNeverPutInPlaceSaysNothing) {
  const SigningKey next = SigningKey::generate();
  const int64_t until_s = std::time(nullptr) + 60;
  const Endorsement word{first.public_key(), until_s,
                         first.sign(signed_endorsement(next.public_key(), until_s)).bytes};
  ASSERT_TRUE(publish_file(folder.path() / "endorsements",
                           to_hex(next.public_key()) + " " + word.to_string() + "\n"));
  ASSERT_TRUE(publish_file(folder.path() / "next.key", "half"));  // killed before the rename
  EXPECT_EQ(SigningKey::load_or_create(folder.path())->endorsement(), Endorsement{});
  EXPECT_TRUE(SigningKey::rotate(folder.path(), std::chrono::hours(1)));
}

TEST_F(Rotation, NeedsAKey) {
  EXPECT_EQ(SigningKey::rotate(folder.path() / "none", std::chrono::hours(1)).error().code,
            Code::kNotFound);
}

TEST_F(Rotation, SignaturesKeepTheirEndorsementAsText) {
  const Signature signature = rotated(std::chrono::hours(1)).sign(signed_program(kManifest));
  const std::string text = signature.to_string();
  EXPECT_EQ(*Signature::parse(text), signature);
  for (size_t end = 1; end < text.size(); ++end) {
    if (const auto part = Signature::parse(text.substr(0, end))) {
      EXPECT_EQ(part->endorsement, Endorsement{}) << end;
    }
  }
}

}  // namespace
}  // namespace kiln
