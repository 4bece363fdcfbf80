// CurveDialogue: a client of Kiln that speaks CurveZMQ (RFC 26) by hand, so that the load generator
// is the same with keys and without: what differs in a comparison is the encryption. Questions are
// sealed one by one, as a client's are; answers are counted, and only the first is opened, since
// what the generator spends is taken from the server beside it. For tests/bench alone.
#pragma once

#include <memory>

#include "schema/keys/key_file.h"
#include "tests/bench/dialogue.h"

namespace kiln::bench {

// `questions` with frames of encode(), not of kiln_frame(). `key` and `questions` outlive it.
std::unique_ptr<Dialogue> curve_dialogue(const KilnQuestions& questions, const ClientKey& key);

}  // namespace kiln::bench
