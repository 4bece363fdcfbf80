#include "tests/bench/dialogue.h"

#include <fmt/format.h>

#include <algorithm>

#include "schema/codec.h"

namespace kiln::bench {
namespace {

constexpr uint8_t kLong = 2, kCommand = 4;
constexpr size_t kGreetingBytes = 64;

std::string zmtp_frame(std::string_view body, uint8_t flags = 0) {
  std::string frame;
  if (body.size() < 256) {
    frame = {static_cast<char>(flags), static_cast<char>(body.size())};
  } else {
    frame = static_cast<char>(flags | kLong);
    for (int shift = 56; shift >= 0; shift -= 8) {
      frame += static_cast<char>(static_cast<uint64_t>(body.size()) >> shift & 0xff);
    }
  }
  return frame.append(body);
}

class KilnDialogue : public Dialogue {
 public:
  using OnMessage = std::function<Heard(const Message&)>;
  KilnDialogue(const KilnQuestions& questions, OnMessage on_message)
      : questions_(questions), on_message_(std::move(on_message)) {}

  void open(std::string& say) override {
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0NULL", 16);
    greeting.resize(kGreetingBytes, '\0');
    say += greeting;
    say += zmtp_frame(std::string("\x05READY\x0bSocket-Type\0\0\0\x06", 22) + "DEALER", kCommand);
  }

  bool hear(std::string_view bytes, std::string& say) override {
    while (!bytes.empty()) {
      if (left_ == 0) {
        header_ += bytes.front();
        bytes.remove_prefix(1);
        if (!begin_frame()) continue;
        if (left_ > 0) continue;
      } else {
        const size_t here = std::min(left_, bytes.size());
        if (keep_) body_.append(bytes.substr(0, here));
        bytes.remove_prefix(here);
        left_ -= here;
        if (left_ > 0) return true;
      }
      if (!end_frame(say)) return false;
    }
    return true;
  }

  void ask(size_t which, std::string& say) override {
    say += questions_.frames[which % questions_.frames.size()];
  }

 private:
  // Whether the header is complete. Bodies of answers are not kept, once one was looked at.
  bool begin_frame() {
    const auto flags = static_cast<uint8_t>(header_[0]);
    if (header_.size() < ((flags & kLong) != 0 ? 9u : 2u)) return false;
    left_ = 0;
    for (const char c : header_.substr(1)) left_ = left_ << 8 | static_cast<uint8_t>(c);
    header_.clear();
    empty_ = left_ == 0;
    command_ = (flags & kCommand) != 0;
    keep_ = command_ || answers_ == 0 || on_message_ != nullptr;
    return true;
  }

  bool end_frame(std::string& say) {
    if (greeting_) {
      greeting_ = false;
      keep_ = false;
      return true;
    }
    const std::string body = std::exchange(body_, {});
    if (command_) {
      // Messages that came before the handshake is over would break it.
      if (body.starts_with("\x05READY")) {
        say += kiln_frame(Hello{kProtocolVersion, Role::kClient, "load"});
      }
      constexpr std::string_view kPing("\x04PING");
      if (body.starts_with(kPing)) say += zmtp_frame("\x04PONG" + body.substr(7), kCommand);
      return true;
    }
    if (empty_) return true;  // a probe
    if (!keep_) {
      ++answers_;
      return true;
    }
    const auto message = decode(body);
    if (!message) return false;
    if (!ready_) {
      ready_ = std::holds_alternative<Welcome>(*message);
      return ready_;
    }
    return on_message_ != nullptr ? converse(*message, say) : first_answer(*message);
  }

  bool first_answer(const Message& message) {
    ++answers_;
    return questions_.check(message);
  }

  bool converse(const Message& message, std::string& say) {
    const Heard heard = on_message_(message);
    if (heard.counts) ++answers_;
    if (!heard.reply.empty()) say += zmtp_frame(heard.reply);
    return true;
  }

  const KilnQuestions& questions_;
  const OnMessage on_message_;
  bool greeting_ = true, command_ = false, empty_ = false, keep_ = false;
  std::string header_, body_;
  size_t left_ = kGreetingBytes;  // of the frame that is being heard
};

class RedisDialogue : public Dialogue {
 public:
  explicit RedisDialogue(const RedisQuestions& questions) : questions_(questions) {}

  void open(std::string&) override { ready_ = true; }

  // "$LENGTH\r\n", LENGTH bytes, "\r\n"; a missing key ("$-1") or an error makes no sense here.
  bool hear(std::string_view bytes, std::string&) override {
    while (!bytes.empty()) {
      if (left_ > 0) {
        const size_t here = std::min(left_, bytes.size());
        bytes.remove_prefix(here);
        left_ -= here;
        if (left_ == 0) ++answers_;
        continue;
      }
      header_ += bytes.front();
      bytes.remove_prefix(1);
      if (header_.back() != '\n') continue;
      if (header_[0] != '$' || header_[1] == '-') return false;
      left_ = std::stoul(header_.substr(1)) + 2;
      header_.clear();
    }
    return true;
  }

  void ask(size_t which, std::string& say) override {
    say += questions_.keys[which % questions_.keys.size()];
  }

 private:
  const RedisQuestions& questions_;
  std::string header_;
  size_t left_ = 0;
};

}  // namespace

std::unique_ptr<Dialogue> kiln_dialogue(const KilnQuestions& questions) {
  return std::make_unique<KilnDialogue>(questions, nullptr);
}

std::unique_ptr<Dialogue> kiln_conversation(const KilnQuestions& questions,
                                            std::function<Heard(const Message&)> on_message) {
  return std::make_unique<KilnDialogue>(questions, std::move(on_message));
}

std::unique_ptr<Dialogue> redis_dialogue(const RedisQuestions& questions) {
  return std::make_unique<RedisDialogue>(questions);
}

std::string resp_command(const std::vector<std::string>& words) {
  std::string command = fmt::format("*{}\r\n", words.size());
  for (const std::string& word : words) command += fmt::format("${}\r\n{}\r\n", word.size(), word);
  return command;
}

std::string kiln_frame(const Message& message) {
  return zmtp_frame(encode(message));
}

}  // namespace kiln::bench
