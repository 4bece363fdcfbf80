// StatementTap: reads along what a coordinator says to PostgreSQL through a TcpProxy, and strikes
// once at a chosen statement: before the server has it, or when the server has answered and nobody
// has heard so. Statements that travel together count as one. What was under way is lost with the
// connection. Thread-safe.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace kiln::testing {

class StatementTap {
 public:
  struct Point {
    std::string statement;  // a part of its SQL
    bool after = false;     // the server has answered
    int skip = 0;           // so many that match are let pass
  };
  // `strike` is called on the proxy's thread.
  void arm(Point point, std::function<void()> strike);
  void disarm();
  bool struck() const;

  // A TcpProxy::Tap.
  bool hear(int connection, bool up, std::string_view bytes);

 private:
  // One connection, as far as it was read.
  struct Dialogue {
    std::string said, answered;  // not yet a whole message
    bool began = false;          // the startup packet has passed
    int untyped_answers = 0;     // of one byte, to a question for encryption
    bool matches = false;        // a statement since the last Sync
    int answer_due = 0;          // answers until the one that is struck at; 0: none
    int under_way = 0;           // Syncs that the server has not answered
  };
  bool says(Dialogue& dialogue, std::string_view bytes);
  bool says_message(Dialogue& dialogue, char type, std::string_view body);
  bool answers(Dialogue& dialogue, std::string_view bytes);
  void strike();

  mutable std::mutex mu_;
  // Guarded by mu_.
  Point point_;
  std::function<void()> strike_;  // empty: not armed
  bool struck_ = false;
  std::map<int, Dialogue> dialogues_;
};

}  // namespace kiln::testing
