// Every kernel of nets whose images lie channels last, by its first schedule on the fake GPU: reads and
// writes in orders that no single template's test has.
#include <gtest/gtest.h>

#include <set>

#include "compiler_core/ir/text.h"
#include "compiler_core/kernels/untimed_partition.h"
#include "compiler_core/plan/plan.h"
#include "tests/compiler_core/kernels/kernel_harness.h"
#include "tests/compiler_core/plan/convolution_nets.h"

namespace kiln {
namespace {

using testing::check_space;
using testing::coarse_inputs;
using testing::kHopper;

void expect_right(const Graph& graph, std::set<Digest>& seen) {
  const auto made = plan(graph, partition_rules(kHopper));
  ASSERT_TRUE(made) << made.error().message;
  for (const Workload& kernel : made->kernels) {
    if (!seen.insert(kernel.digest).second) continue;
    EXPECT_EQ(check_space(kernel, kHopper, coarse_inputs(kernel.graph, 17), 1), "")
        << print(kernel.graph);
  }
}

TEST(ChannelsLastKernels, OfABottleneckAgree) {
  testing::Net net;
  std::set<Digest> seen;
  expect_right(testing::bottleneck(net), seen);
  EXPECT_GE(seen.size(), 10u);
}

TEST(ChannelsLastKernels, OfWindowsOfOneChannelAgree) {
  testing::Net net, other;
  std::set<Digest> seen;
  expect_right(testing::inverted_bottlenecks(net), seen);
  expect_right(testing::rows_between_windows(other), seen);
  EXPECT_GE(seen.size(), 10u);
}

TEST(ChannelsLastKernels, OfRandomNetsAgree) {
  std::set<Digest> seen;
  for (uint64_t seed = 200; seed < 206; ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    expect_right(testing::random_net(seed), seen);
  }
}

// Of as many images as a call has: kernels are those of constant sizes.
TEST(ChannelsLastKernels, OfAnyNumberOfImagesAgree) {
  std::set<Digest> seen;
  std::set<std::string> templates;
  for (const auto& build :
       {testing::bottleneck, testing::inverted_bottlenecks, testing::rows_between_windows}) {
    testing::Net net;
    net.open_images();
    const auto made = plan(build(net), partition_rules(kHopper));
    ASSERT_TRUE(made) << made.error().message;
    for (const Workload& kernel : made->kernels) {
      if (!seen.insert(kernel.digest).second) continue;
      const auto space = search_space(kernel, kHopper);
      ASSERT_TRUE(space && !space->empty()) << print(kernel.graph);
      templates.insert((*space)[0].template_name);
      const bool open = !kernel.graph.symbols().empty();
      const std::string wrong =
          open ? testing::check_sizes(kernel, (*space)[0], kHopper, {{0}, {1}, {5}})
               : check_space(kernel, kHopper, coarse_inputs(kernel.graph, 17), 1);
      EXPECT_EQ(wrong, "") << print(kernel.graph);
    }
  }
  EXPECT_TRUE(templates.contains("cuda.convolution.wgmma"));
  EXPECT_TRUE(templates.contains("cuda.convolution.depthwise.channels_last"));
  EXPECT_FALSE(templates.contains("cuda.convolution"));
}

TEST(ChannelsLastKernels, AreForTheTargetsThatWantThem) {
  EXPECT_TRUE(partition_rules(kHopper).channels_last);
  EXPECT_FALSE(partition_rules(*Target::parse("cuda:sm_80")).channels_last);
  EXPECT_EQ(partition_rules(*Target::parse("cpu:x86-64-v3")), PartitionRules{});
}

}  // namespace
}  // namespace kiln
