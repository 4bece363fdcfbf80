#include "compiler_core/compile/nvrtc_compiler.h"

#include <algorithm>
#include <charconv>
#include <chrono>

namespace kiln {
namespace {

using Clock = std::chrono::steady_clock;

// The number in front of `unit` in `line`; 0 when there is none.
int number_before(std::string_view line, std::string_view unit) {
  const size_t at = line.find(unit);
  if (at == std::string_view::npos) return 0;
  size_t begin = at;
  while (begin > 0 && line[begin - 1] >= '0' && line[begin - 1] <= '9') --begin;
  int number = 0;
  std::from_chars(line.data() + begin, line.data() + at, number);
  return number;
}

}  // namespace

// ptxas, for each entry:
//   ptxas         .     0 bytes stack frame, 8 bytes spill stores, 12 bytes spill loads
//   ptxas info    : Used 32 registers, used 1 barriers, 1024 bytes smem
// Spilled registers live in the stack frame, too.
KernelResources parse_resources(std::string_view log) {
  KernelResources greatest;
  while (!log.empty()) {
    const std::string_view line = log.substr(0, log.find('\n'));
    log.remove_prefix(std::min(log.size(), line.size() + 1));
    const auto note = [&](int& field, int value) { field = std::max(field, value); };
    note(greatest.registers, number_before(line, " registers"));
    note(greatest.shared_bytes, number_before(line, " bytes smem"));
    note(greatest.stack_bytes, number_before(line, " bytes stack frame"));
    note(greatest.stack_bytes, number_before(line, " bytes cumulative stack size"));
    note(greatest.spill_bytes,
         number_before(line, " bytes spill stores") + number_before(line, " bytes spill loads"));
  }
  return greatest;
}

std::vector<std::string> nvrtc_flags(const Target& target) {
  return {"--gpu-architecture=" + target.isa, "-std=c++17", "--ptxas-options=-v"};
}

Digest NvrtcCompiler::candidate_key(const Source& source, const Target& target) const {
  return nvrtc_.candidate_key(source, target);
}

Result<Artifact> NvrtcCompiler::compile(const Source& source, const Target& target,
                                        int64_t timeout_ms) const {
  const auto deadline = Clock::now() + std::chrono::milliseconds(timeout_ms);
  TRY(Nvrtc::Object object,
      nvrtc_.compile(source, target, [=] { return Clock::now() >= deadline; }));
  return std::move(object.artifact);
}

}  // namespace kiln
