#include "schema/codec.h"

#include <utility>

#include "schema/codec.h"

namespace kiln {

std::vector<std::string> parts_of(std::string_view whole) {
  std::vector<std::string> frames;
  for (size_t at = 0; at < whole.size(); at += kPartBytes) {
    const bool last = at + kPartBytes >= whole.size();
    frames.push_back(encode(MessagePart{std::string(whole.substr(at, kPartBytes)), last}));
  }
  return frames;
}

Result<std::optional<Message>> PartAssembly::add(std::string_view frame) {
  if (frame.size() > kMaxFrameBytes)
    return fail(Code::kInvalidArgument, "malformed message: larger than a frame may be");
  TRY(Message message, decode(frame));
  auto* part = std::get_if<MessagePart>(&message);
  if (part == nullptr) return std::optional(std::move(message));
  if (begun_.size() + part->bytes.size() > kMaxMessageBytes)
    return fail(Code::kInvalidArgument, "malformed message: larger than a message may be");
  begun_ += part->bytes;
  if (!part->last) return std::optional<Message>();
  TRY(Message whole, decode(std::exchange(begun_, {})));
  if (std::holds_alternative<MessagePart>(whole))
    return fail(Code::kInvalidArgument, "malformed message: a part of a part");
  return std::optional(std::move(whole));
}

}  // namespace kiln
