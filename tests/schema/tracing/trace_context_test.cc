#include "schema/tracing/trace_context.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

constexpr char kParent[] = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

TEST(TraceContext, ItsTextIsW3cs) {
  const TraceContext context = TraceContext::parse(kParent);
  ASSERT_TRUE(context.is_valid());
  EXPECT_TRUE(context.sampled);
  EXPECT_EQ(context.trace_id[0], 0x0a);
  EXPECT_EQ(context.span_id[7], 0x31);
  EXPECT_EQ(context.to_traceparent(), kParent);
  EXPECT_EQ(TraceContext{}.to_traceparent(), "");
}

TEST(TraceContext, OfTheFlagsOnlySampledIsRead) {
  const std::string ids(kParent, sizeof kParent - 3);
  EXPECT_FALSE(TraceContext::parse(ids + "00").sampled);
  EXPECT_FALSE(TraceContext::parse(ids + "02").sampled);
  EXPECT_TRUE(TraceContext::parse(ids + "03").sampled);
  EXPECT_EQ(TraceContext::parse(ids + "03").to_traceparent(), ids + "01");
}

TEST(TraceContext, OfALaterVersionTheKnownPartIsRead) {
  std::string later = kParent;
  later[1] = '1';
  EXPECT_TRUE(TraceContext::parse(later).is_valid());
  EXPECT_TRUE(TraceContext::parse(later + "-more").is_valid());
  EXPECT_FALSE(TraceContext::parse(later + "more").is_valid());
  EXPECT_FALSE(TraceContext::parse(std::string(kParent) + "-more").is_valid());
  later[0] = later[1] = 'f';
  EXPECT_FALSE(TraceContext::parse(later).is_valid());
}

// A request with nonsense in its place is answered, and has no trace.
TEST(TraceContext, AnythingElseIsNone) {
  EXPECT_FALSE(TraceContext::parse(std::string(1 << 16, '0')).is_valid());
  EXPECT_FALSE(
      TraceContext::parse("00-00000000000000000000000000000000-b7ad6b7169203331-01").is_valid());
  EXPECT_FALSE(
      TraceContext::parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01").is_valid());
  const std::string good = kParent;
  for (size_t i = 0; i < good.size(); ++i) {
    EXPECT_FALSE(TraceContext::parse(good.substr(0, i)).is_valid()) << i;
    std::string other = good;
    other[i] = 'G';
    EXPECT_FALSE(TraceContext::parse(other).is_valid()) << i;
  }
}

TEST(TraceContext, ChildrenStayInTheirTrace) {
  const TraceContext root = TraceContext::root(true), child = root.child();
  EXPECT_TRUE(root.is_valid());
  EXPECT_EQ(child.trace_id, root.trace_id);
  EXPECT_NE(child.span_id, root.span_id);
  EXPECT_TRUE(child.sampled);
  EXPECT_NE(TraceContext::root(true).trace_id, root.trace_id);
}

}  // namespace
}  // namespace kiln
