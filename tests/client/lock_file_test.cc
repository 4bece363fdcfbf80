#include "client/lock_file.h"

#include <gtest/gtest.h>

#include <functional>
#include <random>
#include <set>

#include "tests/cache/samples.h"

namespace kiln {
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

// Of a model of a parameter that is not dense, an input that is not read, and a buffer that changes.
LockedCall four_inputs() {
  using Kind = ExportedInput::Kind;
  LockedCall call;
  call.inputs = {{1, Kind::kParameter, "conv.weight", {8, 4}, {1, 8}},
                 {-1, Kind::kUser, "not read"},
                 {0, Kind::kBuffer, "calls"},
                 {2, Kind::kUser, "x"}};
  call.mutations = {{1, 2}};
  return call;
}

TEST(LockFile, HowTheModelIsCalledIsKept) {
  const LockedProgram locked = lock_of("a.pt2", two_kernels(), four_inputs());
  const std::string text = print_lock({locked});
  EXPECT_NE(
      text.find("  input 1 parameter conv.weight\n  layout 8,4 1,8\n  input - user not read\n"),
      std::string::npos)
      << text;
  const auto read = parse_lock(text, "kiln.lock");
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->front(), locked);
  // What a Kiln of before wrote says nothing of it, and is no change.
  std::string before = print_lock({lock_of("a.pt2", two_kernels())});
  before.replace(before.find("kiln-lock 2"), 11, "kiln-lock 1");
  const auto old = parse_lock(before, "kiln.lock");
  ASSERT_TRUE(old) << old.error().message;
  EXPECT_TRUE(changes(old->front(), locked).empty());
}

TEST(LockFile, OtherInputsAreAChange) {
  const LockedProgram was = lock_of("a", two_kernels(), four_inputs());
  for (const auto& alter : std::vector<std::function<void(LockedCall&)>>{
           [](LockedCall& call) { call.inputs[3].name = "y"; },
           [](LockedCall& call) { std::swap(call.inputs[0].place, call.inputs[3].place); },
           [](LockedCall& call) {
             call.inputs[0].strides = {4, 1};
           },
           [](LockedCall& call) { call.mutations.clear(); }}) {
    LockedProgram now = was;
    alter(now.call);
    ASSERT_EQ(changes(was, now).size(), 1u);
    EXPECT_NE(changes(was, now)[0].find("inputs have other names"), std::string::npos);
  }
  EXPECT_TRUE(changes(was, was).empty());
}

// Bytes that were altered by a hand or a disk are read as something whole, or refused.
TEST(LockFile, AlteredInputsAreWholeOrRefused) {
  const std::string good = print_lock({lock_of("a.pt2", two_kernels(), four_inputs())});
  std::mt19937 random(20261127);
  int refused = 0;
  for (int turn = 0; turn < 3000; ++turn) {
    std::string text = good;
    for (int change = 0; change < 2; ++change)
      text[random() % text.size()] = "0123456789-, \nuserbufferinput"[random() % 30];
    const auto read = parse_lock(text, "kiln.lock");
    if (!read) {
      ++refused;
      continue;
    }
    for (const LockedProgram& program : *read) {
      const auto& inputs = program.call.inputs;
      std::set<int> places;
      for (const LockedInput& input : inputs) {
        EXPECT_EQ(input.sizes.size(), input.strides.size());
        if (input.place < 0) continue;
        EXPECT_TRUE(places.insert(input.place).second) << text;
      }
      const int last = places.empty() ? -1 : *places.rbegin();
      EXPECT_EQ(last + 1, static_cast<int>(places.size())) << text;
      for (const LockedMutation& each : program.call.mutations)
        EXPECT_LT(static_cast<size_t>(each.input), inputs.size()) << text;
    }
  }
  EXPECT_GT(refused, 100);
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
  Error error = refused("kiln-lock 3\n");
  EXPECT_EQ(error.code, Code::kUnsupported);
  EXPECT_NE(error.message.find("newer Kiln"), std::string::npos) << error.message;
  for (const char* line :
       {"  graph xyz", "  colour blue", "  mode fast", "  units many", "  target moon:1",
        "  kernel 12 34 x", "  input 0 friend x", "  input x user x", "  layout 2 1",
        "  input - user x\n  layout 2,2 1"}) {
    error = refused(good + line + "\n");
    EXPECT_EQ(error.code, Code::kInvalidArgument) << line;
    EXPECT_NE(error.message.find("kiln.lock, line "), std::string::npos) << error.message;
  }
  for (const char* line :
       {"  input 1 user x", "  input 0 user x\n  input 0 user y", "  mutation 0 0"}) {
    error = refused(good + line + "\n");
    EXPECT_NE(error.message.find("kiln.lock: program 'a.pt2' lacks its inputs"), std::string::npos)
        << error.message;
  }
  EXPECT_EQ(refused("kiln-lock 1\n  mode default\n").code, Code::kInvalidArgument);
  EXPECT_EQ(refused("kiln-lock 1\nprogram a.pt2\n").code, Code::kInvalidArgument);
  EXPECT_TRUE(parse_lock(good + "# a comment\n\n", "kiln.lock"));
}

}  // namespace
}  // namespace kiln
