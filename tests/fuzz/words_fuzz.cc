// The small texts: schedules, targets, sizes with symbols, modes, digests.
#include "compiler_core/base/check.h"
#include "compiler_core/base/digest.h"
#include "compiler_core/base/dim.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  return {"matmul tile_m=128 stages=-1 order=-9223372036854775808",
          "pointwise vector=8",
          "cuda:sm_90a",
          "cpu:x86-64-v4",
          "4*s0+1",
          "s0*s1*16",
          "max-autotune",
          Digest::of("seed").hex()};
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace kiln;  // NOLINT: one function
  const std::string_view text = fuzz::text_of(data, size);
  if (const auto schedule = Schedule::parse(text))
    CHECK(Schedule::parse(schedule->to_string()) == *schedule, "a schedule's text is its own");
  if (const auto target = Target::parse(text))
    CHECK(Target::parse(target->to_string()), "a target's text is its own");
  if (const auto dim = Dim::parse(text))
    CHECK(Dim::parse(dim->to_string()) == *dim, "a size's text is its own");
  if (const auto digest = Digest::parse(text)) CHECK(digest->hex() == text, "hex is hex");
  (void)parse_mode(text);
  return 0;
}
