// OfferedKernel: a finished kernel that somebody offers as a candidate for a workload, beside those
// that Kiln's templates make: a hand-written one, or what another compiler made. A coordinator keeps
// them as artifacts of the kind kOfferedKind, and tries each in max-autotune where its workload is
// tuned for its target. To the search each is a kernel template of its own with one schedule,
// "offered.NAME.DIGEST"; workers that have the template "offered" can try them. Immutable values.
//
// Text of the artifact, version 1: one line of JSON {"format": 1, "workload": hex, "target":
// "cuda:sm_90a", "name": ..., "recipe": {...}}, a newline, and the bytes of the binary. Its key:
// "WORKLOAD/TARGET/offered.NAME.DIGEST".
#pragma once

#include <string>
#include <string_view>

#include "compiler_core/program/artifact.h"
#include "compiler_core/program/target.h"

namespace kiln {

inline constexpr char kOfferedKind[] = "kiln.candidate";
inline constexpr std::string_view kOfferedTemplate = "offered";

struct OfferedKernel {
  std::string name;  // a word of C, at most 64 bytes
  Digest workload;
  Target target;  // backend and ISA; binaries of that very ISA only
  Recipe recipe;  // of constant sizes; calls no library
  std::string binary;

  // "offered.NAME.DIGEST": 128 bits of a digest of name, recipe and binary, in hex.
  std::string template_name() const;
  std::string key() const;
  // The part of the key that offers for one workload and target share: up to the second '/', with it.
  static std::string place(const Digest& workload, const Target& target);
};

// Whether a template's name is an offered kernel's.
bool is_offered(std::string_view template_name);
// The template that a worker needs for candidates of this one: itself, or kOfferedTemplate.
std::string_view needed_template(std::string_view template_name);

std::string offered_to_text(const OfferedKernel& offered);
// kInvalidArgument says what stands against it. Safe on hostile text.
Result<OfferedKernel> offered_from_text(std::string_view text);

}  // namespace kiln
