#include "cache/audit.h"

#include <gtest/gtest.h>

#include "cache/sqlite.h"
#include "tests/cache/samples.h"

namespace kiln {
namespace {

using namespace samples;  // NOLINT: the vocabulary of these tests

class AuditTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cache_ = KernelCache::open(dir_.path()).value();
    for (int n : {1, 2}) ASSERT_TRUE(put_all(*cache_, n));
    for (int n : {1, 2}) ASSERT_TRUE(put_record(*cache_, n));
  }
  void edit(const char* sql) {
    auto db = Database::open(dir_.path() / "index.sqlite", Database::Access::kReadWrite).value();
    const Status edited = db.run(sql);
    ASSERT_TRUE(edited) << edited.error().message;
  }
  // "blob 0123456789ab", sorted.
  std::vector<std::string> findings() {
    const Result<AuditReport> report = audit(dir_.path());
    EXPECT_TRUE(report) << report.error().message;
    std::vector<std::string> names;
    for (const Finding& finding : report->findings)
      names.push_back(fmt::format("{} {}", to_string(finding.kind), finding.key.short_hex()));
    return names;
  }
  static std::string named(const char* kind, const Digest& key) {
    return fmt::format("{} {}", kind, key.short_hex());
  }

  TempDir dir_ = TempDir::create("kiln-audit").value();
  std::unique_ptr<KernelCache> cache_;
};

TEST_F(AuditTest, ASoundStoreIsReadThroughWhileItIsServed) {
  const AuditReport report = audit(dir_.path()).value();
  EXPECT_EQ(report.programs, 2);
  EXPECT_EQ(report.kernels, 2);
  EXPECT_EQ(report.blobs, 2);
  EXPECT_EQ(report.records, 2);
  EXPECT_EQ(report.bytes, static_cast<int64_t>(blob(1).size() + blob(2).size()));
  EXPECT_TRUE(report.findings.empty());
}

TEST_F(AuditTest, ABadBlobIsFoundWithWhatNeedsItAndNothingIsMoved) {
  flip_one_bit(blob_path(dir_.path(), 1));
  const std::vector<std::string> expected = {named("blob", Digest::of(blob(1))),
                                             named("kernel", key("kernel", 1)),
                                             named("program", key("program", 1))};
  EXPECT_EQ(findings(), expected);
  EXPECT_EQ(findings(), expected) << "it only reads";
  std::filesystem::remove(blob_path(dir_.path(), 1));
  EXPECT_EQ(findings(), expected);
}

TEST_F(AuditTest, DamagedRowsAreFound) {
  edit("UPDATE programs SET manifest = replace(manifest, '256', '257')");
  EXPECT_EQ(findings().size(), 2u);
  edit("UPDATE kernels SET seal = x'00'");
  EXPECT_EQ(findings().size(), 4u);
  edit("UPDATE records SET seed = 0 WHERE id = 2");
  EXPECT_EQ(findings().back(), named("records", {}));
}

TEST_F(AuditTest, RepairIsRefusedWhileItIsServed) {
  flip_one_bit(blob_path(dir_.path(), 1));
  const Status mended = repair(dir_.path(), audit(dir_.path()).value());
  ASSERT_FALSE(mended);
  EXPECT_EQ(mended.error().code, Code::kUnavailable);
}

TEST_F(AuditTest, RepairDropsWhatIsBadAndKeepsTheRest) {
  flip_one_bit(blob_path(dir_.path(), 1));
  edit("UPDATE records SET seed = 0 WHERE id = 2");
  cache_.reset();
  ASSERT_TRUE(repair(dir_.path(), audit(dir_.path()).value()));
  EXPECT_TRUE(findings().empty());
  cache_ = KernelCache::open(dir_.path()).value();
  EXPECT_EQ(cache_->program(key("program", 1)).error().code, Code::kNotFound);
  EXPECT_EQ(cache_->kernel(key("kernel", 1)).error().code, Code::kNotFound);
  EXPECT_TRUE(cache_->program(key("program", 2)));
  EXPECT_EQ(cache_->totals().records, 1);
  EXPECT_EQ(cache_->totals().programs, 1);
  ASSERT_TRUE(put_all(*cache_, 1));
  EXPECT_TRUE(cache_->program(key("program", 1)));
}

TEST_F(AuditTest, ADirectoryWithoutAStoreSaysSo) {
  const TempDir empty = TempDir::create("kiln-audit").value();
  EXPECT_EQ(audit(empty.path()).error().code, Code::kNotFound);
}

TEST_F(AuditTest, ADamagedIndexIsAFinding) {
  cache_.reset();
  const Path file = dir_.path() / "index.sqlite";
  std::string bytes = read_file(file).value();
  for (size_t at = bytes.size() - 20'000; at < bytes.size(); ++at)
    bytes[at] = static_cast<char>(at * 37);
  ASSERT_TRUE(write_file(file, bytes));
  const Result<AuditReport> report = audit(dir_.path());
  if (!report) {
    EXPECT_EQ(report.error().code, Code::kCorruption);
    return;
  }
  ASSERT_EQ(report->findings.size(), 1u);
  EXPECT_EQ(report->findings[0].kind, Finding::Kind::kIndex);
  EXPECT_EQ(repair(dir_.path(), *report).error().code, Code::kCorruption);
}

TEST_F(AuditTest, CanBeEndedEarly) {
  for (int n = 0; n < 1200; ++n) cache_->put_record(record(n), nullptr);
  cache_->flush();
  const auto report = audit(dir_.path(), [](int64_t, int64_t) { return false; });
  ASSERT_FALSE(report);
  EXPECT_EQ(report.error().code, Code::kDeadlineExceeded);
}

}  // namespace
}  // namespace kiln
