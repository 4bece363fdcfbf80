#include "compiler_core/base/terminal_text.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(TerminalText, HasNothingThatATerminalObeys) {
  EXPECT_EQ(terminal_text("a\x1b[31m\x7f\rb"), "a?[31m??b");
  EXPECT_EQ(terminal_text(std::string("\0\x1f", 2)), "??");
  EXPECT_EQ(terminal_text("\xC2\x9B"
                          "2J"),
            "??2J");
}

TEST(TerminalText, WordsAndLinesStayAsTheyAre) {
  for (const char* text : {"", "one\n\ttwo", "\xC3\xBC \xC2\xB5 \xE6\xBC\xA2 \xC2\xA0", "a\xC2"})
    EXPECT_EQ(terminal_text(text), text);
}

}  // namespace
}  // namespace kiln
