// What every Store promises (cache/store.h), as tests: store_contract_test.cc has them, and a test
// program instantiates StoreContract for each kind of store it can make.
#pragma once

#include <gtest/gtest.h>

#include <atomic>
#include <set>

#include "tests/cache/samples.h"

namespace kiln {

struct StoreSettings {
  int64_t max_bytes = 0;  // as CacheOptions
  int64_t keep_used_ms = 0;
  std::function<int64_t()> now_ms;
  std::function<void(std::vector<Digest>)> evicted;
};

// A place for one store, empty at first.
class StorePlace {
 public:
  virtual ~StorePlace() = default;
  // REQUIRES: the store opened before is gone.
  virtual Result<std::unique_ptr<Store>> open(StoreSettings settings) = 0;
  // What an operator could do to a blob's bytes behind the store's back.
  virtual void lose(const Digest& blob) = 0;
  virtual void damage(const Digest& blob) = 0;
};

struct StoreKind {
  std::string name;
  // kUnsupported, with a sentence, where this machine cannot have one.
  std::function<Result<std::unique_ptr<StorePlace>>()> make;
};

inline void PrintTo(const StoreKind& kind, std::ostream* out) {
  *out << kind.name;
}

class StoreContract : public ::testing::TestWithParam<StoreKind> {
 protected:
  void SetUp() override {
    auto made = GetParam().make();
    if (!made && made.error().code == Code::kUnsupported) GTEST_SKIP() << made.error().message;
    ASSERT_TRUE(made) << made.error().message;
    place_ = *std::move(made);
    open();
  }
  void open(int64_t max_bytes = 0, int64_t keep_used_ms = 0) {
    store_.reset();
    auto opened = place_->open({max_bytes, keep_used_ms, [this] { return now_ms_.load(); },
                                [this](const std::vector<Digest>& programs) {
                                  evicted_.insert(programs.begin(), programs.end());
                                }});
    ASSERT_TRUE(opened) << opened.error().message;
    store_ = *std::move(opened);
    settle();
  }
  // Room is made behind the writes, a step after another.
  void settle() {
    for (int i = 0; i < 12; ++i) store_->flush();
  }
  Result<StoredProgram> look_up(int n) { return samples::look_up_program(*store_, n); }
  Result<std::string> look_up_blob(int n) { return samples::look_up_blob(*store_, n); }
  void expect_all(int n);
  void expect_none(int n);
  std::set<int> programs(int most = 12);
  Result<TakenBack> take_back(const TakeBack& what, int64_t through = 100);
  Status forget(const Digest& key) {
    return samples::wait([&](auto done) { store_->forget(key, done); });
  }
  Status pin(int n) {
    return samples::wait([&](auto done) { store_->pin(samples::key("program", n), done); });
  }
  Status unpin(int n) {
    return samples::wait([&](auto done) { store_->unpin(samples::key("program", n), done); });
  }

  static constexpr int64_t kHourMs = 3'600'000;
  std::atomic<int64_t> now_ms_{500'000 * kHourMs};
  std::set<Digest> evicted_;  // the writer's thread; read after settle()
  std::unique_ptr<StorePlace> place_;
  std::unique_ptr<Store> store_;
};

}  // namespace kiln
