// Who may include whom (ARCHITECTURE.md), read from the #include lines themselves.
#include <gtest/gtest.h>

#include <algorithm>
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

struct Include {
  std::string file;  // relative to the repository
  std::string header;
  bool quoted = false;
};

const std::string kCore = "coordinator/core/";
const std::vector<std::string> kRooms = {"compiler_core", "cache",  "schema",
                                         "coordinator",   "worker", "client"};

std::vector<Include> all_includes() {
  static const std::regex kInclude(R"(^\s*#\s*include\s*([<"])([^>"]+)[>"])");
  std::vector<Include> includes;
  for (const std::string& room : kRooms)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_SOURCE_DIR) / room)) {
      const std::string extension = entry.path().extension();
      if (extension != ".cc" && extension != ".h") continue;
      std::ifstream in(entry.path());
      const std::string file = fs::relative(entry.path(), KILN_SOURCE_DIR);
      // Device code is text, not part of this build.
      if (file.find("/device/") != std::string::npos) continue;
      std::smatch match;
      for (std::string line; std::getline(in, line);)
        if (std::regex_search(line, match, kInclude))
          includes.push_back({file, match[2], match[1] == "\""});
    }
  return includes;
}

// "compiler_core/ir/graph.h" is in room "ir", "cache/x.h" in "cache".
std::string room_of(const std::string& path) {
  const size_t first = path.find('/');
  const std::string top = path.substr(0, first);
  if (top != "compiler_core") return top;
  return path.substr(first + 1, path.find('/', first + 1) - first - 1);
}

const std::set<std::string> kGraphSide = {"base", "ir", "program"};
const std::map<std::string, std::set<std::string>> kMayInclude = {
    {"base", {}},
    {"command_line", {"base"}},
    {"page", {"base"}},
    {"ir", {"base"}},
    {"frontend", {"base", "ir"}},
    {"passes", {"base", "ir"}},
    {"program", {"base"}},
    {"plan", {"base", "ir", "passes", "program"}},
    {"tune", {"base", "ir", "passes", "program", "plan"}},
    {"kernels", {"base", "ir", "passes", "program", "plan", "tune"}},
    {"compile", {"base", "ir", "passes", "program", "plan", "tune", "kernels"}},
    {"runtime", {"base", "program"}},
    {"cache", {"base", "program", "plan", "tune"}},
    {"schema", {"base", "ir", "program", "plan", "tune"}},
    {"coordinator",
     {"base", "command_line", "page", "ir", "passes", "program", "plan", "tune", "kernels", "cache",
      "schema"}},
    {"worker",
     {"base", "command_line", "ir", "passes", "program", "plan", "tune", "kernels", "compile",
      "runtime", "schema"}},
    {"client",
     {"base", "command_line", "page", "ir", "passes", "program", "plan", "tune", "kernels",
      "compile", "runtime", "frontend", "cache", "schema"}},
};

TEST(IncludeRules, RoomsIncludeOnlyWhatStandsBelowThem) {
  size_t checked = 0;
  for (const Include& include : all_includes()) {
    if (!include.quoted || include.header.find('/') == std::string::npos) continue;
    const std::string from = room_of(include.file), to = room_of(include.header);
    if (from == to) continue;
    ++checked;
    ASSERT_TRUE(kMayInclude.contains(from)) << include.file << " is in no known room";
    EXPECT_TRUE(kMayInclude.at(from).contains(to))
        << include.file << " includes " << include.header << ": " << from << " may not see " << to;
  }
  EXPECT_GT(checked, 100u) << "the test no longer finds the sources";
}

// Private to its folder: the functions of libcuda under the names of cuda.h.
const std::string kDriverApi = "compiler_core/runtime/cuda_api.h";

// A library that one folder hides from everybody else.
TEST(IncludeRules, ForeignLibrariesStayInTheirRooms) {
  const std::map<std::string, std::string> owners = {
      {R"(sqlite3\.h)", "cache/"},
      {R"(libpq-fe\.h)", "cache/postgres/"},
      {R"(curl/.*\.h)", "(cache/objects|schema/tracing/otlp)/"},
      {R"(zmq\.h(pp)?)", "schema/"},
      {R"((.*\.capnp|capnp/.*|kj/.*)\.h)", "schema/"},
      {R"((cuda|cublas|nvrtc).*\.h)", "nobody: they are opened at run time"},
      {R"(zip\.h|simdjson\.h)", "compiler_core/frontend/"},
      {R"(google/protobuf/.*\.h|onnx/onnx.*\.h)", "compiler_core/frontend/onnx/"},
      {R"(dlfcn\.h)", "compiler_core/(runtime|compile)/"},
      {R"(sodium.*\.h)", "compiler_core/base/"},
  };
  for (const Include& include : all_includes())
    for (const auto& [pattern, owner] : owners)
      if (std::regex_match(include.header, std::regex(pattern))) {
        EXPECT_TRUE(std::regex_search(include.file, std::regex("^" + owner)))
            << include.file << " includes " << include.header << ", which belongs to " << owner;
        EXPECT_TRUE(include.file.ends_with(".cc"))
            << include.file << " is a header and includes " << include.header;
      }
}

// Its names would clash with cuda.h's in a program that includes both.
TEST(IncludeRules, TheDriversDeclarationsStayInTheirFolder) {
  size_t checked = 0;
  for (const Include& include : all_includes()) {
    if (include.header != kDriverApi) continue;
    ++checked;
    EXPECT_TRUE(include.file.starts_with("compiler_core/runtime/")) << include.file;
  }
  EXPECT_GT(checked, 0u);
}

TEST(IncludeRules, TheCoordinatorsCoreIsPure) {
  const std::set<std::string> impure = {
      "chrono",   "thread", "mutex",    "fstream",         "filesystem",        "random",
      "unistd.h", "atomic", "iostream", "spdlog/spdlog.h", "condition_variable"};
  size_t checked = 0;
  for (const Include& include : all_includes()) {
    if (!include.file.starts_with(kCore)) continue;
    ++checked;
    EXPECT_FALSE(impure.contains(include.header)) << include.file << " includes <" << include.header
                                                  << ">: the core has no clock, no I/O, no threads";
    const std::string room = include.quoted ? room_of(include.header) : "";
    EXPECT_TRUE(room != "cache" && (room != "schema" || include.header == "schema/messages.h"))
        << include.file << " includes " << include.header << ": of the wire it knows the messages";
  }
  EXPECT_GT(checked, 30u) << "the test no longer finds the core";
}

// What a file below `root` is part of: with root "coordinator/core/" the folder "fleet" for
// "coordinator/core/fleet/worker_health.h"; a file that lies in `root` itself is its own part.
std::string part_of(const std::string& path, const std::string& root) {
  const std::string rest = path.substr(root.size());
  return rest.substr(0, rest.find('/'));
}

// part: the other parts of `root` that it includes.
std::map<std::string, std::set<std::string>> parts_below(const std::string& root) {
  std::map<std::string, std::set<std::string>> below;
  for (const Include& include : all_includes()) {
    if (!include.file.starts_with(root) || !include.header.starts_with(root)) continue;
    const std::string from = part_of(include.file, root), to = part_of(include.header, root);
    if (from != to) below[from].insert(to);
  }
  return below;
}

// The parts that include one another; empty if each stands on others only.
std::string cycle_in(std::map<std::string, std::set<std::string>> below) {
  const auto stands_alone = [&](const auto& entry) {
    return std::ranges::none_of(entry.second,
                                [&](const std::string& part) { return below.contains(part); });
  };
  for (auto free = std::ranges::find_if(below, stands_alone); free != below.end();
       free = std::ranges::find_if(below, stands_alone))
    below.erase(free);
  std::string cycle;
  for (const auto& [part, others] : below) cycle += " " + part;
  return cycle;
}

// core.h and core.cc route the events to everything else, so nothing below includes them; events.h
// is what everything may include.
TEST(IncludeRules, TheFoldersOfTheCoordinatorStandOnOneAnother) {
  EXPECT_EQ(cycle_in(parts_below("coordinator/")), "") << "these include one another";
  const auto below = parts_below(kCore);
  EXPECT_EQ(cycle_in(below), "") << "these include one another";
  EXPECT_GT(below.size(), 4u) << "the test no longer finds the folders";
  EXPECT_FALSE(below.contains("events.h")) << "events.h stands below everything";
  for (const auto& [part, others] : below)
    EXPECT_TRUE(part == "core.cc" || !others.contains("core.h")) << part << " includes core.h";
  EXPECT_TRUE(below.at("requests").contains("events.h"));
  for (const Include& include : all_includes()) {
    if (!include.file.starts_with(kCore) || !include.header.starts_with("coordinator/")) continue;
    EXPECT_TRUE(include.header.starts_with(kCore))
        << include.file << " includes " << include.header << ", which is of the shell";
  }
}

TEST(IncludeRules, OnlyMainsReadTheEnvironment) {
  for (const std::string& room : kRooms)
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(KILN_SOURCE_DIR) / room)) {
      const std::string file = entry.path().filename();
      if (entry.path().extension() != ".cc" || file.ends_with("main.cc")) continue;
      std::ifstream in(entry.path());
      const std::string text((std::istreambuf_iterator<char>(in)), {});
      EXPECT_EQ(text.find("getenv("), std::string::npos) << entry.path();
    }
}

}  // namespace
}  // namespace kiln
