#include "client/cli/lock_file.h"

#include <gtest/gtest.h>

#include "tests/cache/samples.h"

namespace kiln::cli {
namespace {

Program two_kernels() {
  Program program = samples::program(1);
  program.kernels.push_back(samples::kernel(2).kernel);
  program.launches = {{0, {0, 1}}, {1, {0, 1}}};
  return program;
}

TEST(LockFile, IsReadAsItWasPrinted) {
  Program on_gpu = two_kernels();
  on_gpu.target = {Backend::kCuda, "sm_90a", "NVIDIA H200", 132, "cuda-13"};
  on_gpu.mode = Mode::kDefault;
  const std::vector<LockedProgram> locked = {lock_of("models/a b.pt2", two_kernels()),
                                             lock_of("models/a b.pt2", on_gpu)};
  const auto read = parse_lock(print_lock(locked), "kiln.lock");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, locked);
}

// Tuned again, or planned again from the same winners, what runs is the same.
TEST(LockFile, WhenAndWhereAndHowFastAreNotPinned) {
  const Program was = two_kernels();
  Program now = was;
  now.serial = 7;
  now.made_at_ms = 1;
  now.template_stamp = Digest::of("another");
  now.kernels[0].report.best_us *= 2;
  now.kernels[0].provenance.measured = {"another worker", "key"};
  now.kernels[0].templates.clear();
  now.cuts = {{"by rules", 2, 3.0, true}};
  EXPECT_EQ(pinned_digest(now), pinned_digest(was));
  EXPECT_TRUE(changes(lock_of("a", was), lock_of("a", now)).empty());
}

TEST(LockFile, WhatChangedIsNamed) {
  const Program was = two_kernels();
  const auto change = [&](auto alter) {
    Program now = was;
    alter(now);
    EXPECT_NE(lock_of("a", now).digest, lock_of("a", was).digest);
    const auto found = changes(lock_of("a", was), lock_of("a", now));
    EXPECT_FALSE(found.empty());
    return found.empty() ? std::string() : found.front();
  };
  const auto contains = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  std::string text = change([](Program& p) { p.graph = samples::key("graph", 5); });
  EXPECT_TRUE(contains(text, "the model computes something else")) << text;
  text = change([](Program& p) { p.target.isa = "x86-64-v4"; });
  EXPECT_TRUE(contains(text, "cpu:x86-64-v4 and was cpu:x86-64-v3")) << text;
  text = change([](Program& p) { p.target.toolkit = "cuda-14"; });
  EXPECT_TRUE(contains(text, "cuda-14")) << text;
  text = change([](Program& p) { p.kernels[1].schedule = "cpu.pointwise vector=9"; });
  EXPECT_TRUE(contains(text, "kernel 1") && contains(text, "vector=9 and was")) << text;
  text = change([](Program& p) { p.kernels[0].blob = samples::key("blob", 5); });
  EXPECT_TRUE(contains(text, "kernel 0") && contains(text, "another binary")) << text;
  text = change([](Program& p) { p.kernels[0].workload = samples::key("workload", 5); });
  EXPECT_TRUE(contains(text, "divided differently")) << text;
  text = change([](Program& p) { p.kernels.pop_back(), p.launches.pop_back(); });
  EXPECT_TRUE(contains(text, "number of kernels is 1 and was 2")) << text;
  text = change([](Program& p) { p.launches = {{1, {0, 1}}, {0, {0, 1}}}; });
  EXPECT_TRUE(contains(text, "launches")) << text;
}

TEST(LockFile, WhatIsWrongIsNamedByItsLine) {
  const std::string good = print_lock({lock_of("a.pt2", samples::program(1))});
  const auto refused = [&](const std::string& text) {
    const auto read = parse_lock(text, "kiln.lock");
    EXPECT_FALSE(read) << text;
    return read ? Error{} : read.error();
  };
  EXPECT_EQ(refused("").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("model.pt2\n").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("kiln-lock \n").code, Code::kInvalidArgument);
  Error error = refused("kiln-lock 2\n");
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_NE(error.message.find("newer Kiln"), std::string::npos) << error.message;
  for (const char* line : {"  graph xyz", "  colour blue", "  mode fast", "  units many",
                           "  target moon:1", "  kernel 12 34 x"}) {
    error = refused(good + line + "\n");
    EXPECT_EQ(error.code, Code::kInvalidArgument) << line;
    EXPECT_NE(error.message.find("kiln.lock, line "), std::string::npos) << error.message;
  }
  EXPECT_EQ(refused("kiln-lock 1\n  mode default\n").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("kiln-lock 1\nprogram a.pt2\n").code, Code::kInvalidArgument);
  EXPECT_TRUE(parse_lock(good + "# a comment\n\n", "kiln.lock"));
}

}  // namespace
}  // namespace kiln::cli
