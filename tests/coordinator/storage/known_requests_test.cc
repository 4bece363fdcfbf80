#include "coordinator/storage/known_requests.h"

#include <gtest/gtest.h>

#include "schema/codec.h"

namespace kiln {
namespace {

CompileRequest look_up(const std::string& graph, uint64_t number) {
  CompileRequest request;
  request.request = number;
  request.graph = Digest::of(graph);
  request.target = {Backend::kCpu, "x86-64-v4", "a processor with a long name", 4, "g++ 12.2.0"};
  request.mode = Mode::kMaxAutotune;
  return request;
}

TEST(KnownRequests, TheSameWordsAreFoundWhateverTheNumber) {
  KnownRequests known;
  known.remember(look_up("a", 1), Digest::of("program a"));
  known.remember(look_up("b", 2), Digest::of("program b"));
  for (const uint64_t number : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 63, ~uint64_t{0}}) {
    const auto found = known.find(encode(look_up("b", number)));
    ASSERT_TRUE(found.has_value());
    EXPECT_EQ(found->program, Digest::of("program b"));
    EXPECT_EQ(found->request, number);
  }
  EXPECT_FALSE(known.find(encode(look_up("c", 1))).has_value());
}

// Nothing that decodes to another request is taken for a known one: every bit of the frame counts
// but the number's, and a frame may not be longer or shorter either.
TEST(KnownRequests, NoOtherFrameIsTakenForIt) {
  KnownRequests known;
  const CompileRequest request = look_up("a", 0x0123456789abcdef);
  known.remember(request, Digest::of("program a"));
  const std::string frame = encode(request);
  size_t found_bits = 0;
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    std::string other = frame;
    other[bit / 8] = static_cast<char>(other[bit / 8] ^ (1 << bit % 8));
    const auto found = known.find(other);
    if (!found) continue;
    ++found_bits;
    const auto message = decode(other);
    ASSERT_TRUE(message.has_value());
    CompileRequest decoded = std::get<CompileRequest>(*message);
    EXPECT_EQ(decoded.request, found->request);
    decoded.request = request.request;
    EXPECT_EQ(encode(decoded), frame);
  }
  EXPECT_EQ(found_bits, 64u);
  for (size_t size = 0; size < frame.size(); ++size)
    EXPECT_FALSE(known.find(std::string_view(frame).substr(0, size)).has_value());
  EXPECT_FALSE(known.find(frame + std::string(8, '\0')).has_value());
}

TEST(KnownRequests, WhatBringsItsGraphIsTracedOrIsLongIsNotKept) {
  KnownRequests known;
  CompileRequest request = look_up("a", 1);
  request.graph_text = "graph";
  known.remember(request, Digest::of("program"));
  EXPECT_FALSE(known.find(encode(request)).has_value());
  request.graph_text.clear();
  request.traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  known.remember(request, Digest::of("program"));
  request.traceparent.clear();
  request.target.device_model = std::string(KnownRequests::kMaxWordsBytes, 'x');
  known.remember(request, Digest::of("program"));
  EXPECT_EQ(known.size(), 0u);
}

TEST(KnownRequests, AreBounded) {
  KnownRequests known;
  for (size_t i = 0; i < KnownRequests::kMaxRequests; ++i)
    known.remember(look_up(std::to_string(i), 1), Digest::of("program"));
  EXPECT_EQ(known.size(), KnownRequests::kMaxRequests);
  known.remember(look_up("one more", 1), Digest::of("program"));
  EXPECT_EQ(known.size(), 1u);
  EXPECT_TRUE(known.find(encode(look_up("one more", 7))).has_value());
}

}  // namespace
}  // namespace kiln
