// NumberedFrame: a message encoded once and sent to many peers. Only the request's number differs
// between them; it is patched in place. Plain value.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "schema/messages.h"

namespace kiln {

class NumberedFrame {
 public:
  // `message` has a `request`, which does not matter.
  template <class T>
  static NumberedFrame of(T message) {
    message.request = 0;
    Message none = message;
    message.request = ~uint64_t{0};
    return {none, std::move(message)};
  }

  // The frame of the message with request number `number`; valid until the next call.
  std::string_view with(uint64_t number);
  size_t number_at() const { return number_at_; }  // eight bytes, little-endian
  size_t bytes() const { return frame_.size(); }

 private:
  NumberedFrame(const Message& none, const Message& all);

  std::string frame_;
  size_t number_at_ = 0;
};

}  // namespace kiln
