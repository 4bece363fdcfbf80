// One direction of a connection: frames one after another, each behind four bytes of its length,
// some of which are parts of larger messages.
#include <cstring>

#include "compiler_core/base/check.h"
#include "schema/codec.h"
#include "tests/fuzz/fuzz_target.h"
#include "tests/schema/sample_messages.h"

namespace kiln::fuzz {
namespace {

std::string framed(std::string_view frame) {
  const auto bytes = static_cast<uint32_t>(frame.size());
  std::string text(sizeof bytes, '\0');
  std::memcpy(text.data(), &bytes, sizeof bytes);
  return text.append(frame);
}

}  // namespace

// Each message whole, then in two parts: they may be of any size.
std::vector<std::string> seeds() {
  std::vector<std::string> streams;
  for (const Message& message : sample_messages()) {
    const std::string whole = encode(message);
    const std::string first = whole.substr(0, whole.size() / 2), rest = whole.substr(first.size());
    streams.push_back(framed(whole) + framed(encode(MessagePart{first, false})) +
                      framed(encode(MessagePart{rest, true})) + framed(whole));
  }
  return streams;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  std::string_view stream = fuzz::text_of(data, size);
  PartAssembly assembly;
  size_t taken = 0;
  while (!stream.empty()) {
    uint32_t bytes = 0;
    const size_t head = std::min(stream.size(), sizeof bytes);
    std::memcpy(&bytes, stream.data(), head);
    stream.remove_prefix(head);
    const std::string_view frame = stream.substr(0, bytes);
    stream.remove_prefix(frame.size());
    taken += frame.size();
    const auto message = assembly.add(frame);
    if (!message) return 0;  // the connection ends here
    CHECK(assembly.bytes() <= taken, "nothing is kept that did not come");
    if (*message)
      CHECK(!std::holds_alternative<MessagePart>(**message), "no caller ever sees a part");
  }
  return 0;
}
