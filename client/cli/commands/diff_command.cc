#include <fmt/format.h>

#include <cstdio>
#include <nlohmann/json.hpp>

#include "client/cli/exit_code.h"
#include "client/cli/explain/program_difference.h"
#include "client/cli/options.h"
#include "client/cli/report.h"
#include "compiler_core/frontend/exported_program.h"

namespace kiln::cli {
namespace {

constexpr size_t kDifferencesShown = 20;  // differences printed for people

Result<ExportedProgram> read_side(const std::string& file) {
  auto program = read_graph_file(file);
  if (!program && !program.error().message.starts_with(file))
    return fail(program.error().within(file));
  return program;
}

std::string difference_text(const Options& options, const ProgramDifference& found) {
  if (found.same()) return fmt::format("same computation, graph digest {}\n", found.first.hex());
  std::string text = fmt::format("- {}  {}\n+ {}  {}\n", found.first.short_hex(), options.files[0],
                                 found.second.short_hex(), options.files[1]);
  for (size_t i = 0; i < found.differences.size() && i < kDifferencesShown; ++i) {
    const Difference& each = found.differences[i];
    text += fmt::format("{:<9} {}\n", each.kind, each.where);
    if (!each.first.empty()) text += fmt::format("        - {}\n", each.first);
    if (!each.second.empty()) text += fmt::format("        + {}\n", each.second);
  }
  if (found.differences.size() > kDifferencesShown)
    text += fmt::format("... and {} more\n", found.differences.size() - kDifferencesShown);
  return text;
}

std::string difference_json(const Options& options, const ProgramDifference& found) {
  nlohmann::ordered_json differences = nlohmann::ordered_json::array();
  for (const Difference& each : found.differences)
    differences.push_back({{"kind", each.kind},
                           {"where", each.where},
                           {"first", each.first},
                           {"second", each.second}});
  const nlohmann::ordered_json object = {{"same", found.same()},
                                         {"files", options.files},
                                         {"graph_digests", {found.first.hex(), found.second.hex()}},
                                         {"differences", std::move(differences)}};
  return object.dump() + "\n";
}

Result<ProgramDifference> compare_files(const Options& options) {
  TRY(const ExportedProgram first, read_side(options.files[0]));
  TRY(const ExportedProgram second, read_side(options.files[1]));
  return find_differences(first, second);
}

}  // namespace

int diff_command(const Options& options) {
  const auto found = compare_files(options);
  if (!found) {
    if (options.json) std::printf("%s\n", error_json("", found.error()).dump().c_str());
    print_error("", found.error());
    return exit_code_of(found.error());
  }
  const std::string text =
      options.json ? difference_json(options, *found) : difference_text(options, *found);
  std::fputs(text.c_str(), stdout);
  return found->same() ? kDone : kAnswerIsNo;
}

}  // namespace kiln::cli
