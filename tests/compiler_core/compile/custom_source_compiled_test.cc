// The host compiler reads what the check of custom sources accepts.
#include <gtest/gtest.h>

#include <random>

#include "compiler_core/compile/child_process.h"
#include "compiler_core/ir/custom_source.h"

namespace kiln {
namespace {

// The compiler is the judge: whatever is made of dangerous pieces and accepted, it opens no file.
TEST(CustomSource, AcceptedSoupOfDangerousPiecesOpensNoFile) {
  const TempDir dir = *TempDir::create();
  ASSERT_TRUE(write_file(dir.path() / "secret", "#error secret_was_read\n"));
  const std::string secret = (dir.path() / "secret").string();
  const std::vector<std::string> pieces = {"#",
                                           "include",
                                           " ",
                                           "\n",
                                           "\"secret\"",
                                           "<" + secret + ">",
                                           "/*",
                                           "*/",
                                           "//",
                                           "\\\n",
                                           "\\ \n",
                                           "'",
                                           "\"",
                                           "R\"(",
                                           ")\"",
                                           "%:",
                                           "?"
                                           "?=",
                                           "?"
                                           "?/\n",
                                           "_Pragma",
                                           "asm",
                                           "(",
                                           ")",
                                           ";",
                                           "define X",
                                           "1'0",
                                           "#if 0\n",
                                           "\n#endif\n",
                                           "\t",
                                           "__has_include",
                                           "\n#include \"secret\"\n",
                                           "u8",
                                           "#embed",
                                           "\r\n",
                                           "\\",
                                           "##",
                                           "X",
                                           "\n"};
  std::mt19937 random(17);
  int accepted = 0;
  std::string all;
  for (int round = 0; round < 200'000 && accepted < 60; ++round) {
    std::string source;
    for (unsigned i = 3 + random() % 12; i-- > 0;) source += pieces[random() % pieces.size()];
    const bool tempting =
        source.find("secret") != std::string::npos && source.find('#') != std::string::npos;
    if (!tempting || !verify_custom_source(source, "cpu")) continue;
    ++accepted;
    ASSERT_TRUE(write_file(dir.path() / "source.cc", source + "\n"));
    const auto listed =
        run_child({"g++", "-std=gnu++17", "-E", "-H", "source.cc"}, dir.path(), 20'000);
    ASSERT_TRUE(listed.has_value());
    EXPECT_EQ(listed->output.find("secret_was_read"), std::string::npos)
        << source << listed->output;
  }
  EXPECT_EQ(accepted, 60);
}

}  // namespace
}  // namespace kiln
