#include "tests/bench/curve_dialogue.h"

#include <sodium.h>
#include <zmq.h>

#include <array>

#include "compiler_core/base/check.h"
#include "schema/codec.h"

namespace kiln::bench {
namespace {

constexpr uint8_t kLong = 2, kCommand = 4;
constexpr size_t kGreetingBytes = 64, kHelloPadding = 72, kCookieBytes = 96;
// Probes and heartbeats are smaller than this when sealed, answers larger.
constexpr size_t kLeastAnswer = 128;
constexpr std::string_view kMessage("\x07MESSAGE", 8);

using Key = std::array<uint8_t, 32>;

const uint8_t* raw(std::string_view text) {
  return reinterpret_cast<const uint8_t*>(text.data());
}
uint8_t* raw(std::string& text) {
  return reinterpret_cast<uint8_t*>(text.data());
}
std::string text(const Key& key) {
  return {reinterpret_cast<const char*>(key.data()), key.size()};
}

Key key_of(const std::string& z85) {
  Key key;
  CHECK(z85.size() == 40 && zmq_z85_decode(key.data(), z85.c_str()) != nullptr, "a key is Z85");
  return key;
}

std::string number(uint64_t value, int bytes = 8) {
  std::string out;
  for (int shift = 8 * (bytes - 1); shift >= 0; shift -= 8)
    out += static_cast<char>(value >> shift & 0xff);
  return out;
}

// `nonce` has 24 bytes.
std::string box(std::string_view in, const std::string& nonce, const Key& to, const Key& from) {
  std::string out(in.size() + crypto_box_MACBYTES, '\0');
  CHECK(crypto_box_easy(raw(out), raw(in), in.size(), raw(nonce), to.data(), from.data()) == 0,
        "a box closes");
  return out;
}

std::string zmtp(std::string_view body, uint8_t flags) {
  std::string frame(1, static_cast<char>(flags | (body.size() > 255 ? kLong : 0)));
  frame += number(body.size(), body.size() > 255 ? 8 : 1);
  return frame.append(body);
}

class CurveDialogue : public Dialogue {
 public:
  CurveDialogue(const KilnQuestions& questions, const ClientKey& key)
      : questions_(questions),
        server_(key_of(key.server_key)),
        public_(key_of(key.pair.public_key)),
        secret_(key_of(key.pair.secret_key)) {
    crypto_box_keypair(brief_public_.data(), brief_secret_.data());
  }

  void open(std::string& say) override {
    std::string greeting("\xff\0\0\0\0\0\0\0\x01\x7f\x03\0CURVE", 17);
    greeting.resize(kGreetingBytes, '\0');
    const std::string padding(kHelloPadding, '\0'), zeros(64, '\0');
    say += greeting;
    say += zmtp(std::string("\x05HELLO\x01\0", 8) + padding + text(brief_public_) + number(1) +
                    box(zeros, "CurveZMQHELLO---" + number(1), server_, brief_secret_),
                kCommand);
  }

  bool hear(std::string_view bytes, std::string& say) override {
    while (!bytes.empty()) {
      if (left_ == 0) {
        header_ += bytes.front();
        bytes.remove_prefix(1);
        begin_frame();
        continue;
      }
      const size_t here = std::min(left_, bytes.size());
      if (keep_) body_.append(bytes.substr(0, here));
      bytes.remove_prefix(here);
      left_ -= here;
      if (left_ == 0 && !end_frame(say)) return false;
    }
    return true;
  }

  void ask(size_t which, std::string& say) override {
    say += sealed(questions_.frames[which % questions_.frames.size()]);
  }

 private:
  void begin_frame() {
    const bool is_long = (static_cast<uint8_t>(header_[0]) & kLong) != 0;
    if (header_.size() < (is_long ? 9u : 2u)) return;
    for (const char c : header_.substr(1)) left_ = left_ << 8 | static_cast<uint8_t>(c);
    header_.clear();
    size_ = left_;
    keep_ = answers_ == 0;
  }

  bool end_frame(std::string& say) {
    const std::string body = std::exchange(body_, {});
    if (std::exchange(greeting_, false)) return true;
    if (body.starts_with("\x07WELCOME")) return initiate(body.substr(8), say);
    if (body.starts_with("\x05READY")) {
      CHECK(crypto_box_beforenm(shared_.data(), brief_server_.data(), brief_secret_.data()) == 0,
            "keys agree");
      say += sealed(encode(Hello{kProtocolVersion, Role::kClient, "load"}));
      return true;
    }
    if (size_ < kLeastAnswer && ready_) return true;
    if (answers_ > 0) {
      ++answers_;
      return true;
    }
    const std::string frame = opened(body);
    if (frame.empty()) return true;  // a probe
    const auto message = decode(frame);
    if (!message) return false;
    if (!ready_) return ready_ = std::holds_alternative<Welcome>(*message);
    ++answers_;
    return questions_.check(*message);
  }

  // Their short-term key and cookie; ours, under the long-term one.
  bool initiate(const std::string& welcome, std::string& say) {
    if (welcome.size() != 160) return false;
    std::string in(128, '\0');
    const std::string sealed_part = welcome.substr(16);
    if (crypto_box_open_easy(raw(in), raw(sealed_part), sealed_part.size(),
                             raw("WELCOME-" + welcome.substr(0, 16)), server_.data(),
                             brief_secret_.data()) != 0)
      return false;
    std::copy_n(in.begin(), brief_server_.size(), brief_server_.begin());
    std::string seed(16, '\0');
    randombytes_buf(seed.data(), seed.size());
    const std::string vouch =
        box(text(brief_public_) + text(server_), "VOUCH---" + seed, brief_server_, secret_);
    const std::string metadata = std::string("\x0bSocket-Type\0\0\0\x06", 16) + "DEALER";
    say += zmtp(std::string("\x08INITIATE") + in.substr(in.size() - kCookieBytes) + number(2) +
                    box(text(public_) + seed + vouch + metadata, "CurveZMQINITIATE" + number(2),
                        brief_server_, brief_secret_),
                kCommand);
    return true;
  }

  std::string sealed(std::string_view body) {
    const std::string plain = std::string(1, '\0').append(body), count = number(++sent_);
    std::string out(plain.size() + crypto_box_MACBYTES, '\0');
    crypto_box_easy_afternm(raw(out), raw(plain), plain.size(), raw("CurveZMQMESSAGEC" + count),
                            shared_.data());
    return zmtp(std::string(kMessage) + count + out, 0);
  }

  // Empty when it is not sealed, or is a command or a probe.
  std::string opened(const std::string& body) {
    constexpr size_t kHead = 16;  // name and number
    if (!body.starts_with(kMessage) || body.size() < kHead + crypto_box_MACBYTES + 1) return {};
    std::string out(body.size() - kHead - crypto_box_MACBYTES, '\0');
    const std::string nonce = "CurveZMQMESSAGES" + body.substr(8, 8);
    CHECK(crypto_box_open_easy_afternm(raw(out), raw(body) + kHead, body.size() - kHead, raw(nonce),
                                       shared_.data()) == 0,
          "the server's box opens");
    return (static_cast<uint8_t>(out[0]) & kCommand) != 0 ? std::string() : out.substr(1);
  }

  const KilnQuestions& questions_;
  const Key server_, public_, secret_;
  Key brief_public_{}, brief_secret_{}, brief_server_{}, shared_{};
  uint64_t sent_ = 2;  // HELLO and INITIATE
  bool greeting_ = true, keep_ = true;
  std::string header_, body_;
  size_t left_ = kGreetingBytes, size_ = 0;  // of the frame that is being heard
};

}  // namespace

std::unique_ptr<Dialogue> curve_dialogue(const KilnQuestions& questions, const ClientKey& key) {
  return std::make_unique<CurveDialogue>(questions, key);
}

}  // namespace kiln::bench
