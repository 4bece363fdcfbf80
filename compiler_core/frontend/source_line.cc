#include "compiler_core/base/text.h"
#include "compiler_core/frontend/refusals.h"

#include <algorithm>
#include <cstdint>

namespace kiln {
namespace {

struct Frame {
  std::string_view file, line, function, code;
};

std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  const std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return line;
}

// `File "model.py", line 96, in forward`
bool parse_frame(std::string_view line, Frame& frame) {
  line = trimmed(line);
  constexpr std::string_view kFile = "File \"", kLine = "\", line ";
  const size_t quote = line.find(kLine);
  if (!line.starts_with(kFile) || quote == std::string_view::npos) return false;
  const std::string_view rest = line.substr(quote + kLine.size());
  const std::string_view number = rest.substr(0, rest.find_first_not_of("0123456789"));
  std::string_view function = rest.substr(number.size());
  constexpr std::string_view kIn = ", in ";
  function = function.starts_with(kIn) ? function.substr(kIn.size()) : std::string_view();
  frame = {line.substr(kFile.size(), quote - kFile.size()), number, function, {}};
  return true;
}

bool is_users(std::string_view file) {
  return file.find("site-packages/") == std::string_view::npos &&
         file.find("dist-packages/") == std::string_view::npos && !file.starts_with('<');
}

bool is_torchs(std::string_view file) {
  return file.find("-packages/torch/") != std::string_view::npos || file.starts_with('<');
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
      frame.code = trimmed(line);
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

std::string source_place(std::string_view trace) {
  Frame innermost, model, frame;
  while (!trace.empty()) {
    if (!parse_frame(take_line(trace), frame)) continue;
    innermost = frame;
    if (!is_torchs(frame.file)) model = frame;
  }
  const Frame& best = model.file.empty() ? innermost : model;
  if (best.file.empty()) return {};
  const std::string_view name = best.file.substr(best.file.rfind('/') + 1);
  std::string text = std::string(name.substr(0, 120)) + ":" + std::string(best.line.substr(0, 10));
  if (!best.function.empty()) text += " in " + std::string(best.function.substr(0, 80));
  return text;
}

std::string module_path(std::string_view stack) {
  // "key,path,type" for each module, outermost first, between semicolons.
  const std::string_view last = stack.substr(stack.rfind(';') + 1);
  const size_t first = last.find(',');
  if (first == std::string_view::npos) return {};
  const std::string_view rest = last.substr(first + 1);
  return std::string(rest.substr(0, std::min<size_t>(rest.find(','), 200)));
}

}  // namespace kiln
