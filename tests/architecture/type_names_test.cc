// A type has a name of its own: two types of one qualified name in one program break the
// one-definition rule, and the linker merges what the compiler made of each without a word.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace kiln {
namespace {

namespace fs = std::filesystem;

// The types that `file` defines outside anonymous namespaces, qualified. clang-format keeps
// namespaces and what stands in them at the start of their lines.
std::set<std::string> types_of(const fs::path& file) {
  static const std::regex kOpen(R"(^(?:inline )?namespace ?([\w:]*) ?\{$)");
  static const std::regex kClose(R"(^\}  // namespace.*)");
  static const std::regex kType(
      R"(^(?:struct|class|union|enum|enum class) (?:\[\[\w+\]\] )?(\w+)(?: final)?(?: : [^{;]*)? \{.*)");
  std::set<std::string> types;
  std::vector<std::string> scopes;
  std::ifstream in(file);
  std::smatch match;
  for (std::string line; std::getline(in, line);) {
    if (std::regex_match(line, match, kOpen)) {
      scopes.push_back(match[1]);
    } else if (std::regex_match(line, kClose) && !scopes.empty()) {
      scopes.pop_back();
    } else if (std::regex_match(line, match, kType)) {
      std::string name;
      bool anonymous = false;
      for (const std::string& scope : scopes) {
        anonymous = anonymous || scope.empty();
        name += scope + "::";
      }
      if (!anonymous) types.insert(name + match[1].str());
    }
  }
  return types;
}

TEST(TypeNames, EachIsDefinedInOneFile) {
  std::map<std::string, std::set<std::string>> files_of;
  for (const char* room : {"compiler_core", "cache", "schema", "coordinator", "worker", "client"}) {
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_SOURCE_DIR) / room)) {
      const fs::path& file = entry.path();
      if (file.extension() != ".h" && file.extension() != ".cc") continue;
      for (const std::string& type : types_of(file)) {
        files_of[type].insert(fs::relative(file, KILN_SOURCE_DIR));
      }
    }
  }
  EXPECT_GT(files_of.size(), 100u) << "the types are found at all";
  EXPECT_TRUE(files_of.contains("kiln::Digest"));
  for (const auto& [type, files] : files_of) {
    EXPECT_EQ(files.size(), 1u) << type << " is defined in " << *files.begin() << " and in "
                                << *files.rbegin();
  }
}

}  // namespace
}  // namespace kiln
