#include <fmt/format.h>

#include "compiler_core/command_line/command_line.h"
#include "compiler_core/command_line/options_of.h"

namespace kiln {
namespace {

// As a word of a shell, whatever is in it.
std::string shell_word(std::string_view text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// The name of a shell function, and of a variable.
std::string identifier(std::string_view name) {
  std::string out;
  for (const char c : name) out += c == '-' || c == ' ' ? '_' : c;
  return out;
}

std::string words(const std::vector<std::string>& list) {
  std::string text;
  for (const std::string& word : list) text += (text.empty() ? "" : " ") + word;
  return text;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const OptionText& option : options_of(app))
    names.insert(names.end(), option.names.begin(), option.names.end());
  return names;
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : commands_of(app)) names.push_back(command->get_name());
  return names;
}

// `app` and all commands below it.
void gather(const CLI::App& app, std::vector<const CLI::App*>& all) {
  all.push_back(&app);
  for (const CLI::App* command : commands_of(app)) gather(*command, all);
}

// A walk through the words that were typed finds the command; tables say what may follow it.
struct Tables {
  std::string steps;    // which command a word leads to
  std::string choices;  // what may follow an option
  std::string words;    // what else may follow
};

// How a shell offers words, and files.
struct Dialect {
  std::string offer;  // before the words
  std::string files;
};

Tables tables_of(const CLI::App& app, const Dialect& dialect) {
  std::vector<const CLI::App*> all;
  gather(app, all);
  Tables tables;
  for (const CLI::App* command : all) {
    const std::string at = full_name(*command);
    if (command != &app)
      tables.steps += fmt::format("      {}) at={} ;;\n", shell_word(at), shell_word(at));
    for (const OptionText& option : options_of(*command)) {
      if (option.value.empty()) continue;
      const std::string offer =
          option.choices.empty() ? dialect.files : dialect.offer + words(option.choices);
      for (const std::string& name : option.names)
        tables.choices += fmt::format("    {}) {}; return ;;\n",
                                      shell_word(fmt::format("{} {}", at, name)), offer);
    }
    tables.words += fmt::format("    {}) options={} commands={} ;;\n", shell_word(at),
                                shell_word(words(option_names(*command))),
                                shell_word(words(command_names(*command))));
  }
  return tables;
}

// Files are bash's default where nothing is offered.
std::string bash_completion(const CLI::App& app) {
  const std::string& name = app.get_name();
  const std::string function = "_" + identifier(name);
  const Tables tables = tables_of(app, {function + "_offer ", ":"});
  return fmt::format(R"(# bash completion of {0}. In ~/.bashrc: source <({0} --completion bash)
{1}_offer() {{ mapfile -t COMPREPLY < <(compgen -W "$*" -- "${{COMP_WORDS[COMP_CWORD]}}"); }}
{1}() {{
  local at='{0}' word options commands
  COMPREPLY=()
  for word in "${{COMP_WORDS[@]:1:COMP_CWORD-1}}"; do
    case "$at $word" in
{2}    esac
  done
  case "$at ${{COMP_WORDS[COMP_CWORD-1]}}" in
{3}  esac
  case "$at" in
{4}  esac
  if [[ ${{COMP_WORDS[COMP_CWORD]}} == -* ]]; then {1}_offer "$options"; else {1}_offer "$commands"; fi
}}
complete -o bashdefault -o default -F {1} {0}
)",
                     name, function, tables.steps, tables.choices, tables.words);
}

std::string zsh_completion(const CLI::App& app) {
  const std::string& name = app.get_name();
  const std::string function = "_" + identifier(name);
  const Tables tables = tables_of(app, {"compadd -- ", "_files"});
  return fmt::format(R"(#compdef {0}
# zsh completion of {0}. In ~/.zshrc, after compinit: source <({0} --completion zsh)
{1}() {{
  local at='{0}' word options commands
  for word in "${{(@)words[2,CURRENT-1]}}"; do
    case "$at $word" in
{2}    esac
  done
  case "$at $words[CURRENT-1]" in
{3}  esac
  case "$at" in
{4}  esac
  if [[ $words[CURRENT] == -* ]]; then
    compadd -- ${{=options}}
  elif [[ -n $commands ]]; then
    compadd -- ${{=commands}}
  else
    _files
  fi
}}
if [[ $funcstack[1] == {1} ]]; then {1}; else compdef {1} {0}; fi
)",
                     name, function, tables.steps, tables.choices, tables.words);
}

std::string fish_option(const OptionText& option) {
  std::string text;
  for (const std::string& name : option.names)
    text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (!option.choices.empty()) return text + " -x -a " + shell_word(words(option.choices));
  return text + (option.value.empty() ? "" : " -r");
}

std::string fish_completion(const CLI::App& app) {
  const std::string name = app.get_name(), function = "__" + identifier(name) + "_at";
  std::vector<const CLI::App*> all;
  gather(app, all);
  std::string steps, entries;
  for (const CLI::App* command : all) {
    const std::string at = full_name(*command);
    if (command != &app)
      steps += fmt::format("      case {}\n        set at {}\n", shell_word(at), shell_word(at));
    const std::string here =
        fmt::format("complete -c {} -n {}", name, shell_word(fmt::format("{} '{}'", function, at)));
    for (const CLI::App* below : commands_of(*command))
      entries += fmt::format("{} -f -a {} -d {}\n", here, below->get_name(),
                             shell_word(summary_of(below->get_description())));
    for (const OptionText& option : options_of(*command))
      entries += fmt::format("{}{} -d {}\n", here, fish_option(option),
                             shell_word(summary_of(option.description)));
  }
  return fmt::format(R"(# fish completion of {0}. In config.fish: {0} --completion fish | source
function {1}
  set -l at {0}
  for word in (commandline -opc)[2..-1]
    switch "$at $word"
{2}    end
  end
  test "$at" = "$argv[1]"
end
{3})",
                     name, function, steps, entries);
}

}  // namespace

Result<std::string> completion(const CLI::App& app, std::string_view shell) {
  if (shell == "bash") return bash_completion(app);
  if (shell == "zsh") return zsh_completion(app);
  if (shell == "fish") return fish_completion(app);
  return fail(Code::kInvalidArgument,
              fmt::format("no completion for '{}': bash, zsh or fish", shell));
}

}  // namespace kiln
