// TlsDialogue: a client of Redis over TLS, so that encrypted look-ups stand beside encrypted ones.
// As in curve_dialogue.h each question is sealed, and only the first answer is opened: the others
// are counted by their records, since what the generator spends is taken from the server beside it.
#pragma once

#include <memory>

#include "tests/bench/dialogue.h"

struct ssl_ctx_st;

namespace kiln::bench {

// Of a client that takes any certificate: what is measured is the encryption.
std::shared_ptr<ssl_ctx_st> tls_client();

// `questions` outlive it. REQUIRES: answers of 128 bytes or more, of one record each (Redis writes
// one up to 16 KiB), one question open at a time.
std::unique_ptr<Dialogue> redis_tls_dialogue(const RedisQuestions& questions,
                                             const std::shared_ptr<ssl_ctx_st>& client);

}  // namespace kiln::bench
