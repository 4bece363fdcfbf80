#include "compiler_core/program/target.h"

#include <fmt/core.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>

namespace kiln {
namespace {

// Ascending: each level includes the ones before it.
constexpr std::array<std::string_view, 4> kX86Levels = {"x86-64", "x86-64-v2", "x86-64-v3",
                                                        "x86-64-v4"};

// Position in kX86Levels, or -1.
int x86_level(std::string_view isa) {
  const auto found = std::find(kX86Levels.begin(), kX86Levels.end(), isa);
  return found == kX86Levels.end() ? -1 : static_cast<int>(found - kX86Levels.begin());
}

// "sm_90a": number 90, suffix 'a'. A suffix ties the code to exactly that architecture.
struct SmVersion {
  int number = 0;  // 0: not an SM name
  char suffix = 0;
};

SmVersion sm_version(std::string_view isa) {
  if (!isa.starts_with("sm_")) return {};
  isa.remove_prefix(3);
  int number = 0;
  const auto [end, error] = std::from_chars(isa.data(), isa.data() + isa.size(), number);
  if (error != std::errc() || number < 10 || number > 999) return {};
  const std::string_view rest = isa.substr(static_cast<size_t>(end - isa.data()));
  if (rest.empty()) return {number, 0};
  if (rest == "a" || rest == "f") return {number, rest[0]};
  return {};
}

// "cuda-13": 13; 0 when it names none.
int toolkit_major(std::string_view toolkit) {
  if (!toolkit.starts_with("cuda-")) return 0;
  int major = 0;
  std::from_chars(toolkit.data() + 5, toolkit.data() + toolkit.size(), major);
  return major;
}

std::string cpu_model_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t value = line.find_first_not_of(" \t", line.find(':') + 1);
    if (line.find(':') != std::string::npos && value != std::string::npos)
      return line.substr(value);
  }
  return "unknown";
}

int allowed_cores() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  if (::sched_getaffinity(0, sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  // More than 1024 CPUs: the fixed-size mask does not fit, so take all that are online.
  return std::max(1, static_cast<int>(::sysconf(_SC_NPROCESSORS_ONLN)));
}

// The builtins also ask whether the system saves the wide registers. Clang (which builds the
// fuzzers) knows no level names before version 17: there, the features that came last with a level.
std::string_view highest_x86_level() {
  __builtin_cpu_init();
#if defined(__clang__)
  const bool v2 = __builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("popcnt");
  const bool v3 = v2 && __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                  __builtin_cpu_supports("bmi2");
  const bool v4 = v3 && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                  __builtin_cpu_supports("avx512vl");
#else
  const bool v2 = __builtin_cpu_supports("x86-64-v2");
  const bool v3 = __builtin_cpu_supports("x86-64-v3");
  const bool v4 = __builtin_cpu_supports("x86-64-v4");
#endif
  return v4 ? "x86-64-v4" : v3 ? "x86-64-v3" : v2 ? "x86-64-v2" : "x86-64";
}

std::string_view backend_name(Backend backend) {
  switch (backend) {
    case Backend::kCpu:
      return "cpu";
    case Backend::kCuda:
      return "cuda";
  }
  return "unknown";
}

}  // namespace

std::string Target::to_string() const {
  std::string text(backend_name(backend));
  if (!isa.empty()) text += ":" + isa;
  return text;
}

// The ISA reaches a compiler's command line, so only known names pass.
Result<Target> Target::parse(std::string_view text) {
  const size_t colon = text.find(':');
  const std::string_view backend = text.substr(0, colon);
  Target target;
  if (colon != std::string_view::npos) target.isa = text.substr(colon + 1);
  const bool any_isa = colon == std::string_view::npos;
  if (backend == "cpu" && (any_isa || x86_level(target.isa) >= 0)) return target;
  target.backend = Backend::kCuda;
  if (backend == "cuda" && (any_isa || sm_version(target.isa).number != 0)) return target;
  return fail(Code::kInvalidArgument,
              fmt::format("'{}' is not a target; write cpu, cpu:x86-64-v3, cpu:x86-64-v4, "
                          "cuda or cuda:sm_90a",
                          text.substr(0, 64)));
}

void Target::add_to(Hasher& hasher) const {
  hasher.add(backend_name(backend)).add(isa).add(device_model).add(int64_t{units}).add(toolkit);
}

bool Target::can_run(const Target& other) const {
  if (backend != other.backend || isa.empty() || other.isa.empty()) return false;
  if (!toolkit.empty() && toolkit_major(other.toolkit) > toolkit_major(toolkit)) return false;
  if (isa == other.isa) return true;
  if (backend == Backend::kCpu) {
    const int theirs = x86_level(other.isa);
    return theirs >= 0 && theirs <= x86_level(isa);
  }
  // A cubin runs on its own major version from its own minor version up, unless it has a suffix.
  const SmVersion ours = sm_version(isa), theirs = sm_version(other.isa);
  return theirs.number != 0 && theirs.suffix == 0 && ours.number / 10 == theirs.number / 10 &&
         ours.number >= theirs.number;
}

Target host_cpu_target() {
  Target target;
  target.backend = Backend::kCpu;
  target.isa = highest_x86_level();
  target.device_model = cpu_model_name();
  target.units = allowed_cores();
  return target;
}

std::string_view to_string(Mode mode) {
  switch (mode) {
    case Mode::kDefault:
      return "default";
    case Mode::kMaxAutotune:
      return "max-autotune";
  }
  return "unknown";
}

Result<Mode> parse_mode(std::string_view text) {
  for (Mode mode : {Mode::kDefault, Mode::kMaxAutotune})
    if (text == to_string(mode)) return mode;
  return fail(Code::kInvalidArgument,
              fmt::format("'{}' is not a mode; write default or max-autotune", text.substr(0, 64)));
}

}  // namespace kiln
