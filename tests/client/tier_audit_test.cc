// `kiln cache verify` of a client's cache: what is unsigned, wrongly signed or altered is named,
// and nothing is changed.
#include <gtest/gtest.h>

#include "cache/audit.h"
#include "client/local_tier.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

class TierAudit : public ::testing::Test {
 protected:
  void SetUp() override {
    const auto tier = LocalTier::open(dir_.path()).value();
    for (int n : {1, 2}) {
      ProgramFiles files{samples::program(n), {}, program_to_json(samples::program(n)), {}};
      files.artifacts.push_back(
          {files.program.kernels[0].recipe, samples::blob(n), Digest::of(samples::blob(n))});
      files.signature = coordinator_.sign(signed_program(files.manifest));
      ASSERT_TRUE(tier->put(samples::key("program", n), files));
    }
  }
  Path program_file(int n, const char* ending) const {
    return dir_.path() / "programs" / (samples::key("program", n).hex() + ending);
  }
  // "program 0123456789ab: ...".
  std::vector<std::string> findings(std::string_view signer) const {
    const auto report = audit_local_tier(dir_.path(), signer);
    EXPECT_TRUE(report) << report.error().message;
    std::vector<std::string> found;
    for (const Finding& finding : report->findings)
      found.push_back(fmt::format("{} {}: {}", to_string(finding.kind), finding.key.short_hex(),
                                  finding.problem));
    return found;
  }
  std::vector<std::string> findings() const { return findings(coordinator_.public_key()); }
  // The only finding, of program n.
  void expect_found(int n, const char* problem) const {
    const auto found = findings();
    ASSERT_EQ(found.size(), 1u);
    EXPECT_EQ(found[0].find("program " + samples::key("program", n).short_hex()), 0u) << found[0];
    EXPECT_NE(found[0].find(problem), std::string::npos) << found[0];
  }

  TempDir dir_ = TempDir::create("kiln-tier-audit").value();
  const SigningKey coordinator_ = SigningKey::generate();
};

TEST_F(TierAudit, ASoundOneIsReadThrough) {
  const auto report = audit_local_tier(dir_.path(), coordinator_.public_key()).value();
  EXPECT_EQ(report.programs, 2);
  EXPECT_EQ(report.blobs, 2);
  EXPECT_TRUE(report.findings.empty());
}

TEST_F(TierAudit, WhatWasCompiledHereIsNamedWhereASignerIsKnown) {
  const auto tier = LocalTier::open(dir_.path()).value();
  ProgramFiles files{samples::program(1), {}, {}, {}};
  files.artifacts.push_back(
      {files.program.kernels[0].recipe, samples::blob(1), Digest::of(samples::blob(1))});
  ASSERT_TRUE(tier->put(samples::key("program", 1), files));
  expect_found(1, "carries no signature");
  EXPECT_TRUE(findings("").empty());
}

TEST_F(TierAudit, AnUnsignedProgramIsNamed) {
  std::filesystem::remove(program_file(1, ".sig"));
  expect_found(1, "unsigned");
  EXPECT_TRUE(std::filesystem::exists(program_file(1, ".json"))) << "it only reads";
}

TEST_F(TierAudit, AnAlteredManifestIsNamed) {
  samples::flip_one_bit(program_file(2, ".json"));
  expect_found(2, "altered");
}

TEST_F(TierAudit, AnotherCoordinatorsProgramsAreFoundWhenOursIsKnown) {
  const auto found = findings(SigningKey::generate().public_key());
  ASSERT_EQ(found.size(), 2u);
  EXPECT_NE(found[0].find("is signed by"), std::string::npos) << found[0];
  EXPECT_TRUE(findings("").empty()) << "the tier's own signatures are good";
}

TEST_F(TierAudit, TheSignaturesOfAnotherProgramAreFound) {
  std::filesystem::copy_file(program_file(2, ".sig"), program_file(1, ".sig"),
                             std::filesystem::copy_options::overwrite_existing);
  expect_found(1, "altered");
}

TEST_F(TierAudit, AnAlteredOrMissingBinaryIsNamed) {
  samples::flip_one_bit(samples::blob_path(dir_.path(), 1));
  std::filesystem::remove(samples::blob_path(dir_.path(), 2));
  std::string all;
  for (const std::string& finding : findings()) all += finding + "\n";
  EXPECT_NE(all.find("blob " + Digest::of(samples::blob(1)).short_hex()), std::string::npos) << all;
  EXPECT_NE(all.find("altered"), std::string::npos) << all;
  EXPECT_NE(all.find("missing"), std::string::npos) << all;
}

TEST_F(TierAudit, ACoordinatorsStoreIsNone) {
  ASSERT_TRUE(write_file(dir_.path() / "index.sqlite", ""));
  EXPECT_FALSE(is_local_tier(dir_.path()));
  EXPECT_EQ(audit_local_tier(dir_.path(), "").error().code, Code::kNotFound);
}

}  // namespace
}  // namespace kiln
