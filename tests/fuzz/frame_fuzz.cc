// Messages as peers send them. What decodes is encoded again, and must come out as the same.
#include "compiler_core/base/check.h"
#include "schema/codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/schema/sample_messages.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> frames;
  for (const Message& message : sample_messages()) frames.push_back(encode(message));
  return frames;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto message = kiln::decode(kiln::fuzz::text_of(data, size));
  if (!message) return 0;
  const std::string frame = kiln::encode(*message);
  const auto again = kiln::decode(frame);
  CHECK(again && kiln::encode(*again) == frame, "what decodes can be sent on");
  return 0;
}
