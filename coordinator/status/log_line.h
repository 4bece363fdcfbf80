// LogLine: one thing that happened, as named fields, so that people and log pipelines read the
// same:
//   logfmt  task key=0123456789ab outcome=tuned total_s=2.260 reason="no kernel for \"scan\""
//   JSON    {"event":"task","key":"0123456789ab","outcome":"tuned","total_s":2.260, ...}
// Names of events and fields are stable. Values may come from peers: whatever would break a line
// apart is escaped. Plain value.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

class LogLine {
 public:
  enum class Level : uint8_t { kInfo, kWarning };

  explicit LogLine(std::string_view event, Level level = Level::kInfo)
      : event_(event), level_(level) {}

  LogLine& add(std::string_view name, std::string_view text);
  LogLine& add(std::string_view name, double number);  // three decimals
  template <std::integral T>
  LogLine& add(std::string_view name, T number) {
    return add_number(name, std::to_string(number));
  }

  Level level() const { return level_; }
  std::string logfmt() const;
  // One object. `time` (ISO 8601) comes first when it is not empty.
  std::string json(std::string_view time = {}) const;

 private:
  struct Field {
    std::string name, value;
    bool quoted = true;  // in JSON
  };
  LogLine& add_number(std::string_view name, std::string digits);

  std::string event_;
  Level level_;
  std::vector<Field> fields_;
};

}  // namespace kiln
