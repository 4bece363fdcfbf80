#include "client/cli/session.h"
#include "compiler_core/base/text.h"

#include <fmt/format.h>

#include <algorithm>

namespace kiln::cli {
namespace {

Result<std::vector<int64_t>> parse_sizes(std::string_view list) {
  std::vector<int64_t> sizes;
  for (size_t at = 0; at <= list.size();) {
    const size_t comma = std::min(list.find(',', at), list.size());
    int64_t size = 0;
    if (!read_count(list.substr(at, comma - at), size))
      return fail(Code::kInvalidArgument,
                  fmt::format("'{}' is not a list of sizes such as 1,32,512", list));
    sizes.push_back(size);
    at = comma + 1;
  }
  return sizes;
}

// The symbol behind "s0" or "x.0".
Result<size_t> find_symbol(std::string_view name, const ExportedProgram& program) {
  const size_t count = program.graph.symbols().size();
  int64_t number = 0;
  if (name.starts_with("s") && read_count(name.substr(1), number)) {
    if (static_cast<size_t>(number) < count) return static_cast<size_t>(number);
    return fail(Code::kInvalidArgument,
                fmt::format("{} is no size of the program, which has {}", name, count));
  }
  const size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || !read_count(name.substr(dot + 1), number))
    return fail(Code::kInvalidArgument,
                fmt::format("'{}' is neither a symbol (s0) nor an input's axis (x.0)", name));
  for (const ExportedInput& input : program.inputs) {
    if (input.name != name.substr(0, dot)) continue;
    const auto axis = static_cast<size_t>(number);
    for (size_t id = 0; axis < input.shape.size() && id < count; ++id)
      if (input.shape[axis] == Dim::symbol(static_cast<SymbolId>(id))) return id;
    return fail(Code::kInvalidArgument, fmt::format("axis {} of {} is {}, which has no size of its "
                                                    "own to choose",
                                                    number, input.name, to_string(input.shape)));
  }
  return fail(Code::kInvalidArgument,
              fmt::format("the program has no input '{}'", name.substr(0, dot)));
}

}  // namespace

Result<Hints> parse_hints(const std::vector<std::string>& texts, const ExportedProgram& program) {
  Hints hints(program.graph.symbols().size());
  for (const std::string& text : texts) {
    const std::string_view hint = text;
    const size_t equals = hint.find('=');
    if (equals == std::string_view::npos)
      return fail(Code::kInvalidArgument, fmt::format("--hint {}: expected NAME=SIZE,...", text));
    TRY(const size_t symbol, find_symbol(hint.substr(0, equals), program));
    TRY(const std::vector<int64_t> sizes, parse_sizes(hint.substr(equals + 1)));
    hints[symbol].insert(hints[symbol].end(), sizes.begin(), sizes.end());
  }
  return hints;
}

}  // namespace kiln::cli
