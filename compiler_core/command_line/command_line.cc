#include "compiler_core/command_line/command_line.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "compiler_core/command_line/options_of.h"

namespace kiln {

extern const char kCommit[];  // commit.cmake

namespace {

// The option that an argument such as --json or --mode=default names, of `app` itself.
const CLI::Option* option_named(const CLI::App& app, const std::string& argument) {
  const std::string name = argument.substr(0, argument.find('='));
  return app.get_option_no_throw(name);
}

bool takes_a_value(const CLI::Option& option) {
  return option.get_items_expected_min() > 0;
}

// The command that the arguments lead to, and what is wrong on the way there, if anything is.
struct Walk {
  const CLI::App* command;
  std::string unknown_command;
  std::string unknown_option;
  std::string without_value;  // an option before another
};

Walk walk(const CLI::App& app, std::span<const std::string> arguments) {
  Walk found{&app, "", "", ""};
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") break;
    if (argument.size() > 1 && argument.front() == '-') {
      const CLI::Option* option = option_named(*found.command, argument);
      if (option == nullptr && argument.starts_with("--")) {
        if (found.unknown_option.empty())
          found.unknown_option = argument.substr(0, argument.find('='));
      } else if (option != nullptr && takes_a_value(*option) &&
                 argument.find('=') == std::string::npos) {
        const std::string next = ++i < arguments.size() ? arguments[i] : "";
        if (next.starts_with("--") && option_named(*found.command, next) != nullptr)
          found.without_value = argument;
      }
      continue;
    }
    if (commands_of(*found.command).empty()) continue;  // a positional
    const auto commands = commands_of(*found.command);
    const auto next = std::ranges::find(commands, argument, &CLI::App::get_name);
    if (next == commands.end()) {
      found.unknown_command = argument;
      break;
    }
    found.command = *next;
  }
  return found;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> words) {
  const std::string near = nearest_word(word, words);
  return near.empty() ? "" : fmt::format("; did you mean {}?", near);
}

std::vector<std::string> names_of(const std::vector<const CLI::App*>& commands) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands) names.push_back(command->get_name());
  return names;
}

std::vector<std::string> long_options(const CLI::App& command) {
  std::vector<std::string> names;
  for (const OptionText& option : options_of(command))
    for (const std::string& name : option.names)
      if (name.starts_with("--")) names.push_back(name);
  return names;
}

// "new, list or show"
std::string one_of(const std::vector<std::string>& words) {
  std::string text;
  for (size_t i = 0; i < words.size(); ++i)
    text += (i == 0 ? "" : i + 1 == words.size() ? " or " : ", ") + words[i];
  return text;
}

// Whether `brief` is `word` with letters left out, as "ls" is "list".
bool abbreviates(std::string_view brief, std::string_view word) {
  if (brief.size() < 2 || word.empty() || brief.front() != word.front()) return false;
  size_t found = 0;
  for (const char c : word) found += found < brief.size() && c == brief[found] ? 1 : 0;
  return found == brief.size();
}

// Prints a script for shells, or a manual page, where the first argument asks for one.
std::optional<int> print_for_tools(const CLI::App& app, std::span<const std::string> arguments) {
  if (arguments.empty()) return std::nullopt;
  if (arguments[0] == "--man" && arguments.size() == 1) {
    std::fputs(man_page(app).c_str(), stdout);
    return 0;
  }
  if (arguments[0] != "--completion" || arguments.size() != 2) return std::nullopt;
  const auto script = completion(app, arguments[1]);
  if (!script) {
    fmt::print(stderr, "{}: {}\n", app.get_name(), script.error().message);
    return 2;
  }
  std::fputs(script->c_str(), stdout);
  return 0;
}

// What CLI11 says of an option's value, in a sentence.
std::string in_words(const std::string& complaint) {
  constexpr std::string_view kNotConverted = "Could not convert: ", kIs = " = ";
  const size_t is = complaint.find(kIs);
  if (!complaint.starts_with(kNotConverted) || is == std::string::npos) return complaint;
  return fmt::format("{}: '{}' is no number",
                     complaint.substr(kNotConverted.size(), is - kNotConverted.size()),
                     complaint.substr(is + kIs.size()));
}

}  // namespace

std::string version_line(std::string_view program,
                         const std::vector<std::pair<std::string, std::string>>& facts) {
  std::string line = fmt::format("{} {} (commit {}", program, KILN_VERSION, kCommit);
  for (const auto& [name, value] : facts) line += fmt::format(", {} {}", name, value);
  return line + ")";
}

// Insertions, deletions, replacements and swaps of neighbours: a third of the letters at most. An
// abbreviation is one step away.
std::string nearest_word(std::string_view word, std::span<const std::string> words) {
  std::string nearest;
  size_t least = std::max<size_t>(1, word.size() / 3) + 1;
  for (const std::string& other : words) {
    std::vector<size_t> before(other.size() + 1), row(other.size() + 1), next(other.size() + 1);
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 1; i <= word.size(); ++i) {
      next[0] = i;
      for (size_t j = 1; j <= other.size(); ++j) {
        const size_t replaced = row[j - 1] + (word[i - 1] == other[j - 1] ? 0 : 1);
        next[j] = std::min({replaced, row[j] + 1, next[j - 1] + 1});
        if (i > 1 && j > 1 && word[i - 1] == other[j - 2] && word[i - 2] == other[j - 1])
          next[j] = std::min(next[j], before[j - 2] + 1);
      }
      before = std::exchange(row, next);
    }
    const bool brief = abbreviates(word, other) || abbreviates(other, word);
    const size_t distance = brief ? std::min<size_t>(row.back(), 1) : row.back();
    if (distance >= least) continue;
    least = distance;
    nearest = other;
  }
  return nearest;
}

std::string usage_error(const CLI::App& app, std::span<const std::string> arguments,
                        const std::string& complaint) {
  const Walk found = walk(app, arguments);
  const std::string name = full_name(*found.command);
  const std::string lacks = found.command == &app ? "no" : name + " has no";
  const std::vector<std::string> commands = names_of(commands_of(*found.command));
  const auto say = [&](const std::string& what, const std::string& help) {
    return fmt::format("{}: {} ({} --help {})\n", app.get_name(), what, name, help);
  };
  if (!found.unknown_command.empty())
    return say(fmt::format("{} command '{}'{}", lacks, found.unknown_command,
                           did_you_mean(found.unknown_command, commands)),
               "lists them");
  if (!found.unknown_option.empty())
    return say(fmt::format("{} option {}{}", lacks, found.unknown_option,
                           did_you_mean(found.unknown_option, long_options(*found.command))),
               "lists them");
  if (!found.without_value.empty()) return say(found.without_value + " takes a value", "explains");
  if (!commands.empty())
    return say(fmt::format("which command? {}", one_of(commands)), "says what each does");
  return say(in_words(complaint), "explains");
}

std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv) {
  std::vector<std::string> arguments(argv + 1, argv + std::max(argc, 1));
  if (const auto code = print_for_tools(app, arguments)) return code;
  const bool has_commands = !commands_of(app).empty();
  if (has_commands && !arguments.empty() && arguments[0] == "help") {
    arguments.erase(arguments.begin());
    arguments.emplace_back("--help");
  } else if (has_commands && arguments.size() == 1 && arguments[0] == "version") {
    arguments[0] = "--version";
  }
  try {
    std::vector<std::string> reversed(arguments.rbegin(), arguments.rend());  // as CLI11 has it
    app.parse(std::move(reversed));
    return std::nullopt;
  } catch (const CLI::ParseError& error) {
    const bool answers = error.get_exit_code() == 0;  // --help, --version
    if (answers && walk(app, arguments).unknown_command.empty()) return app.exit(error);
    std::fputs(usage_error(app, arguments, error.what()).c_str(), stderr);
    return 2;
  }
}

}  // namespace kiln
