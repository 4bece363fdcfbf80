#include "compiler_core/command_line/options_of.h"

namespace kiln {
namespace {

// CLI11 keeps a check's words only in the name of the option's type: "TEXT:{read,submit}".
std::vector<std::string> choices_in(const std::string& type) {
  std::vector<std::string> choices;
  const size_t open = type.find('{'), close = type.find('}');
  if (open == std::string::npos || close == std::string::npos) return choices;
  size_t at = open + 1;
  while (at <= close) {
    const size_t end = std::min(type.find(',', at), close);
    choices.push_back(type.substr(at, end - at));
    at = end + 1;
  }
  return choices;
}

OptionText text_of(const CLI::Option& option) {
  OptionText text;
  for (const std::string& name : option.get_snames()) text.names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) text.names.push_back("--" + name);
  const bool flag = option.get_items_expected_max() == 0;
  const std::string type = flag ? "" : option.get_type_name();
  text.choices = choices_in(type);
  // A type with a range keeps the range: "INT in [1 - 64]".
  text.value = type.substr(0, type.find(':'));
  if (!flag && text.value.empty()) text.value = "VALUE";
  text.description = option.get_description();
  text.required = option.get_required();
  text.repeats = option.get_items_expected_max() > 1;
  return text;
}

std::vector<OptionText> texts_of(const CLI::App& app, bool positional) {
  std::vector<OptionText> texts;
  for (const CLI::Option* option : app.get_options()) {
    if (option->get_positional() != positional) continue;
    if (option->get_group().empty()) continue;
    texts.push_back(text_of(*option));
    if (positional) texts.back().value = option->get_name(true);
  }
  return texts;
}

}  // namespace

std::vector<const CLI::App*> commands_of(const CLI::App& app) {
  return app.get_subcommands([](const CLI::App* command) { return !command->get_group().empty(); });
}

std::vector<OptionText> options_of(const CLI::App& app) {
  return texts_of(app, false);
}

std::vector<OptionText> positionals_of(const CLI::App& app) {
  return texts_of(app, true);
}

std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + " " + app.get_name();
}

std::string_view summary_of(std::string_view text) {
  return text.substr(0, text.find('\n'));
}

}  // namespace kiln
