// PostgreSQL's protocol 3 (its manual, "Message Formats"): a startup packet without a type, before
// which encryption may be asked for; then messages of a type, a length that counts itself, a body. A
// Sync ('S') ends what travels together, and one ReadyForQuery ('Z') answers it.
#include "tests/system/pool/statement_tap.h"

#include <cstdint>
#include <utility>

namespace kiln::testing {
namespace {

constexpr size_t kLength = 4, kTypeAndLength = 5;
constexpr uint32_t kAsksForTls = 80877103, kAsksForGss = 80877104;

uint32_t number_at(std::string_view bytes, size_t at) {
  uint32_t value = 0;
  for (size_t i = at; i < at + 4; ++i) value = value << 8 | static_cast<unsigned char>(bytes[i]);
  return value;
}

}  // namespace

void StatementTap::arm(Point point, std::function<void()> strike) {
  const std::scoped_lock lock(mu_);
  point_ = std::move(point);
  strike_ = std::move(strike);
  struck_ = false;
}

void StatementTap::disarm() {
  const std::scoped_lock lock(mu_);
  strike_ = {};
}

bool StatementTap::struck() const {
  const std::scoped_lock lock(mu_);
  return struck_;
}

void StatementTap::strike() {
  struck_ = true;
  std::exchange(strike_, {})();
}

bool StatementTap::hear(int connection, bool up, std::string_view bytes) {
  const std::scoped_lock lock(mu_);
  Dialogue& dialogue = dialogues_[connection];
  return up ? says(dialogue, bytes) : answers(dialogue, bytes);
}

bool StatementTap::says(Dialogue& dialogue, std::string_view bytes) {
  dialogue.said += bytes;
  std::string& said = dialogue.said;
  while (!dialogue.began && said.size() >= 2 * kLength) {
    const uint32_t size = number_at(said, 0), code = number_at(said, kLength);
    if (said.size() < size) return true;
    dialogue.began = code != kAsksForTls && code != kAsksForGss;
    dialogue.untyped_answers += dialogue.began ? 0 : 1;
    said.erase(0, size);
  }
  bool goes_on = true;
  while (dialogue.began && said.size() >= kTypeAndLength) {
    const size_t size = 1 + number_at(said, 1);
    if (said.size() < size) break;
    goes_on = says_message(dialogue, said[0],
                           std::string_view(said).substr(kTypeAndLength, size - kTypeAndLength)) &&
              goes_on;
    said.erase(0, size);
  }
  return goes_on;
}

// False: it was struck before the server has it.
bool StatementTap::says_message(Dialogue& dialogue, char type, std::string_view body) {
  if (type == 'P' && strike_ && body.find(point_.statement) != std::string_view::npos)
    dialogue.matches = true;
  if (type != 'S') return true;
  ++dialogue.under_way;
  if (!std::exchange(dialogue.matches, false) || !strike_ || point_.skip-- > 0) return true;
  if (point_.after) {
    dialogue.answer_due = dialogue.under_way;
    return true;
  }
  strike();
  return false;
}

// False: it was struck, and nobody hears the answer.
bool StatementTap::answers(Dialogue& dialogue, std::string_view bytes) {
  while (dialogue.untyped_answers > 0 && !bytes.empty()) {
    --dialogue.untyped_answers;
    bytes.remove_prefix(1);
  }
  dialogue.answered += bytes;
  std::string& answered = dialogue.answered;
  while (answered.size() >= kTypeAndLength) {
    const size_t size = 1 + number_at(answered, 1);
    if (answered.size() < size) break;
    const bool is_ready = answered[0] == 'Z';
    answered.erase(0, size);
    if (!is_ready || dialogue.under_way == 0) continue;  // the first one ends the startup
    --dialogue.under_way;
    if (dialogue.answer_due == 0 || --dialogue.answer_due > 0 || !strike_) continue;
    strike();
    return false;
  }
  return true;
}

}  // namespace kiln::testing
