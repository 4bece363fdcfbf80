#include "compiler_core/program/revocations.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr std::string_view kHead = "kiln-revocations 1";

std::vector<std::string_view> words(std::string_view line) {
  std::vector<std::string_view> found;
  while (!line.empty()) found.push_back(take_word(line));
  return found;
}

}  // namespace

bool Revocations::cover(const Program& program) const {
  const auto covers = [&](const auto& revoked, const Digest& key) {
    const auto found = revoked.find(key);
    return found != revoked.end() && program.serial <= found->second;
  };
  return covers(programs_, program.key) ||
         std::ranges::any_of(program.kernels, [&](const ProgramKernel& kernel) {
           return covers(kernels_, kernel.key);
         });
}

std::string Revocations::to_text() const {
  std::string text = fmt::format("{}\nserial {}\n", kHead, serial_);
  for (const auto& [name, revoked] :
       {std::pair{"program", &programs_}, std::pair{"kernel", &kernels_}})
    for (const auto& [key, through] : std::map(revoked->begin(), revoked->end()))
      text += fmt::format("{} {} {}\n", name, key.hex(), through);
  return text;
}

Result<Revocations> Revocations::parse(std::string_view text) {
  const auto damaged = [] { return fail(Code::kCorruption, "not a list of revocations"); };
  Revocations list;
  for (int line = 0; !text.empty(); ++line) {
    const size_t end = std::min(text.find('\n'), text.size());
    const auto said = words(text.substr(0, end));
    if (line == 0 && text.substr(0, end) != kHead) return damaged();
    if (line == 1 &&
        (said.size() != 2 || said[0] != "serial" || !read_count(said[1], list.serial_)))
      return damaged();
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line < 2) continue;
    int64_t through = 0;
    const auto key = said.size() == 3 ? Digest::parse(said[1]) : Result<Digest>(damaged());
    if (!key || !read_count(said[2], through)) return damaged();
    if (said[0] == "program")
      list.revoke_program(*key, through);
    else if (said[0] == "kernel")
      list.revoke_kernel(*key, through);
    // A later version may name other kinds.
  }
  if (list.serial_ == 0) return damaged();
  return list;
}

}  // namespace kiln
