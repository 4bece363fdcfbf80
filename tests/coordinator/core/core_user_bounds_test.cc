// No key takes every place: programs tuned for it, their candidates, programs queued.
#include "tests/coordinator/core/core_bench.h"

namespace kiln {
namespace {

class CoreUserBounds : public ::testing::Test {
 protected:
  static CoreOptions tight() {
    CoreOptions options;
    options.max_tasks_a_user = 2;
    options.max_candidates_queued = 20;
    options.max_detached = 4;
    return options;
  }
  void SetUp() override {
    bench_.report("w");
    bench_.take<SendOrders>();
  }
  // As far as the plan of one kernel with so many candidates; what it is answered with, if anything.
  std::optional<Error> start(const std::string& user, const std::string& graph, int candidates,
                             bool detach = false) {
    RequestReceived event;
    event.client = "client of " + user;
    event.user = user;
    event.request.request = ++requests_;
    event.request.graph = digest_of(graph);
    event.request.target = cpu_target();
    event.request.mode = Mode::kMaxAutotune;
    event.request.detach = detach;
    bench_.step(event);
    bench_.miss(bench_.key(graph));
    event.request.graph_text = "graph";
    bench_.step(event);
    bench_.plan({planned_kernel("k of " + graph, candidates)}, Mode::kMaxAutotune, graph);
    for (const StoreDetached& store : bench_.take<StoreDetached>())
      bench_.step(DetachedStored{store.key, store.task, {}});
    for (const Answer& answer : bench_.take<Answer>())
      if (!answer.reply.outcome) return answer.reply.outcome.error();
    return std::nullopt;
  }

  CoreBench bench_{tight()};
  uint64_t requests_ = 0;
};

TEST_F(CoreUserBounds, ProgramsAtOnce) {
  EXPECT_FALSE(start("ann", "a", 1));
  EXPECT_FALSE(start("ann", "b", 1));
  const auto refused = start("ann", "c", 1);
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->code, Code::kOverloaded);
  EXPECT_GT(refused->retry_after_ms, 0);
  EXPECT_FALSE(start("bob", "d", 1)) << "others have their own places";
  bench_.step(ClientGone{"client of ann"});
  EXPECT_FALSE(start("ann", "e", 1)) << "they are free again";
}

TEST_F(CoreUserBounds, CandidatesAtOnce) {
  EXPECT_FALSE(start("ann", "a", 10));
  EXPECT_EQ(start("ann", "b", 9).value().code, Code::kOverloaded) << "no more than are left";
  EXPECT_FALSE(start("bob", "c", 9));
}

TEST_F(CoreUserBounds, ProgramsQueued) {
  EXPECT_FALSE(start("ann", "a", 1, true));
  EXPECT_FALSE(start("ann", "b", 1, true));
  EXPECT_EQ(start("ann", "c", 1, true).value().code, Code::kOverloaded);
  EXPECT_FALSE(start("bob", "d", 1, true));
}

}  // namespace
}  // namespace kiln
