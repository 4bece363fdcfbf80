#include "tests/bench/tls_dialogue.h"

#include <openssl/ssl.h>

#include <algorithm>
#include <array>

#include "compiler_core/base/check.h"

namespace kiln::bench {
namespace {

constexpr size_t kHeaderBytes = 5;
constexpr uint8_t kApplicationData = 23;
constexpr size_t kLeastAnswer = 128;

class TlsDialogue : public Dialogue {
 public:
  TlsDialogue(const RedisQuestions& questions, std::shared_ptr<SSL_CTX> client)
      : questions_(questions),
        client_(std::move(client)),
        ssl_(SSL_new(client_.get()), &SSL_free),
        first_(redis_dialogue(questions)),
        in_(BIO_new(BIO_s_mem())),
        out_(BIO_new(BIO_s_mem())) {
    SSL_set_bio(ssl_.get(), in_, out_);  // which owns both from now on
    SSL_set_connect_state(ssl_.get());
  }

  void open(std::string& say) override {
    SSL_do_handshake(ssl_.get());
    take(say);
  }

  bool hear(std::string_view bytes, std::string& say) override {
    if (answers_ > 0) {
      count_records(bytes);
      return true;
    }
    BIO_write(in_, bytes.data(), static_cast<int>(bytes.size()));
    if (!ready_) {
      const int done = SSL_do_handshake(ssl_.get());
      take(say);
      if (done != 1) return SSL_get_error(ssl_.get(), done) == SSL_ERROR_WANT_READ;
      first_->open(say);
      ready_ = true;
    }
    std::array<char, 16 << 10> plain;
    int got = 0;
    while ((got = SSL_read(ssl_.get(), plain.data(), plain.size())) > 0) {
      if (!first_->hear({plain.data(), static_cast<size_t>(got)}, say)) return false;
    }
    answers_ = first_->answers();
    return SSL_get_error(ssl_.get(), got) == SSL_ERROR_WANT_READ;
  }

  void ask(size_t which, std::string& say) override {
    const std::string& question = questions_.keys[which % questions_.keys.size()];
    SSL_write(ssl_.get(), question.data(), static_cast<int>(question.size()));
    take(say);
  }

 private:
  // What was sealed and waits to be sent.
  void take(std::string& say) {
    const size_t waiting = BIO_ctrl_pending(out_), before = say.size();
    say.resize(before + waiting);
    if (waiting > 0) BIO_read(out_, say.data() + before, static_cast<int>(waiting));
  }

  void count_records(std::string_view bytes) {
    while (!bytes.empty()) {
      if (left_ == 0) {
        header_ += bytes.front();
        bytes.remove_prefix(1);
        if (header_.size() < kHeaderBytes) continue;
        left_ = static_cast<size_t>(static_cast<uint8_t>(header_[3])) << 8 |
                static_cast<uint8_t>(header_[4]);
        if (static_cast<uint8_t>(header_[0]) == kApplicationData && left_ >= kLeastAnswer)
          is_answer_ = true;
        header_.clear();
        continue;
      }
      const size_t here = std::min(left_, bytes.size());
      bytes.remove_prefix(here);
      left_ -= here;
      if (left_ == 0 && std::exchange(is_answer_, false)) ++answers_;
    }
  }

  const RedisQuestions& questions_;
  const std::shared_ptr<SSL_CTX> client_;
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl_;
  const std::unique_ptr<Dialogue> first_;  // reads what was opened
  BIO *const in_, *const out_;
  std::string header_;
  size_t left_ = 0;  // of the record that is being heard
  bool is_answer_ = false;
};

}  // namespace

std::shared_ptr<ssl_ctx_st> tls_client() {
  std::shared_ptr<SSL_CTX> client(SSL_CTX_new(TLS_client_method()), &SSL_CTX_free);
  CHECK(client != nullptr, "OpenSSL is there");
  SSL_CTX_set_verify(client.get(), SSL_VERIFY_NONE, nullptr);
  return client;
}

std::unique_ptr<Dialogue> redis_tls_dialogue(const RedisQuestions& questions,
                                             const std::shared_ptr<ssl_ctx_st>& client) {
  return std::make_unique<TlsDialogue>(questions, client);
}

}  // namespace kiln::bench
