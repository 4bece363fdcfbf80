// Target: what code is made for. Hard facts must match for a binary to be usable at all; soft facts
// say where it was tuned. Text: "cpu:x86-64-v4", "cuda:sm_90a" (the ISA only; the rest follows from
// the machine).
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/base/digest.h"

namespace kiln {

enum class Backend : uint8_t { kCpu = 1, kCuda = 2 };

struct Target {
  Backend backend = Backend::kCpu;
  std::string isa;           // hard: "x86-64-v3", "x86-64-v4"; "sm_90a"
  std::string device_model;  // soft: "Intel(R) Xeon(R) Processor"; empty: any
  int units = 0;             // soft: cores used by one launch, or SMs; 0: any
  std::string toolkit;       // hard: "cuda-13", whose cubins need a driver of that age; empty: any

  bool operator==(const Target&) const = default;
  std::string to_string() const;                       // "cpu:x86-64-v4"
  static Result<Target> parse(std::string_view text);  // "cpu" alone leaves isa empty
  void add_to(Hasher& hasher) const;                   // every field
  // Code made for `other` runs here: equal backend, an ISA this one includes, a toolkit no newer.
  bool can_run(const Target& other) const;
};

// This machine's CPU: the highest x86-64 level it has, its model name, and the cores we may use
// (the affinity mask, so that containers are respected).
Target host_cpu_target();

enum class Mode : uint8_t { kDefault = 1, kMaxAutotune = 2 };
std::string_view to_string(Mode mode);  // "default", "max-autotune"
Result<Mode> parse_mode(std::string_view text);

}  // namespace kiln
