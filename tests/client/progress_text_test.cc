// The line of progress: totals are those of the mode, and what holds a compile up is named.
#include <gtest/gtest.h>

#include "client/cli/report.h"

namespace kiln::cli {
namespace {

TEST(ProgressText, CountsWhatTheModeDoes) {
  const CompileProgress progress{28, 7, 354, 40, 10.0, ""};
  EXPECT_EQ(progress_text("m.pt2", Mode::kDefault, progress),
            "m.pt2  kernels 7/28  10.0 s, about 30 s left");
  EXPECT_EQ(progress_text("m.pt2", Mode::kMaxAutotune, progress),
            "m.pt2  kernels 7/28  candidates 40/354  10.0 s, about 78 s left");
}

TEST(ProgressText, GuessesNothingFromTooLittle) {
  EXPECT_EQ(progress_text("m", Mode::kMaxAutotune, {2, 0, 100, 3, 1.0, ""}),
            "m  kernels 0/2  candidates 3/100  1.0 s");
  EXPECT_EQ(progress_text("m", Mode::kDefault, {0, 0, 0, 0, 0.5, ""}), "m  kernels 0/0  0.5 s");
  EXPECT_EQ(progress_text("m", Mode::kDefault, {2, 2, 9, 9, 0.5, ""}), "m  kernels 2/2  0.5 s");
}

TEST(ProgressText, NamesWhatItWaitsFor) {
  EXPECT_EQ(progress_text("m", Mode::kDefault, {1, 0, 1, 0, 2.0, "worker w for the device's lock"}),
            "m  kernels 0/1  2.0 s  waits: worker w for the device's lock");
}

}  // namespace
}  // namespace kiln::cli
