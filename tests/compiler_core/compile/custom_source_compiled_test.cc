// The host compiler and its assembler read what the check of custom sources accepts, and open no
// file that it names.
//
//   KILN_CUSTOM_SOUPS   how many accepted sources are compiled; default 60. Of one in fifty or so
//                       that is made.
#include <gtest/gtest.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <cstdlib>
#include <random>

#include "compiler_core/compile/child_process.h"
#include "compiler_core/ir/custom_source.h"

namespace kiln {
namespace {

constexpr char kSecret[] = "secret";  // beside the source, so that a bare name will do
constexpr int kAtOnce = 20;           // sources a compiler's start

// Whether a file was opened, by whomever, since the last time that this was asked.
class OpenWatch {
 public:
  explicit OpenWatch(const Path& file) {
    EXPECT_GE(::inotify_add_watch(descriptor_, file.c_str(), IN_OPEN), 0);
  }
  ~OpenWatch() { ::close(descriptor_); }
  OpenWatch(const OpenWatch&) = delete;
  OpenWatch& operator=(const OpenWatch&) = delete;
  bool was_opened() {
    char events[4096];
    bool any = false;
    while (::read(descriptor_, events, sizeof events) > 0) any = true;
    return any;
  }

 private:
  const int descriptor_ = ::inotify_init1(IN_NONBLOCK | IN_CLOEXEC);
};

// Text of what attacks are made of: loose pieces, or statements that a compiler takes as far as its
// assembler.
class Soup {
 public:
  explicit Soup(const Path& secret) : secret_(secret.string()) {}

  std::string make() {
    std::string source = below(8) == 0 ? pick(kBeginnings) : "";
    const bool is_loose = below(2) == 0;
    for (size_t i = 2 + below(10); i > 0; --i) source += is_loose ? piece() : statement();
    return source + "\n";
  }
  static bool is_tempting(const std::string& source) {
    return source.find(kSecret) != std::string::npos &&
           source.find_first_of("#(") != std::string::npos;
  }

 private:
  using Words = std::vector<std::string>;
  size_t below(size_t bound) { return random_() % bound; }
  const std::string& pick(const Words& words) { return words[below(words.size())]; }
  std::string piece() {
    return below(6) == 0 ? pick({"\"secret\"", "<" + secret_ + ">", "secret"}) : pick(kPieces);
  }
  std::string string() {
    std::string text = pick(kPrefixes) + "\"";
    for (size_t i = 1 + below(4); i > 0; --i)
      text += below(5) == 0 ? pick({"secret", "\\\"secret\\\"", secret_}) : pick(kInStrings);
    return text + "\"";
  }
  std::string strings() {
    std::string text = string();
    for (size_t i = below(3); i > 0; --i) text += pick({" ", "", "\n", "X", "/**/"}) + string();
    return text;
  }
  std::string statement() {
    const std::string name = "n" + std::to_string(below(1'000'000));
    switch (below(9)) {
      case 0:
        return "asm(" + strings() + ");\n";
      case 1:
        return "int " + name + " asm(" + strings() + ") = 1;\n";
      case 2:
        return "int " + name + " __attribute__((section(" + strings() + "))) = 1;\n";
      case 3:
        return "void " + name + "() { static int s; asm volatile(" + strings() +
               " :: \"i\"(&s), \"i\"(" + std::to_string(below(9)) + ")); }\n";
      case 4:
        return "__attribute__((" + pick({"optimize(", "target(", "alias(", "target_clones("}) +
               strings() + "))) int " + name + "() { return 1; }\n";
      case 5:
        return "#pragma GCC " +
               pick({"target ", "optimize ", "diagnostic ignored ", "dependency ", "push_options\n",
                     "ivdep "}) +
               strings() + "\n";
      case 6:
        return "#define X " + piece() + piece() + "\n";
      case 7:
        return "const char* " + name + " = " + strings() + ";\n";
      default:
        return "#if " + piece() + piece() + "\n#endif\n";
    }
  }

  const Words kBeginnings = {"\xEF\xBB\xBF", "\xEF\xBB\xBFR\"(\")\"", "\xC2\xA0", "\r\n", "\\\n"};
  const Words kPieces = {"#",
                         "include",
                         " ",
                         "\n",
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
                         "\n",
                         "#include_next",
                         "#import",
                         "%:include",
                         "<:",
                         "__has_embed",
                         "__VERSION__",
                         "__COUNTER__",
                         "\xC2\xA0",
                         "\xE2\x80\xA8",
                         "\xEF\xBB\xBF",
                         "R",
                         "defined",
                         "1e+R\"(",
                         "__has_include__",
                         "import",
                         "#line 1 ",
                         "# 1 ",
                         "u8R\"",
                         "LR\"x(",
                         ")x\""};
  const Words kPrefixes = {"", "", "", "", "", "", "R", "u8", "L", "u8R"};
  const Words kInStrings = {"nop",      "\\n",     "\\t", ";",    "#",     " ",       "incbin ",
                            "include ", "%c0",     "%0",  "%=",   "%P0",   "%a0",     "%O0",
                            "%l0",      "%{a|b%}", "%+",  "%^",   "# 1 ",  "#APP",    "#NO_APP",
                            ",",        "0",       "1:",  "avx2", "-fno-", "default", "unused",
                            "name=",    "\\\\",    "\\\""};

  const std::string secret_;
  std::mt19937 random_{17};
};

int soups() {
  const char* const wanted = std::getenv("KILN_CUSTOM_SOUPS");
  return wanted == nullptr ? 60 : std::atoi(wanted);
}

class CustomSourceCompiled : public ::testing::Test {
 protected:
  CustomSourceCompiled() {
    EXPECT_TRUE(write_file(secret_, "int secret_was_read;\n"));
    watch_.emplace(secret_);
  }
  // The flags are those of kernels, as far as what they read goes.
  void compile(const std::vector<std::string>& sources) {
    std::vector<std::string> command = {"g++", "-std=gnu++17", "-w", "-c", "-fno-exceptions"};
    for (size_t i = 0; i < sources.size(); ++i) {
      command.push_back("source" + std::to_string(i) + ".cc");
      ASSERT_TRUE(write_file(dir_.path() / command.back(), sources[i]));
    }
    const auto compiled = run_child(command, dir_.path(), 120'000);
    ASSERT_TRUE(compiled.has_value());
    for (size_t i = 0; i < sources.size(); ++i)
      assembled_ += std::filesystem::remove(dir_.path() / ("source" + std::to_string(i) + ".o"));
  }

  const TempDir dir_ = *TempDir::create();
  const Path secret_ = dir_.path() / kSecret;
  std::optional<OpenWatch> watch_;
  int assembled_ = 0;
};

TEST_F(CustomSourceCompiled, TheWatchSeesWhatTheCheckRefuses) {
  for (const char* source :
       {"#include \"secret\"\n", "#if __has_include(\"secret\")\n#endif\n",
        "asm(\".incbin \\\"secret\\\"\");\n", "asm(\".include \\\"secret\\\"\");\n"}) {
    EXPECT_FALSE(verify_custom_source(source, "cpu"));
    compile({source});
    EXPECT_TRUE(watch_->was_opened()) << source;
  }
  compile({"asm(\"nop\");\n"});
  EXPECT_FALSE(watch_->was_opened());
}

TEST_F(CustomSourceCompiled, AcceptedSoupOfDangerousPiecesOpensNoFile) {
  Soup soup(secret_);
  int64_t made = 0;
  int accepted = 0;
  assembled_ = 0;
  std::vector<std::string> batch;
  for (; accepted < soups() && made < int64_t{5'000} * soups(); ++made) {
    std::string source = soup.make();
    if (!Soup::is_tempting(source) || !verify_custom_source(source, "cpu")) continue;
    ++accepted;
    batch.push_back(std::move(source));
    if (std::ssize(batch) < kAtOnce && accepted < soups()) continue;
    compile(batch);
    if (watch_->was_opened()) {
      std::string all;
      for (const std::string& each : batch) all += each + "----\n";
      FAIL() << "one of these opened the file:\n" << all;
    }
    batch.clear();
  }
  std::printf("%ld sources: %d accepted and compiled, %d of them to an object\n", made, accepted,
              assembled_);
  EXPECT_EQ(accepted, soups());
  EXPECT_GT(assembled_, 0) << "some get as far as the assembler";
}

}  // namespace
}  // namespace kiln
