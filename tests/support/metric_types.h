#pragma once

#include <map>
#include <regex>
#include <sstream>
#include <string>

namespace kiln::testing {

// The metrics of a page in Prometheus' text form, each with its type.
inline std::map<std::string, std::string> types_in(const std::string& text) {
  std::map<std::string, std::string> types;
  std::istringstream lines(text);
  std::smatch match;
  static const std::regex kType(R"(# TYPE (\S+) (\S+))");
  for (std::string line; std::getline(lines, line);)
    if (std::regex_match(line, match, kType)) types[match[1]] = match[2];
  return types;
}

}  // namespace kiln::testing
