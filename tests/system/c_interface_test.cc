// The C interface, by a C program and by what the library exports.
#include <gtest/gtest.h>

#include <regex>
#include <set>

#include "compiler_core/base/file.h"
#include "tests/system/one_service.h"

namespace kiln::testing {
namespace {

class CInterface : public OneService<> {
 protected:
  static Finished program(const std::vector<std::string>& arguments) {
    std::vector<std::string> command = {KILN_BINARY_DIR "/tests/c_interface"};
    command.insert(command.end(), arguments.begin(), arguments.end());
    return run(command, {}, 180);
  }
};

// The names that `pattern` finds in `text`.
std::set<std::string> names_in(const std::string& text, const char* pattern) {
  const std::regex name(pattern);
  std::set<std::string> names;
  for (std::sregex_iterator it(text.begin(), text.end(), name), end; it != end; ++it)
    names.insert((*it)[1]);
  return names;
}

TEST_F(CInterface, TheLibraryExportsWhatTheHeaderDeclaresAndNothingElse) {
  const Finished exported =
      run({"/usr/bin/nm", "-D", "--defined-only", KILN_BINARY_DIR "/client/libkiln.so"}, {}, 60);
  ASSERT_EQ(exported.exit_code, 0) << exported.err;
  const auto header = read_file(KILN_SOURCE_DIR "/client/kiln.h");
  ASSERT_TRUE(header);
  const auto declared = names_in(*header, R"(KILN_API [^;(]*?(kiln_\w+)\()");
  EXPECT_GT(declared.size(), 25u);
  EXPECT_EQ(names_in(exported.out, R"((\S+)\n)"), declared);
}

TEST_F(CInterface, ACProgramUsesEveryFunction) {
  const auto source = read_file(KILN_SOURCE_DIR "/tests/system/c_interface/main.c");
  const auto header = read_file(KILN_SOURCE_DIR "/client/kiln.h");
  ASSERT_TRUE(source && header);
  for (const std::string& name : names_in(*header, R"(KILN_API [^;(]*?(kiln_\w+)\()"))
    EXPECT_NE(source->find(name + "("), std::string::npos) << name;
  const Finished alone = program({});
  EXPECT_EQ(alone.exit_code, 0) << alone.err;
}

TEST_F(CInterface, ACallThatWaitsIsEndedByItsProgressFunction) {
  const Finished ended = program({service_->endpoint(), "cancel"});
  EXPECT_EQ(ended.exit_code, 0) << ended.err;
  const Finished whole = program({service_->endpoint()});
  EXPECT_EQ(whole.exit_code, 0) << whole.err << service_->log();
}

}  // namespace
}  // namespace kiln::testing
