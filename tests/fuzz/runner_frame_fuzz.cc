// What a runner, which a hostile kernel may have taken over, says to its worker, and the other way.
#include "compiler_core/base/check.h"
#include "tests/fuzz/fuzz_target.h"
#include "worker/runner/protocol.h"

namespace kiln::fuzz {

// Without their sizes, which the socket reads.
std::vector<std::string> seeds() {
  using namespace runner;  // NOLINT: one function
  std::vector<std::string> bodies;
  const auto add = [&](const auto& frame) {
    bodies.push_back(encode(frame).substr(sizeof(uint32_t)));
  };
  for (const Request& request :
       {Request(OpenWorkload{42, "kiln.graph 1\n"}),
        Request(VerifyKernel{3, "{}", "binary", Digest::of("x")}),
        Request(RaceKernel{1, MeasurementPolicy{}, 12.5}),
        Request(TimeFinalists{{0, 2, 5}, MeasurementPolicy{}}),
        Request(CompileSource{"cuda:sm_90a", "source"}), Request(CancelCompile{}),
        Request(PrepareDevice{"binary", Digest::of("x")}),
        Request(
            LowerCandidate{"kiln.graph 1\n", Family::kMatmul, {"cpu.matmul", {{"lanes", 8}}}, {}})})
    add(request);
  for (const Reply& reply :
       {Reply(Opened{1.5, 2.5}), Reply(Verified{Verdict::kOutOfBounds, "wrote before output 0"}),
        Reply(Raced{true, {{1.0, 2.0, 3.5}}, "drifted"}),
        Reply(FinalistsTimed{{{{1.0}}, {{2.0, 2.5}}}, ""}), Reply(CompiledObject{"binary", {}}),
        Reply(Progress{}), Reply(Leaving{}), Reply(Lowered{true, "{}", "void kernel() {}"}),
        Reply(Failed{{Code::kUnavailable, "no memory", 0}})})
    add(reply);
  return bodies;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  const std::string_view body = fuzz::text_of(data, size);
  if (const auto request = runner::decode_request(body))
    CHECK(runner::encode(*request).substr(sizeof(uint32_t)) == body, "only what encode writes");
  if (const auto reply = runner::decode_reply(body))
    CHECK(runner::encode(*reply).substr(sizeof(uint32_t)) == body, "only what encode writes");
  return 0;
}
