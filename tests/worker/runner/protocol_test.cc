#include "worker/runner/protocol.h"

#include <gtest/gtest.h>

#include <random>

namespace kiln::runner {
namespace {

std::vector<Request> some_requests() {
  MeasurementPolicy policy;
  policy.race_drop = 1.5;
  policy.launch_timeout_ms = 123;
  return {OpenWorkload{42, "kiln.graph 1\n"},
          VerifyKernel{3, "{}", std::string("\0\1\2", 3), Digest::of("x")},
          RaceKernel{1, policy, 12.5},
          TimeFinalists{{0, 2, 5}, policy},
          CompileSource{"cuda:sm_90a", "extern \"C\" __global__ void k() {}"},
          CancelCompile{},
          MeasureCalibration{},
          OpenWorkload{42, "kiln.graph 1\n", true, 2},
          LaunchKernel{"{}", std::string("\0\1\2", 3), Digest::of("x"), 17},
          JudgeOutputs{{"some bytes", ""}},
          LowerCandidate{"kiln.graph 1\n",
                         Family::kMatmul,
                         {"cpu.matmul", {{"lanes", 8}, {"x", -1}}},
                         host_cpu_target()},
          PrepareDevice{std::string("\177ELF\0", 5), Digest::of("kernels")}};
}

std::vector<Reply> some_replies() {
  CudaFacts facts;
  facts.name = "NVIDIA H200";
  facts.bus_id = "0000:1b:00.0";
  facts.capability = 90;
  facts.sms = 132;
  facts.memory_bytes = int64_t{141} << 30;
  return {Opened{1.5, 2.5},
          Verified{Verdict::kOutOfBounds, "wrote 4 bytes before output 0"},
          Raced{true, {{1.0, 2.0, 3.5}}, "drifted"},
          FinalistsTimed{{{{1.0}}, {{2.0, 2.5}}}, ""},
          DevicePrepared{facts, {{"cublaslt", "130100"}}},
          Leaving{},
          CalibrationMeasured{123.5},
          CompiledObject{std::string("\177ELF\0", 5), {40, 8, 16, 1024}},
          Progress{},
          Launched{{"some bytes", ""}},
          Lowered{true, "{}", "void kernel() {}"},
          Failed{{Code::kUnavailable, "no memory", 0}}};
}

std::string body_of(const std::string& frame) {
  return frame.substr(sizeof(uint32_t));
}

TEST(RunnerProtocol, RequestsRoundTrip) {
  for (const Request& request : some_requests()) {
    const auto back = decode_request(body_of(encode(request)));
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->index(), request.index());
    EXPECT_EQ(encode(*back), encode(request));
  }
}

TEST(RunnerProtocol, RepliesRoundTrip) {
  for (const Reply& reply : some_replies()) {
    const auto back = decode_reply(body_of(encode(reply)));
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(back->index(), reply.index());
    EXPECT_EQ(encode(*back), encode(reply));
  }
}

TEST(RunnerProtocol, EveryTruncationAndEveryTrailingByteIsRefused) {
  for (const Request& request : some_requests()) {
    const std::string body = body_of(encode(request));
    for (size_t size = 0; size < body.size(); ++size)
      EXPECT_FALSE(decode_request(body.substr(0, size)).has_value()) << size;
    EXPECT_FALSE(decode_request(body + '\0').has_value());
  }
  for (const Reply& reply : some_replies()) {
    const std::string body = body_of(encode(reply));
    for (size_t size = 0; size < body.size(); ++size)
      EXPECT_FALSE(decode_reply(body.substr(0, size)).has_value()) << size;
    EXPECT_FALSE(decode_reply(body + '\0').has_value());
  }
}

TEST(RunnerProtocol, WhatSurvivesMutationIsStillWithinBounds) {
  std::mt19937_64 random(20240607);
  int decoded = 0;
  for (int round = 0; round < 20'000; ++round) {
    const auto requests = some_requests();
    const auto replies = some_replies();
    std::string request = body_of(encode(requests[random() % requests.size()]));
    std::string reply = body_of(encode(replies[random() % replies.size()]));
    for (int flips = 0; flips < 3; ++flips) {
      request[random() % request.size()] ^= static_cast<char>(1 << random() % 8);
      reply[random() % reply.size()] ^= static_cast<char>(1 << random() % 8);
    }
    // What decodes is what its own encoding decodes to: nothing was taken loosely.
    if (const auto back = decode_request(request)) {
      EXPECT_EQ(body_of(encode(*back)), request);
      ++decoded;
    }
    if (const auto back = decode_reply(reply)) {
      EXPECT_EQ(body_of(encode(*back)), reply);
      ++decoded;
    }
  }
  EXPECT_GT(decoded, 0);
}

TEST(RunnerProtocol, NonsenseValuesAreRefused) {
  Raced raced{false, {{1.0}}, ""};
  raced.measurement.samples_us[0] = -1;
  EXPECT_FALSE(decode_reply(body_of(encode(Reply(raced)))).has_value());
  raced.measurement.samples_us[0] = std::numeric_limits<double>::infinity();
  EXPECT_FALSE(decode_reply(body_of(encode(Reply(raced)))).has_value());
  EXPECT_FALSE(decode_request(body_of(encode(Request(VerifyKernel{kMaxSlots, "", "", {}})))));
  EXPECT_FALSE(decode_reply(body_of(encode(Reply(Verified{static_cast<Verdict>(99), ""})))));
}

}  // namespace
}  // namespace kiln::runner
