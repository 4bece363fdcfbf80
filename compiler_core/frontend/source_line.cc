#include "compiler_core/frontend/source_line.h"

#include <cstdint>

namespace kiln {
namespace {

struct Frame {
  std::string_view file, line, code;
};

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

std::string_view trim(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \t\r") - begin + 1);
}

// `File "model.py", line 96, in forward`
bool parse_frame(std::string_view line, Frame& frame) {
  line = trim(line);
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const size_t quote = line.find(kLine);
  if (!line.starts_with(kFile) || quote == std::string_view::npos) return false;
  const std::string_view rest = line.substr(quote + kLine.size());
  frame = {line.substr(kFile.size(), quote - kFile.size()),
           rest.substr(0, rest.find_first_not_of("0123456789")),
           {}};
  return true;
}

bool is_users(std::string_view file) {
  return file.find("site-packages/") == std::string_view::npos &&
         file.find("dist-packages/") == std::string_view::npos && !file.starts_with('<');
}

}  // namespace

std::string source_line(std::string_view trace) {
  Frame innermost, users, frame;
  bool in_frame = false;
  while (!trace.empty()) {
    const std::string_view line = take_line(trace);
    if (parse_frame(line, frame)) {
      in_frame = true;
    } else if (in_frame && frame.code.empty()) {
      frame.code = trim(line);
    } else {
      continue;
    }
    innermost = frame;
    if (is_users(frame.file)) users = frame;
  }
  const Frame& best = users.file.empty() ? innermost : users;
  if (best.file.empty()) return {};
  std::string text = std::string(best.file) + ":" + std::string(best.line);
  if (!best.code.empty()) text += ": " + std::string(best.code);
  return text.substr(0, 400);
}

}  // namespace kiln
