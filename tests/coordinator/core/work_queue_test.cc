#include "coordinator/core/work_queue.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

Target target_of(const char* isa) {
  Target target;
  target.isa = isa;
  return target;
}

const Target kV3 = target_of("x86-64-v3"), kV4 = target_of("x86-64-v4");

std::vector<std::string> serve(WorkQueue& queue, const Target& device, int times,
                               const std::vector<std::string>& names) {
  std::vector<std::string> served;
  for (int i = 0; i < times; ++i)
    queue.serve_next(device, [&](const Digest& kernel) {
      for (const std::string& name : names)
        if (Digest::of(name) == kernel) served.push_back(name);
      return true;
    });
  return served;
}

TEST(WorkQueue, OwnersTakeTurnsAndSoDoTheirKernels) {
  WorkQueue queue;
  for (const char* kernel : {"a1", "a2", "a3"}) queue.add(kV3, "a", Digest::of(kernel));
  queue.add(kV3, "b", Digest::of("b1"));
  EXPECT_EQ(serve(queue, kV3, 6, {"a1", "a2", "a3", "b1"}),
            (std::vector<std::string>{"a1", "b1", "a2", "b1", "a3", "b1"}));
}

TEST(WorkQueue, DeviceIsOfferedOnlyWhatItRuns) {
  WorkQueue queue;
  queue.add(kV4, "a", Digest::of("new"));
  EXPECT_FALSE(queue.serve_next(kV3, [](const Digest&) { return true; }));
  EXPECT_TRUE(queue.serve_next(kV4, [](const Digest&) { return true; }));
}

TEST(WorkQueue, FlightThatHasNothingForThisWorkerIsPassedOver) {
  WorkQueue queue;
  queue.add(kV3, "a", Digest::of("no"));
  queue.add(kV3, "b", Digest::of("yes"));
  int offered = 0;
  EXPECT_TRUE(queue.serve_next(kV3, [&](const Digest& kernel) {
    ++offered;
    return kernel == Digest::of("yes");
  }));
  EXPECT_EQ(offered, 2);
}

TEST(WorkQueue, AddingTwiceIsAddingOnce) {
  WorkQueue queue;
  queue.add(kV3, "a", Digest::of("k"));
  queue.add(kV3, "b", Digest::of("k"));
  queue.remove(Digest::of("k"));
  queue.remove(Digest::of("k"));
  EXPECT_TRUE(queue.empty());
}

TEST(WorkQueue, OwnerThatComesBackWaitsForThoseWhoWaitAlready) {
  WorkQueue queue;
  queue.add(kV3, "a", Digest::of("a1"));
  queue.add(kV3, "b", Digest::of("b1"));
  EXPECT_EQ(serve(queue, kV3, 1, {"a1", "b1"}), (std::vector<std::string>{"a1"}));
  queue.remove(Digest::of("a1"));
  queue.add(kV3, "a", Digest::of("a2"));
  EXPECT_EQ(serve(queue, kV3, 2, {"a2", "b1"}), (std::vector<std::string>{"b1", "a2"}));
}

}  // namespace
}  // namespace kiln
