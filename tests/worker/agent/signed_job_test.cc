#include "worker/agent/agent.h"

#include <gtest/gtest.h>

#include "compiler_core/base/signature.h"

namespace kiln {
namespace {

Job job_of(const SigningKey& key) {
  Job job;
  job.lease = 7;
  job.epoch = 3;
  job.kind = Job::Kind::kFinal;
  job.kernel_key = Digest::of("kernel");
  for (int i = 0; i < 2; ++i) {
    CandidateJob candidate;
    candidate.index = i;
    candidate.schedule = Schedule{"cpu.pointwise", {{"vector", i}}};
    candidate.recipe_json = "{}";
    candidate.binary = "binary " + std::to_string(i);
    candidate.signature = key.sign(signed_candidate(job.kernel_key, candidate.schedule.to_string(),
                                                    candidate.recipe_json, candidate.binary))
                              .bytes;
    job.candidates.push_back(candidate);
  }
  return job;
}

class SignedJob : public ::testing::Test {
 protected:
  // The results in place of the candidates that were taken out.
  std::vector<CandidateResult> check() {
    return take_out_unsigned(job, {key.public_key(), {}}, key.public_key());
  }
  const SigningKey key = SigningKey::generate();
  Job job = job_of(key);
};

TEST_F(SignedJob, WhatTheCoordinatorSignedIsKept) {
  EXPECT_TRUE(check().empty());
  EXPECT_EQ(job.candidates.size(), 2u);
}

TEST_F(SignedJob, EveryFlippedBitOfABinaryIsFound) {
  const std::string binary = job.candidates[1].binary;
  for (size_t bit = 0; bit < 8 * binary.size(); ++bit) {
    job = job_of(key);
    job.candidates[1].binary[bit / 8] ^= static_cast<char>(1 << bit % 8);
    const auto refused = check();
    ASSERT_EQ(refused.size(), 1u) << bit;
    EXPECT_EQ(refused[0].lease, 7u);
    EXPECT_EQ(refused[0].epoch, 3u);
    EXPECT_EQ(refused[0].index, 1);
    EXPECT_EQ(refused[0].verdict, Verdict::kDeviceLost);
    EXPECT_EQ(job.candidates.size(), 1u);
  }
}

TEST_F(SignedJob, AnUnsignedOneIsRefusedByName) {
  job.candidates[0].signature.clear();
  const auto refused = check();
  ASSERT_EQ(refused.size(), 1u);
  EXPECT_NE(refused[0].log.find("unsigned"), std::string::npos);
  EXPECT_NE(refused[0].log.find(job.kernel_key.short_hex()), std::string::npos);
}

TEST_F(SignedJob, TheSignatureOfAnotherCandidateIsRefused) {
  std::swap(job.candidates[0].signature, job.candidates[1].signature);
  EXPECT_EQ(check().size(), 2u);
}

TEST_F(SignedJob, TheSignatureOfAnotherKernelIsRefused) {
  job.kernel_key = Digest::of("another kernel");
  EXPECT_EQ(check().size(), 2u);
}

TEST_F(SignedJob, AnotherSignerIsRefused) {
  const SigningKey other = SigningKey::generate();
  EXPECT_EQ(take_out_unsigned(job, {key.public_key(), {}}, other.public_key()).size(), 2u);
}

TEST_F(SignedJob, WhatIsCompiledHereNeedsNone) {
  for (CandidateJob& candidate : job.candidates) {
    candidate.binary.clear();
    candidate.signature.clear();
  }
  EXPECT_TRUE(check().empty());
}

}  // namespace
}  // namespace kiln
