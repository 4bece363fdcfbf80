// Errors name the program and the next step; shells and man(1) read what is made of the options.
#include "compiler_core/command_line/command_line.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>

namespace kiln {
namespace {

using ::testing::internal::CaptureStderr;
using ::testing::internal::CaptureStdout;
using ::testing::internal::GetCapturedStderr;
using ::testing::internal::GetCapturedStdout;

// A program with commands of one and of two words.
struct Baker {
  CLI::App app{"Bakes bread.\n\n  baker bake rye.dough\n\nNothing else.", "baker"};
  std::string dough, oven = "left", shelf;
  int minutes = 0;
  bool json = false;

  Baker() {
    app.require_subcommand(1);
    app.set_version_flag("--version", "baker 1");
    app.footer("Exit codes: 0 baked.");
    CLI::App* bake = app.add_subcommand("bake", "Puts it in.\nWaits.");
    bake->add_option("DOUGH", dough, "What to bake")->required();
    bake->add_option("--oven", oven, "Which one's it")->check(CLI::IsMember({"left", "right"}));
    bake->add_option("--minutes", minutes, "How long");
    bake->add_flag("--json", json, "For scripts");
    bake->add_flag("--secret", json)->group("");
    CLI::App* shelves = app.add_subcommand("shelves", "Where bread lies");
    shelves->require_subcommand(1);
    shelves->add_subcommand("ls", "Lists it")->add_option("--sort", shelf, "By what");
    shelves->add_subcommand("sweep", "Throws it away");
  }

  std::string error_of(std::vector<const char*> arguments, int expected = 2) {
    arguments.insert(arguments.begin(), "baker");
    CaptureStderr();
    const auto code = parse_command_line(app, static_cast<int>(arguments.size()), arguments.data());
    std::string said = GetCapturedStderr();
    EXPECT_EQ(code, expected) << said;
    return said;
  }
  std::string output_of(std::vector<const char*> arguments) {
    CaptureStdout();
    error_of(std::move(arguments), 0);
    return GetCapturedStdout();
  }
};

TEST(UsageError, NamesTheCommandThatWasMeant) {
  EXPECT_EQ(Baker().error_of({"bkae", "rye"}),
            "baker: no command 'bkae'; did you mean bake? (baker --help lists them)\n");
  EXPECT_EQ(Baker().error_of({"shelves", "list"}),
            "baker: baker shelves has no command 'list'; did you mean ls? (baker shelves --help "
            "lists them)\n");
  EXPECT_EQ(Baker().error_of({"dance"}), "baker: no command 'dance' (baker --help lists them)\n");
}

TEST(UsageError, AnswersHelpOnACommandThatIsNone) {
  EXPECT_EQ(Baker().error_of({"help", "bkae"}),
            "baker: no command 'bkae'; did you mean bake? (baker --help lists them)\n");
}

TEST(UsageError, NamesTheOptionThatWasMeant) {
  EXPECT_EQ(Baker().error_of({"bake", "rye", "--minuets=3"}),
            "baker: baker bake has no option --minuets; did you mean --minutes? (baker bake --help "
            "lists them)\n");
  const std::string hidden = Baker().error_of({"bake", "rye", "--secre"});
  EXPECT_EQ(hidden.find("--secret"), std::string::npos) << hidden;
}

TEST(UsageError, SaysWhichCommandsThereAreWhenNoneIsGiven) {
  EXPECT_EQ(Baker().error_of({}),
            "baker: which command? bake or shelves (baker --help says what each does)\n");
  EXPECT_EQ(Baker().error_of({"shelves"}),
            "baker: which command? ls or sweep (baker shelves --help says what each does)\n");
}

TEST(UsageError, HasTheProgramsNameInFrontOfEveryOther) {
  EXPECT_EQ(Baker().error_of({"bake"}), "baker: DOUGH is required (baker bake --help explains)\n");
  EXPECT_EQ(Baker().error_of({"bake", "rye", "--oven", "middle"}),
            "baker: --oven: middle not in {left,right} (baker bake --help explains)\n");
  EXPECT_EQ(Baker().error_of({"bake", "rye", "--minutes", "ten"}),
            "baker: --minutes: 'ten' is no number (baker bake --help explains)\n");
}

TEST(UsageError, NamesTheOptionThatTookAnotherForItsValue) {
  EXPECT_EQ(Baker().error_of({"bake", "--oven", "--minutes", "3", "rye"}),
            "baker: --oven takes a value (baker bake --help explains)\n");
}

// A value may be the name of a command.
TEST(UsageError, ValuesAreNoCommands) {
  EXPECT_EQ(Baker().error_of({"bake", "--oven", "shelves", "rye"}),
            "baker: --oven: shelves not in {left,right} (baker bake --help explains)\n");
}

TEST(NearestWord, IsNearEnough) {
  const std::vector<std::string> words = {"compile", "run", "cache", "warm"};
  EXPECT_EQ(nearest_word("compil", words), "compile");
  EXPECT_EQ(nearest_word("comiple", words), "compile");
  EXPECT_EQ(nearest_word("com", words), "compile");
  EXPECT_EQ(nearest_word("rum", words), "run");
  EXPECT_EQ(nearest_word("x", words), "");
  EXPECT_EQ(nearest_word("", words), "");
  EXPECT_EQ(nearest_word("elephant", words), "");
}

TEST(Help, IsACommandToo) {
  const std::string help = Baker().output_of({"help", "bake"});
  EXPECT_NE(help.find("How long"), std::string::npos) << help;
  EXPECT_EQ(help, Baker().output_of({"bake", "--help"}));
  EXPECT_EQ(Baker().output_of({"help"}), Baker().output_of({"--help"}));
  EXPECT_EQ(Baker().output_of({"version"}), "baker 1\n");
}

TEST(VersionLine, NamesTheCommit) {
  const std::string line = version_line("baker", {{"protocol", "3"}});
  EXPECT_TRUE(line.starts_with("baker " KILN_VERSION " (commit ")) << line;
  EXPECT_TRUE(line.ends_with(", protocol 3)")) << line;
}

TEST(ManPage, HasEveryCommandAndOption) {
  const std::string page = Baker().output_of({"--man"});
  for (const char* text :
       {".TH BAKER 1", ".SH NAME\nbaker \\- Bakes bread.\n", "\\fI",
        ".nf\n  baker bake rye.dough\n", ".SS baker bake\n", ".SS baker shelves ls\n",
        "\\fB\\-\\-oven\\fR", "One of: left, right.", "Exit codes: 0 baked."})
    EXPECT_NE(page.find(text), std::string::npos) << text << "\n" << page;
  EXPECT_EQ(page.find("secret"), std::string::npos);
}

TEST(Completion, IsRefusedForOtherShells) {
  EXPECT_EQ(Baker().error_of({"--completion", "tcsh"}),
            "baker: no completion for 'tcsh': bash, zsh or fish\n");
}

// What bash offers once the words were typed; the last one is being typed.
std::string offered(const std::vector<std::string>& words) {
  std::string line = "COMP_WORDS=(";
  for (const std::string& word : words) line += "'" + word + "' ";
  Baker baker;
  const std::string script = "/tmp/kiln-completion-" + std::to_string(::getpid());
  std::ofstream(script) << completion(baker.app, "bash").value() << line
                        << "); COMP_CWORD=$((${#COMP_WORDS[@]} - 1)); _baker; echo "
                           "\"${COMPREPLY[*]}\"\n";
  FILE* bash = ::popen(("bash " + script).c_str(), "r");
  char text[4096] = "";
  if (std::fgets(text, sizeof text, bash) == nullptr) text[0] = '\0';
  EXPECT_EQ(::pclose(bash), 0);
  std::remove(script.c_str());
  std::string answer = text;
  return answer.substr(0, answer.find('\n'));
}

TEST(BashCompletion, OffersCommandsOptionsAndChoices) {
  EXPECT_EQ(offered({"baker", ""}), "bake shelves");
  EXPECT_EQ(offered({"baker", "sh"}), "shelves");
  EXPECT_EQ(offered({"baker", "shelves", ""}), "ls sweep");
  EXPECT_EQ(offered({"baker", "bake", "rye", "--m"}), "--minutes");
  EXPECT_EQ(offered({"baker", "bake", "--oven", ""}), "left right");
  EXPECT_EQ(offered({"baker", "bake", "--oven", "r"}), "right");
  EXPECT_EQ(offered({"baker", "bake", ""}), "") << "files are bash's own";
  EXPECT_EQ(offered({"baker", "bake", "--sec"}), "") << "hidden";
}

}  // namespace
}  // namespace kiln
