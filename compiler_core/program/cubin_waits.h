// Whether the code of a kernel that is launched before those in front of it have ended waits for them
// before it reads: its source does, but a compiler takes what is read as constant (ld.global.nc) for
// such from the kernel's begin on, and moves those reads in front of the wait where that seems quicker
// (tests/gpu/LOG.md). Pure; safe on hostile bytes.
#pragma once

#include <optional>
#include <string_view>

#include "compiler_core/program/artifact.h"

namespace kiln {

// Of one entry, from sm_90 on. False also where it does not wait at all, so far as this knows the
// machine's instructions. nullopt: the binary is no cubin, or has no such entry.
std::optional<bool> waits_before_it_reads(std::string_view binary, std::string_view entry);

// `recipe` for this binary of its source: phases of which the former is false are launched when those in
// front of them have ended. Not looked at: phases that read ready inputs before they wait.
Recipe with_safe_launches(Recipe recipe, std::string_view binary);

}  // namespace kiln
