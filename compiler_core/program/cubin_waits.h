// Whether a kernel's machine code waits for the kernels in front of it before it reads. Its source does.
// But a compiler takes what is read by ld.global.nc for constant while the kernel runs, and may move such
// reads in front of the wait (tests/gpu/LOG.md). Pure; safe on hostile bytes.
#pragma once

#include <optional>
#include <string_view>

#include "compiler_core/program/artifact.h"

namespace kiln {

// For one entry, from sm_90 on. False also where no wait is found. nullopt: the binary is no cubin, or has
// no such entry.
std::optional<bool> waits_before_it_reads(std::string_view binary, std::string_view entry);

// `recipe` as it is launched with this binary: a phase whose code reads before it waits starts when all
// kernels in front of it have ended. Phases that may read early (reads_early) are not looked at.
Recipe with_safe_launches(Recipe recipe, std::string_view binary);

}  // namespace kiln
