#include "coordinator/status/log_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

bool is_plain(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) {
    return c > ' ' && c < 0x7f && c != '"' && c != '=' && c != '\\';
  });
}

// Bytes that are no UTF-8 become the replacement character: a log pipeline would refuse the line.
std::string json_string(std::string_view text) {
  using Json = nlohmann::json;
  return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

LogLine& LogLine::add(std::string_view name, std::string_view text) {
  fields_.push_back({std::string(name), std::string(text), true});
  return *this;
}

LogLine& LogLine::add(std::string_view name, double number) {
  return add_number(name, fmt::format("{:.3f}", number));
}

LogLine& LogLine::add_number(std::string_view name, std::string digits) {
  fields_.push_back({std::string(name), std::move(digits), false});
  return *this;
}

std::string LogLine::logfmt() const {
  std::string line = event_;
  for (const Field& field : fields_) {
    line += ' ' + field.name + '=';
    line += is_plain(field.value) ? field.value : json_string(field.value);
  }
  return line;
}

std::string LogLine::json(std::string_view time) const {
  std::string line = "{";
  if (!time.empty()) line += fmt::format("\"time\":{},", json_string(time));
  line += fmt::format("\"level\":\"{}\",\"event\":{}", level_ == Level::kInfo ? "info" : "warning",
                      json_string(event_));
  for (const Field& field : fields_) {
    line += fmt::format(",{}:{}", json_string(field.name),
                        field.quoted ? json_string(field.value) : field.value);
  }
  return line + '}';
}

}  // namespace kiln
