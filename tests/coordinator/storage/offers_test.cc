#include "coordinator/storage/offers.h"

#include <gtest/gtest.h>

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
    store_->put({kOfferedKind, offered.key()}, offered_to_text(offered), {}, "", nullptr);
    store_->flush();
    offers_.added(offered.key(), "alice", 1'000);
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
      *ArtifactStore::open(file_, *SigningKey::load_or_create(dir_.path() / "signing"), {});
  Offers offers_{*store_};
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
  Offers again(*store_);
  ASSERT_TRUE(again.read(file_));
  EXPECT_EQ(names(again), (std::vector<std::string>{"first"}));
}

TEST_F(OffersTest, WhatTheStoreHasNoLongerIsForgotten) {
  offers_.added(first_.key(), "", 0);
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
