#include "compiler_core/program/revocations.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

Program program_of(int64_t serial) {
  Program program;
  program.key = Digest::of("program");
  program.serial = serial;
  program.kernels.resize(2);
  program.kernels[1].key = Digest::of("kernel");
  return program;
}

TEST(RevocationsTest, CoverWhatWasIssuedUpToTheirTime) {
  Revocations list(7);
  list.revoke_kernel(Digest::of("kernel"), 10);
  list.revoke_program(Digest::of("another"), 99);
  EXPECT_TRUE(list.cover(program_of(0))) << "older than any serial";
  EXPECT_TRUE(list.cover(program_of(10)));
  EXPECT_FALSE(list.cover(program_of(11))) << "made since";
  list.revoke_program(Digest::of("program"), 12);
  list.revoke_program(Digest::of("program"), 3);
  EXPECT_TRUE(list.cover(program_of(12))) << "the latest counts";
  EXPECT_FALSE(Revocations().cover(program_of(0)));
}

TEST(RevocationsTest, AreWrittenAndRead) {
  Revocations list(UINT64_C(1) << 62);
  list.revoke_kernel(Digest::of("kernel"), INT64_MAX);
  list.revoke_program(Digest::of("program"), 5);
  const auto read = Revocations::parse(list.to_text());
  ASSERT_TRUE(read);
  EXPECT_EQ(read->to_text(), list.to_text());
  EXPECT_EQ(read->serial(), list.serial());
  EXPECT_EQ(read->size(), 2u);
  EXPECT_TRUE(Revocations::parse(list.to_text() + "machine " + Digest::of("x").hex() + " 4\n"))
      << "a later version's";
}

TEST(RevocationsTest, WhatIsNoListIsRefused) {
  const std::string good = "kiln-revocations 1\nserial 5\n";
  ASSERT_TRUE(Revocations::parse(good));
  for (const std::string& bad :
       {std::string(), std::string("kiln-revocations 2\nserial 5\n"),
        std::string("kiln-revocations 1\n"), std::string("kiln-revocations 1\nserial 0\n"),
        std::string("kiln-revocations 1\nserial -5\n"), good + "kernel abc 5\n",
        good + "kernel " + Digest::of("k").hex() + "\n",
        good + "kernel " + Digest::of("k").hex() + " x\n"})
    EXPECT_FALSE(Revocations::parse(bad)) << bad;
}

TEST(ProvenanceTest, IsInTheManifestWithSerialAndTimeAndOlderManifestsHaveNone) {
  ProgramKernel kernel;
  kernel.family = "pointwise";
  const std::string without = kernel_to_json(kernel);
  EXPECT_EQ(without.find("provenance"), std::string::npos);
  EXPECT_EQ(kernel_from_json(without).value().provenance, Provenance{});
  kernel.provenance = {{"w", "alice"}, {"v", ""}, {{"x", "bob"}, {"y", "bob"}}};
  EXPECT_EQ(kernel_from_json(kernel_to_json(kernel)).value().provenance, kernel.provenance);
  EXPECT_EQ(keys_that_vouch(kernel.provenance), 2);
  EXPECT_EQ(keys_that_vouch({{"w", ""}, {}, {{"v", ""}}}), 0) << "no keys, nobody to tell apart";

  Program program;
  EXPECT_EQ(program_to_json(program).find("serial"), std::string::npos);
  program.serial = INT64_MAX;
  program.made_at_ms = 1'790'000'000'000;
  const auto read = program_from_json(program_to_json(program));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->serial, program.serial);
  EXPECT_EQ(read->made_at_ms, program.made_at_ms);
}

}  // namespace
}  // namespace kiln
