// Dialogue: what one connection of the load generator says and hears, as a parser that never waits
// and copies no answer it need not look at: the generator runs beside the server it measures, on
// the same cores. Each object has one owner.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "schema/messages.h"

namespace kiln::bench {

class Dialogue {
 public:
  virtual ~Dialogue() = default;
  // Once, when the connection is there.
  virtual void open(std::string& say) = 0;
  // What came, in pieces of any size; what has to be said because of it is appended to `say`. False
  // when it makes no sense.
  virtual bool hear(std::string_view bytes, std::string& say) = 0;
  virtual void ask(size_t which, std::string& say) = 0;

  bool ready() const { return ready_; }  // may be asked
  int64_t answers() const { return answers_; }

 protected:
  bool ready_ = false;
  int64_t answers_ = 0;
};

// A client of Kiln, by hand: ZMTP 3.0 with the NULL mechanism (RFC 23). The first answer is decoded
// and given to `check`, the others are counted.
struct KilnQuestions {
  std::vector<std::string> frames;                   // of kiln_frame(); numbers may be used again
  std::function<bool(const Message& answer)> check;  // of each connection's first
};
std::unique_ptr<Dialogue> kiln_dialogue(const KilnQuestions& questions);

// A client of Kiln that looks at every message: what it returns is sent. An answer counts when
// `on_message` says so.
struct Heard {
  bool counts = false;
  std::string reply;  // a frame; empty: nothing
};
std::unique_ptr<Dialogue> kiln_conversation(
    const KilnQuestions& questions, std::function<Heard(const Message& message)> on_message);

// As it stands on the wire.
std::string kiln_frame(const Message& message);

// A client of Redis, whose answers are bulk strings.
struct RedisQuestions {
  std::vector<std::string> keys;  // commands, of resp_command()
};
std::unique_ptr<Dialogue> redis_dialogue(const RedisQuestions& questions);

// "*3\r\n$3\r\nSET\r\n..."
std::string resp_command(const std::vector<std::string>& words);

}  // namespace kiln::bench
