// The manners that all of Kiln's programs share on the command line: errors that name the program,
// what is wrong and the next step; `help COMMAND`; and, from the same options as --help, a manual
// page (--man) and completion for shells (--completion bash, zsh or fish).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/base/result.h"

namespace CLI {
class App;
}

namespace kiln {

// "kiln-worker 0.1.0 (commit 67265120f2a1, protocol 3)": `facts` are what else a bug report needs.
std::string version_line(std::string_view program,
                         const std::vector<std::pair<std::string, std::string>>& facts);

// Parses `argv`. The exit code when the program ends now: 0 after --help, --version and the like,
// 2 after an error, which has been printed on stderr. `app` has its program's name.
std::optional<int> parse_command_line(CLI::App& app, int argc, const char* const* argv);

// "PROGRAM: what is wrong; did you mean ...? (PROGRAM COMMAND --help ...)", of arguments that `app`
// refused saying `complaint`.
std::string usage_error(const CLI::App& app, std::span<const std::string> arguments,
                        const std::string& complaint);

// The word nearest to `word` that it may be a misspelling of; empty: none is near.
std::string nearest_word(std::string_view word, std::span<const std::string> words);

// A page for man(1) in roff's man macros.
std::string man_page(const CLI::App& app);

// A script that a shell reads at its start. kInvalidArgument: another shell than bash, zsh or fish.
Result<std::string> completion(const CLI::App& app, std::string_view shell);

}  // namespace kiln
