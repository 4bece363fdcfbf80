#include "compiler_core/program/cubin_waits.h"

#include <fmt/core.h>

#include "compiler_core/program/cubin_sections.h"

namespace kiln {
namespace {

// An instruction has 16 bytes; the lowest bits of its first word say what it does. NVIDIA documents
// none of it; these are what `cuobjdump -sass` prints beside LDG and ACQBULK, the machine's
// griddepcontrol.wait (tests/compiler_core/program/cubin_waits_test.cc).
constexpr uint64_t kInstructionBytes = 16;
constexpr uint64_t kLoadMask = 0x1ff, kLoad = 0x181;  // in all forms of its operands
constexpr uint64_t kWaitMask = 0xfff, kWait = 0x82e;

bool waits_first(std::string_view code) {
  for (uint64_t at = 0; at < code.size(); at += kInstructionBytes) {
    const auto word = read_at<uint64_t>(code, at);
    if (!word || (*word & kLoadMask) == kLoad) return false;
    if ((*word & kWaitMask) == kWait) return true;
  }
  return false;
}

}  // namespace

std::optional<bool> waits_before_it_reads(std::string_view binary, std::string_view entry) {
  const auto sections = CubinSections::of(binary);
  if (!sections) return std::nullopt;
  const std::string name = fmt::format(".text.{}", entry);
  for (const CubinSections::Section& each : sections->all())
    if (each.name == name) {
      const auto code = sections->bytes(each);
      return code && waits_first(*code);
    }
  return std::nullopt;
}

Recipe with_safe_launches(Recipe recipe, std::string_view binary) {
  for (Phase& phase : recipe.phases) {
    if (phase.dependent_launch == DependentLaunch::kNo || reads_early(phase)) continue;
    if (!waits_before_it_reads(binary, phase.entry).value_or(true))
      phase.dependent_launch = DependentLaunch::kNo;
  }
  return recipe;
}

}  // namespace kiln
