#include "coordinator/status/task_traces.h"

#include <gtest/gtest.h>

#include "coordinator/status/task_log.h"

namespace kiln {
namespace {

constexpr char kCaller[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

// Driven through TaskLog, as in a service; the clock is the test's.
class TaskTracesTest : public ::testing::Test {
 protected:
  void ask(const ClientId& client, const std::string& traceparent) {
    CompileRequest request;
    request.request = 1;
    request.target = {Backend::kCpu, "x86-64-v3", "", 0, {}};
    request.traceparent = traceparent;
    log_.asked(1, key_, key_, client, "", request);
  }
  void answer(const ClientId& client, Result<CacheOutcome> outcome, bool is_early = false) {
    log_.answered(1, client, CompileReply{1, std::move(outcome), "{}"}, is_early);
  }
  void plan() {
    log_.planning(1, key_);
    now_ns_ += 10;
    PlanFinished plan{key_, Program{}, std::vector<PlannedKernel>(2)};
    plan.kernels[0].key = kernel_;
    plan.kernels[1].key = Digest::of("cached");
    plan.kernels[1].cached = ProgramKernel{};
    log_.planned(1, plan);
  }
  // Orders to the worker w: a lease of the kernel that it does not report yet, or none.
  std::string order(std::vector<uint64_t> held, std::optional<uint64_t> started) {
    SendOrders action{"w", {}};
    action.orders.leases = std::move(held);
    if (started) {
      action.orders.jobs.resize(1);
      action.orders.jobs[0].lease = *started;
      action.orders.jobs[0].kernel_key = kernel_;
    }
    log_.traces().ordered(action);
    return started ? action.orders.jobs[0].traceparent : "";
  }
  std::vector<Span> named(const std::string& name) const {
    std::vector<Span> found;
    for (const Span& span : spans_)
      if (span.name == name) found.push_back(span);
    return found;
  }
  Span only(const std::string& name) const {
    EXPECT_EQ(named(name).size(), 1u) << name;
    return named(name).empty() ? Span{} : named(name).front();
  }

  const Digest key_ = Digest::of("program"), kernel_ = Digest::of("kernel");
  int64_t now_ns_ = 1'000;
  std::vector<Span> spans_;
  TaskLog log_{[](const LogLine&) {},
               {[this](Span span) { spans_.push_back(std::move(span)); },
                [](const TraceContext& caller) { return !caller.is_valid() || caller.sampled; },
                [this] { return now_ns_; }}};
};

TEST_F(TaskTracesTest, TheStagesOfARequestFollowEachOtherWithoutGaps) {
  ask("a", kCaller);
  now_ns_ = 1'020;
  log_.waiting_for_graph(1, "a", 1);
  now_ns_ = 1'050;
  plan();
  now_ns_ = 2'000;
  log_.storing(1, {Program{}, key_});
  now_ns_ = 2'100;
  answer("a", CacheOutcome::kTuned);

  const Span request = only("compile");
  EXPECT_EQ(request.parent, TraceContext::parse(kCaller).span_id);
  EXPECT_EQ(request.context.trace_id, TraceContext::parse(kCaller).trace_id);
  EXPECT_EQ(request.kind, Span::Kind::kServer);
  int64_t at_ns = request.start_ns;
  for (const char* stage : {"looking_up", "wait_graph", "planning", "tuning", "storing"}) {
    EXPECT_EQ(only(stage).parent, request.context.span_id) << stage;
    EXPECT_EQ(only(stage).start_ns, at_ns) << stage;
    at_ns = only(stage).end_ns;
  }
  EXPECT_EQ(at_ns, request.end_ns);
  EXPECT_EQ(log_.traces().open_spans(), 0u);
}

TEST_F(TaskTracesTest, LeasesLieBelowTheirKernelAndTheirJobsSayWhich) {
  ask("a", kCaller);
  plan();
  now_ns_ = 1'500;
  const std::string traceparent = order({7}, 7);
  EXPECT_EQ(order({7}, 7), traceparent) << "the same orders again";
  now_ns_ = 1'700;
  order({7}, {});
  EXPECT_TRUE(named("lease").empty()) << "the worker still has it";
  now_ns_ = 1'900;
  order({}, {});
  now_ns_ = 2'000;
  ProgramKernel winner;
  winner.key = kernel_;
  log_.traces().storing({winner, {}, ""});
  now_ns_ = 2'300;
  log_.traces().stored({kernel_, {}});

  const Span kernel = only("kernel"), lease = only("lease"), queue = only("queue");
  EXPECT_EQ(lease.context.to_traceparent(), traceparent);
  EXPECT_EQ(lease.parent, kernel.context.span_id);
  EXPECT_EQ(lease.start_ns, 1'500);
  EXPECT_EQ(lease.end_ns, 1'900);
  EXPECT_EQ(queue.parent, kernel.context.span_id);
  EXPECT_EQ(queue.start_ns, kernel.start_ns);
  EXPECT_EQ(queue.end_ns, 1'500);
  EXPECT_EQ(only("publish").start_ns, 2'000);
  EXPECT_EQ(kernel.end_ns, 2'300);
  answer("a", CacheOutcome::kTuned);
  EXPECT_EQ(only("tuning").context.span_id, kernel.parent);
  EXPECT_EQ(log_.traces().open_spans(), 0u);
}

TEST_F(TaskTracesTest, WhoJoinsHasTheStagesThatItWaitedForAndALink) {
  ask("a", kCaller);
  now_ns_ = 1'050;
  plan();  // until 1'060
  now_ns_ = 1'500;
  const std::string other = "00-" + std::string(31, '0') + "1-b7ad6b7169203331-01";
  ask("b", other);
  now_ns_ = 2'000;
  answer("b", CacheOutcome::kJoined);
  answer("a", CacheOutcome::kTuned);

  const std::vector<Span> tuning = named("tuning"), requests = named("compile");
  ASSERT_EQ(tuning.size(), 2u);
  ASSERT_EQ(requests.size(), 2u);
  EXPECT_EQ(requests[0].context.trace_id, TraceContext::parse(other).trace_id);
  ASSERT_EQ(requests[0].links.size(), 1u);
  EXPECT_EQ(requests[0].links[0], requests[1].context);
  EXPECT_EQ(tuning[0].start_ns, 1'500);
  EXPECT_EQ(tuning[0].end_ns, 2'000);
  EXPECT_EQ(named("planning").size(), 1u) << "it was over";
}

TEST_F(TaskTracesTest, WithoutACallersSpanOnlyWhatIsPlannedIsKept) {
  ask("a", "");
  answer("a", CacheOutcome::kHit);
  EXPECT_TRUE(spans_.empty());
  ask("a", "");
  plan();
  answer("a", CacheOutcome::kTuned);
  EXPECT_EQ(only("compile").parent, TraceContext{}.span_id);
  EXPECT_EQ(only("looking_up").context.trace_id, only("compile").context.trace_id);
}

TEST_F(TaskTracesTest, ACallerThatIsNotRecordedHasNoSpans) {
  std::string unsampled = kCaller;
  unsampled.back() = '0';
  ask("a", unsampled);
  plan();
  EXPECT_EQ(order({7}, 7), "");
  answer("a", CacheOutcome::kTuned);
  EXPECT_TRUE(spans_.empty());
  EXPECT_EQ(log_.traces().open_spans(), 0u);
}

TEST_F(TaskTracesTest, WhatFailsOrIsLostEndsAndSaysWhy) {
  ask("a", kCaller);
  plan();
  order({7}, 7);
  log_.traces().gone("w");
  EXPECT_EQ(only("lease").error, "the worker is gone");
  answer("a", fail(Code::kUnavailable, "no worker"));
  EXPECT_EQ(only("compile").error, "no worker");
  EXPECT_EQ(only("kernel").error, "unavailable");
  ask("b", kCaller);
  log_.gone(1, "b");
  EXPECT_EQ(named("compile").back().error, "nobody waits for it");
  EXPECT_EQ(log_.traces().open_spans(), 0u);
}

// Verification goes on behind the answer.
TEST_F(TaskTracesTest, AnEarlyAnswerLeavesItsKernelsOpen) {
  ask("a", kCaller);
  plan();
  answer("a", CacheOutcome::kTuned, true);
  EXPECT_TRUE(named("kernel").empty());
  EXPECT_NE(order({7}, 7), "");
  log_.traces().stored({kernel_, {}});
  EXPECT_EQ(only("kernel").parent, only("tuning").context.span_id);
}

TEST_F(TaskTracesTest, ByDefaultNothingIsKept) {
  TaskLog quiet([](const LogLine&) {});
  CompileRequest request;
  request.traceparent = kCaller;
  quiet.asked(1, key_, key_, "a", "", request);
  EXPECT_EQ(quiet.traces().open_spans(), 0u);
}

}  // namespace
}  // namespace kiln
