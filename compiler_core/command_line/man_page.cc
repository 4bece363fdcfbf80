#include <fmt/format.h>

#include "compiler_core/command_line/command_line.h"
#include "compiler_core/command_line/options_of.h"

namespace kiln {
namespace {

// Text as roff takes it: no line begins with a control character, dashes are those of options.
std::string escaped(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (const char c : text) {
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (c == '\\')
      out += "\\e";
    else if (c == '-')
      out += "\\-";
    else
      out += c;
    line_begins = c == '\n';
  }
  return out;
}

std::string upper(std::string text) {
  for (char& c : text) c = static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return text;
}

// Paragraphs flow; lines that begin with a space are commands, and stay as they are.
std::string paragraphs(std::string_view text) {
  std::string out;
  bool example = false;
  while (!text.empty()) {
    const std::string_view line = summary_of(text);
    text.remove_prefix(std::min(line.size() + 1, text.size()));
    const bool is_example = line.starts_with(' ');
    if (is_example != example) out += is_example ? ".PP\n.nf\n" : ".fi\n.PP\n";
    example = is_example;
    out += line.empty() ? ".PP\n" : escaped(line) + "\n";
  }
  return out + (example ? ".fi\n" : "");
}

std::string option_entry(const OptionText& option) {
  std::string names;
  for (const std::string& name : option.names)
    names += (names.empty() ? "\\fB" : ", \\fB") + escaped(name) + "\\fR";
  const std::string value = option.value.empty() ? "" : " \\fI" + escaped(option.value) + "\\fR";
  std::string choices;
  for (const std::string& choice : option.choices)
    choices += (choices.empty() ? "" : ", ") + choice;
  if (!choices.empty()) choices = fmt::format(". One of: {}.", escaped(choices));
  return fmt::format(".TP\n{}{}\n{}{}\n", names, value, escaped(option.description), choices);
}

std::string synopsis(const CLI::App& app) {
  std::string text = fmt::format("\\fB{}\\fR [options]", escaped(full_name(app)));
  for (const OptionText& positional : positionals_of(app)) {
    const std::string name =
        fmt::format("\\fI{}\\fR{}", escaped(positional.value), positional.repeats ? "..." : "");
    text += positional.required ? " " + name : fmt::format(" [{}]", name);
  }
  return text + (commands_of(app).empty() ? "" : " \\fIcommand\\fR");
}

std::string options_text(const CLI::App& app) {
  std::string text;
  for (const OptionText& option : options_of(app)) text += option_entry(option);
  return text;
}

// A section for each command, and for those of commands.
std::string commands_text(const CLI::App& app) {
  std::string text;
  for (const CLI::App* command : commands_of(app)) {
    text += fmt::format(".SS {}\n{}\n.PP\n{}", escaped(full_name(*command)), synopsis(*command),
                        paragraphs(command->get_description()));
    text += options_text(*command) + commands_text(*command);
  }
  return text;
}

}  // namespace

std::string man_page(const CLI::App& app) {
  const std::string about = app.get_description();
  std::string page = fmt::format(".TH {} 1 \"\" \"kiln {}\" \"Kiln\"\n",
                                 upper(escaped(app.get_name())), KILN_VERSION);
  page += fmt::format(".SH NAME\n{} \\- {}\n", escaped(app.get_name()), escaped(summary_of(about)));
  page += fmt::format(".SH SYNOPSIS\n{}\n", synopsis(app));
  page += ".SH DESCRIPTION\n" + paragraphs(about);
  page += ".SH OPTIONS\n" + options_text(app);
  if (!commands_of(app).empty()) page += ".SH COMMANDS\n" + commands_text(app);
  if (const std::string footer = app.get_footer(); !footer.empty())
    page += ".SH ENVIRONMENT AND EXIT CODES\n" + paragraphs(footer);
  return page;
}

}  // namespace kiln
