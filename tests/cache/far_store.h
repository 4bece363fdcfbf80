// FarStore: a Store before another one, whose look-ups are answered when the test says so, on a
// thread of another's, as a store behind a network does; or, while it is away, with kUnavailable.
#pragma once

#include <deque>
#include <thread>

#include "cache/store.h"

namespace kiln {

class FarStore final : public Store {
 public:
  explicit FarStore(Store& near) : near_(near) {}

  bool is_away = false;
  bool is_only_here = false;  // as StoredProgram says it
  std::string away() const override { return is_away ? "it does not answer" : ""; }
  int asked = 0;  // look-ups
  // Answers what was asked so far.
  void arrive() {
    std::thread([this] {
      for (size_t n = under_way_.size(); n > 0; --n) {
        const auto answer = std::move(under_way_.front());
        under_way_.pop_front();
        answer();
      }
    }).join();
  }

  void look_up_program(const Digest& key, Then<StoredProgram> then) override {
    later<StoredProgram>(then, [this, key](auto found) {
      near_.look_up_program(key, [&](Result<StoredProgram> program) {
        if (program) program->is_only_here = is_only_here;
        found(std::move(program));
      });
    });
  }
  void look_up_blob(const Digest& digest, Then<std::string> then) override {
    later<std::string>(then, [this, digest](auto found) { near_.look_up_blob(digest, found); });
  }
  // A store behind a network has links to what it has, while the test does not say otherwise.
  void look_up_link(const Digest& digest, Then<std::string> then) override {
    later<std::string>(then, [this, digest](auto found) {
      if (!has_links) return found(fail(Code::kUnsupported, "there are none"));
      near_.look_up_blob(digest, [&](const Result<std::string>& blob) {
        found(blob ? Result<std::string>("https://far/" + digest.hex()) : blob);
      });
    });
  }
  bool has_links = true;
  const std::string& warning() const override { return near_.warning(); }
  Result<StoredKernel> kernel(const Digest& key) override { return near_.kernel(key); }
  Result<std::vector<TuningRecord>> records(const Digest& key) override {
    return near_.records(key);
  }
  Result<std::vector<Schedule>> earlier_winners(const Digest& workload) override {
    return near_.earlier_winners(workload);
  }
  Result<std::vector<Schedule>> nearest_winners(const ShapeGenericKey& key) override {
    return near_.nearest_winners(key);
  }
  Result<std::vector<Revocation>> revocations() override { return near_.revocations(); }
  void touch(const Digest& key) override { near_.touch(key); }
  void touch_kernel(const Digest& key) override { near_.touch_kernel(key); }
  void put_blob(std::string bytes, Done done) override {
    near_.put_blob(std::move(bytes), std::move(done));
  }
  void put_kernel(StoredKernel kernel, Done done) override {
    near_.put_kernel(std::move(kernel), std::move(done));
  }
  void put_program(const Program& program, Done done, const Audience& audience) override {
    near_.put_program(program, std::move(done), audience);
  }
  void put_record(TuningRecord record, Done done) override {
    near_.put_record(std::move(record), std::move(done));
  }
  void put_shape_generic_key(const Digest& workload, ShapeGenericKey key, Done done) override {
    near_.put_shape_generic_key(workload, std::move(key), std::move(done));
  }
  void forget(const Digest& key, Done done) override { near_.forget(key, std::move(done)); }
  void take_back(TakeBack what, int64_t through, TookBack done, const Noted& act) override {
    near_.take_back(std::move(what), through, std::move(done), act);
  }
  void would_take_back(TakeBack what, TookBack done) override {
    near_.would_take_back(std::move(what), std::move(done));
  }
  void pin(const Digest& key, Done done, const Noted& act) override {
    near_.pin(key, std::move(done), act);
  }
  void unpin(const Digest& key, Done done, const Noted& act) override {
    near_.unpin(key, std::move(done), act);
  }
  void note(AdminAct act, Done done) override {
    if (is_away) return done(fail(Code::kUnavailable, "the store is away"));
    near_.note(std::move(act), std::move(done));
  }
  void list_acts(int64_t before, int64_t limit, Then<std::vector<AdminAct>> then) override {
    near_.list_acts(before, limit, std::move(then));
  }
  void collect(int64_t max_bytes, std::function<void(Collected, Status)> done) override {
    near_.collect(max_bytes, std::move(done));
  }
  void count_programs_not_of(const Digest& stamp, Then<int64_t> done) override {
    near_.count_programs_not_of(stamp, std::move(done));
  }
  void flush() override { near_.flush(); }
  void list_records(RecordQuery wanted, Then<RecordList> then) override {
    near_.list_records(std::move(wanted), std::move(then));
  }
  Result<ProgramList> list_programs(const ProgramQuery& wanted) override {
    return near_.list_programs(wanted);
  }
  Result<ListedProgram> listed_program(const Digest& key) override {
    return near_.listed_program(key);
  }
  Result<StoredKernel> listed_kernel(const Digest& key) override {
    return near_.listed_kernel(key);
  }
  Totals totals() const override { return near_.totals(); }

 private:
  // The answer is what the store has when it is asked, not when the answer arrives.
  template <class T, class LookUp>
  void later(const Then<T>& then, LookUp look_up) {
    ++asked;
    Result<T> answer = fail(Code::kUnavailable, "the store is away");
    if (!is_away) look_up(Then<T>([&answer](Result<T> found) { answer = std::move(found); }));
    under_way_.push_back([then, answer] { then(answer); });
  }

  Store& near_;  // answers at once
  std::deque<std::function<void()>> under_way_;
};

}  // namespace kiln
