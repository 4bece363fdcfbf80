// A program's commands and options as CLI11 has them, without hidden ones: for the manual page and
// the completion.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace kiln {

struct OptionText {
  std::vector<std::string> names;    // "--json", "-h"; none of a positional
  std::string value;                 // as "FILE"; empty: a flag
  std::vector<std::string> choices;  // empty: anything
  std::string description;
  bool required = false;
  bool repeats = false;
};

std::vector<const CLI::App*> commands_of(const CLI::App& app);
std::vector<OptionText> options_of(const CLI::App& app);      // in the order of --help
std::vector<OptionText> positionals_of(const CLI::App& app);  // value: its name

// "kiln cache ls", of the command `ls`.
std::string full_name(const CLI::App& app);

// The first line, of a text that may have several.
std::string_view summary_of(std::string_view text);

}  // namespace kiln
