#include "coordinator/storage/offers.h"

#include <gtest/gtest.h>

#include "coordinator/storage/artifact_offers.h"

namespace kiln {
namespace {

OfferedKernel offered_kernel(const std::string& name) {
  OfferedKernel offered;
  offered.name = name;
  offered.workload = Digest::of("a workload");
  offered.target = *Target::parse("cpu:x86-64-v3");
  offered.recipe.workspace_bytes = 0;
  offered.recipe.phases = {{"entry", 1}};
  offered.binary = "binary";
  return offered;
}

class OffersTest : public ::testing::Test {
 protected:
  void put(const OfferedKernel& offered) {
    Status stored = fail(Code::kInternal, "not yet");
    offers_.put({offered.key(), "alice", 1'000}, offered_to_text(offered),
                [&stored](Status status) { stored = std::move(status); });
    store_->flush();
    EXPECT_TRUE(stored);
  }
  std::vector<std::string> names(Offers& offers) const {
    std::vector<std::string> names;
    for (const OfferedKernel& each : offers.of(first_.workload, first_.target))
      names.push_back(each.name);
    return names;
  }
  Program program_of(const TemplateVersions& templates, Mode mode = Mode::kMaxAutotune) const {
    Program program;
    program.target = first_.target;
    program.target.device_model = "a model";
    program.mode = mode;
    program.kernels.emplace_back().workload = first_.workload;
    program.kernels[0].templates = templates;
    return program;
  }

  const TempDir dir_ = *TempDir::create("kiln-offers");
  const Path file_ = dir_.path() / kArtifactsFile;
  const std::unique_ptr<ArtifactStore> store_ =
      *ArtifactStore::open(file_, *SigningKey::load_or_create(dir_.path() / "signing"),
                           {.now_ms = [] { return int64_t{1'000}; }});
  ArtifactOffers table_{*store_, file_};
  Offers offers_{table_};
  const OfferedKernel first_ = offered_kernel("first"), second_ = offered_kernel("second");
};

TEST_F(OffersTest, GivesWhatIsOfferedForAWorkloadAndTarget) {
  put(first_);
  put(second_);
  put(second_);
  EXPECT_EQ(names(offers_), (std::vector<std::string>{"first", "second"}));
  EXPECT_TRUE(offers_.of(Digest::of("another"), first_.target).empty());
  EXPECT_TRUE(offers_.of(first_.workload, *Target::parse("cpu:x86-64-v4")).empty());
}

TEST_F(OffersTest, AnotherIncarnationKnowsThem) {
  put(first_);
  Offers again(table_);
  ASSERT_TRUE(again.read());
  EXPECT_EQ(names(again), (std::vector<std::string>{"first"}));
}

TEST_F(OffersTest, WhatTheStoreHasNoLongerIsForgotten) {
  put(first_);
  store_->take_back("alice", INT64_MAX, nullptr);
  EXPECT_TRUE(offers_.has_untried(program_of({})));
  EXPECT_TRUE(names(offers_).empty());
  EXPECT_FALSE(offers_.has_untried(program_of({})));
}

TEST_F(OffersTest, WhatARevokedKeyOfferedIsTakenBack) {
  put(first_);
  EXPECT_TRUE(offers_.take_back("bob", 2'000).empty());
  EXPECT_TRUE(offers_.take_back("alice", 1'000).empty()) << "a key of that name that came later";
  EXPECT_EQ(offers_.take_back("alice", 1'001), std::vector{first_.template_name()});
  EXPECT_TRUE(names(offers_).empty());
}

// A coordinator that dies over it leaves what the next one needs to do it.
TEST_F(OffersTest, WhatARevokedKeyOfferedIsKnownUntilWhatItWonIsTakenBack) {
  put(first_);
  const std::vector<std::string> name = {first_.template_name()};
  EXPECT_EQ(offers_.take_back("alice", 1'001), name);
  EXPECT_EQ(offers_.take_back("alice", 1'001), name) << "the store did not take it the first time";
  Offers next(table_);
  ASSERT_TRUE(next.read());
  EXPECT_EQ(next.take_back("alice", 1'001), name);
  next.was_taken_back("alice", 1'001);
  store_->flush();
  Offers last(table_);
  ASSERT_TRUE(last.read());
  EXPECT_TRUE(last.take_back("alice", 1'001).empty());
}

TEST_F(OffersTest, WhatIsTakenBackAndOfferedAgainByAnotherIsAnOffer) {
  put(first_);
  EXPECT_FALSE(offers_.is_taken_back(first_.template_name()));
  (void)offers_.take_back("alice", 1'001);
  EXPECT_TRUE(offers_.is_taken_back(first_.template_name()));
  put(first_);
  EXPECT_FALSE(offers_.is_taken_back(first_.template_name()));
  EXPECT_EQ(names(offers_), (std::vector<std::string>{"first"}));
}

TEST_F(OffersTest, AProgramIsStaleUntilEachOfferWasTried) {
  EXPECT_FALSE(offers_.has_untried(program_of({})));
  put(first_);
  EXPECT_TRUE(offers_.has_untried(program_of({{"cpu.pointwise", 1}})));
  EXPECT_FALSE(offers_.has_untried(program_of({{"cpu.pointwise", 1}}, Mode::kDefault)));
  const TemplateVersions tried = {{"cpu.pointwise", 1}, {first_.template_name(), 1}};
  EXPECT_FALSE(offers_.has_untried(program_of(tried)));
  put(second_);
  EXPECT_TRUE(offers_.has_untried(program_of(tried)));
}

TEST_F(OffersTest, AnOfferThatIsGoneMakesNothingStale) {
  const TemplateVersions now = {{"cpu.pointwise", 1}};
  EXPECT_EQ(Offers::without_gone({{"cpu.pointwise", 1}, {first_.template_name(), 1}}, now), now);
  EXPECT_NE(Offers::without_gone(now, {{"cpu.pointwise", 1}, {first_.template_name(), 1}}),
            (TemplateVersions{{"cpu.pointwise", 1}, {first_.template_name(), 1}}));
}

TEST_F(OffersTest, OnlyAnOfferedKernelUnderItsKeyAndForAllIsTaken) {
  const std::string text = offered_to_text(first_);
  EXPECT_TRUE(Offers::check(first_.key(), text, {}));
  EXPECT_EQ(Offers::check(second_.key(), text, {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(Offers::check(first_.key(), "no kernel", {}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(Offers::check(first_.key(), text, Audience::of_team("a")).error().code,
            Code::kPermissionDenied);
}

}  // namespace
}  // namespace kiln
