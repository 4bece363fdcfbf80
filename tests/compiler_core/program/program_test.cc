#include "compiler_core/program/program.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <random>

namespace kiln {
namespace {

using Json = nlohmann::json;

const TensorSpec kVector{DType::kF32, {256}};

ProgramKernel kernel(std::string_view name, std::vector<TensorSpec> inputs) {
  ProgramKernel kernel;
  kernel.workload = Digest::of(name);
  kernel.key = Digest::of(std::string(name) + " key");
  kernel.family = "pointwise";
  kernel.schedule = "pointwise vector=16";
  kernel.blob = Digest::of(std::string(name) + " blob");
  kernel.recipe = {std::move(inputs), {kVector}, {{"k", 4}}, 0, 0};
  kernel.report = {12, 10, 2, 3.25, 7.5, 41.5};
  return kernel;
}

// y = g(f(x), x), with f(x) in the arena, returned twice; and x itself is returned.
Program two_kernels() {
  Program program;
  program.key = Digest::of("key");
  program.graph = Digest::of("graph");
  program.target = {Backend::kCpu, "x86-64-v3", "some \"model\"", 2, {}};
  program.mode = Mode::kMaxAutotune;
  program.template_stamp = Digest::of("stamp");
  program.kernels = {kernel("f", {kVector}), kernel("g", {kVector, kVector})};
  program.buffers = {{Buffer::Kind::kInput, 0, kVector, 0},
                     {Buffer::Kind::kTemporary, 0, kVector, 64},
                     {Buffer::Kind::kOutput, 0, kVector, 0}};
  program.launches = {{0, {0, 1}}, {1, {1, 0, 2}}};
  program.output_buffers = {2, 2, 0};
  program.arena_bytes = 64 + 1024;
  return program;
}

TEST(ProgramJson, RoundTrips) {
  const Program program = two_kernels();
  const Result<Program> read = program_from_json(program_to_json(program));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, program);
}

// The kernels take 8 rows a launch and know the size as their own s1.
Program with_symbols() {
  Program program = two_kernels();
  const TensorSpec rows{DType::kF32, {Dim::symbol(0), 8}};
  for (Buffer& buffer : program.buffers) buffer.spec = rows;
  for (ProgramKernel& kernel : program.kernels) {
    const TensorSpec folded{DType::kF32, {Dim::symbol(1)}};
    for (TensorSpec& spec : kernel.recipe.inputs) spec = folded;
    kernel.recipe.outputs = {folded};
    kernel.recipe.phases[0].grid = Grid({{Dim::symbol(1), 64}, {6, 2}});
  }
  for (Launch& launch : program.launches) launch.dims = {5, Dim::symbol(0) * 8};
  program.arena_bytes = Dim::symbol(0) * 64 + 64;
  program.symbols = {{1, 4096, 31}};
  program.guards = {{Dim::symbol(0), 1, 128}};
  return program;
}

TEST(ProgramJson, RoundTripsWithSymbols) {
  const Program program = with_symbols();
  const Result<Program> read = program_from_json(program_to_json(program));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, program);
}

TEST(ProgramJson, RoundTripsWithTheCutsThatWereTuned) {
  Program program = two_kernels();
  program.cuts = {{"by rules", 2, 7.5, false}, {"apart", 3, 6.25, true}};
  const std::string text = program_to_json(program);
  const Result<Program> read = program_from_json(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, program);
  const Json flat = Json::parse(text).flatten();
  for (const char* field : {"name", "launches", "us", "taken"}) {
    Json damaged = flat;
    damaged[std::string("/cuts/0/") + field] = nullptr;
    EXPECT_FALSE(program_from_json(damaged.unflatten().dump())) << field;
  }
}

TEST(ProgramJson, APlainProgramHasNoFieldsForSymbols) {
  const std::string text = program_to_json(two_kernels());
  for (const char* field : {"symbols", "guards", "dims", "cuts"})
    EXPECT_EQ(text.find(field), std::string::npos) << field;
}

TEST(ProgramJson, SymbolsAreCheckedForEverySizeOfASample) {
  const std::vector<std::pair<const char*, std::function<void(Program&)>>> harms = {
      {"arena that is large enough for small sizes only",
       [](Program& p) { p.arena_bytes = 64 + 16 * 32; }},
      {"temporary that some size takes off its alignment",
       [](Program& p) { p.buffers[1].arena_offset = Dim::symbol(0) * 32; }},
      {"temporary below the arena",
       [](Program& p) { p.buffers[1].arena_offset = Dim::symbol(0) * 64 - 640; }},
      {"argument of another size", [](Program& p) { p.launches[0].dims[1] = Dim::symbol(0) * 7; }},
      {"argument of a size that overflows",
       [](Program& p) { p.launches[0].dims[1] = Dim::symbol(0) * INT64_MAX; }},
      {"kernel symbol that the launch does not bind",
       [](Program& p) { p.launches[0].dims.pop_back(); }},
      {"grid of a symbol that the launch does not bind",
       [](Program& p) { p.kernels[0].recipe.phases[0].grid = Dim::symbol(2); }},
      {"launch of a symbol that is not there",
       [](Program& p) { p.launches[0].dims[0] = Dim::symbol(1); }},
      {"buffer of a symbol that is not there",
       [](Program& p) {
         p.buffers.push_back({Buffer::Kind::kInput, 1, {DType::kF32, {Dim::symbol(1)}}, 0});
       }},
      {"guard of a symbol that is not there",
       [](Program& p) { p.guards[0].value = Dim::symbol(1); }},
      {"guard that nothing can keep", [](Program& p) { p.guards[0].min = 129; }},
      {"contradictory range", [](Program& p) { p.symbols[0].max = 0; }},
      {"negative size", [](Program& p) { p.symbols[0].min = -1; }},
      {"no symbols at all", [](Program& p) { p.symbols.clear(); }},
  };
  for (const auto& [name, harm] : harms) {
    Program program = with_symbols();
    harm(program);
    const Result<Program> read = program_from_json(program_to_json(program));
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().code, Code::kCorruption) << name;
  }
}

TEST(ProgramJson, EveryFieldOfASymbolIsRequired) {
  const Json flat = Json::parse(program_to_json(with_symbols())).flatten();
  for (const auto& [path, value] : flat.items()) {
    Json damaged = flat;
    damaged[path] = nullptr;
    EXPECT_FALSE(program_from_json(damaged.unflatten().dump())) << path;
  }
}

TEST(ProgramJson, AProgramWithoutKernelsRoundTrips) {
  Program identity;
  identity.target.isa = "x86-64-v3";
  identity.buffers = {{Buffer::Kind::kInput, 0, kVector, 0}};
  identity.output_buffers = {0};
  const Result<Program> read = program_from_json(program_to_json(identity));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, identity);
}

TEST(ProgramJson, AFoldedShapeFitsItsBuffer) {
  Program program = two_kernels();
  program.kernels[0].recipe.inputs[0].shape = {16, 16};
  EXPECT_TRUE(program_from_json(program_to_json(program)));
}

TEST(ProgramJson, TextThatIsNotUtf8IsReplacedInsteadOfThrown) {
  Program program = two_kernels();
  program.target.device_model = "bad \xff\xfe bytes";
  EXPECT_TRUE(program_from_json(program_to_json(program)));
}

TEST(ProgramJson, RefusesWhatCouldHarmARunner) {
  const std::vector<std::pair<const char*, std::function<void(Program&)>>> harms = {
      {"launch of a kernel that is not there", [](Program& p) { p.launches[0].kernel = 2; }},
      {"negative kernel", [](Program& p) { p.launches[0].kernel = -1; }},
      {"argument out of range", [](Program& p) { p.launches[0].args[0] = 3; }},
      {"negative argument", [](Program& p) { p.launches[0].args[0] = -1; }},
      {"too few arguments", [](Program& p) { p.launches[0].args.pop_back(); }},
      {"too many arguments", [](Program& p) { p.launches[0].args.push_back(0); }},
      {"writes into an input",
       [](Program& p) {
         p.launches[0].args = {1, 0};
       }},
      {"argument larger than its buffer",
       [](Program& p) { p.kernels[0].recipe.outputs[0].shape = {257}; }},
      {"argument of another dtype",
       [](Program& p) { p.kernels[0].recipe.outputs[0].dtype = DType::kF64; }},
      {"temporary beyond the arena", [](Program& p) { p.buffers[1].arena_offset = 128; }},
      {"temporary far beyond the arena",
       [](Program& p) { p.buffers[1].arena_offset = INT64_MAX - 63; }},
      {"temporary not aligned", [](Program& p) { p.buffers[1].arena_offset = 4; }},
      {"arena too small", [](Program& p) { p.arena_bytes = 1024; }},
      {"arena beyond any device", [](Program& p) { p.arena_bytes = INT64_MAX; }},
      {"output that is no buffer", [](Program& p) { p.output_buffers[0] = 3; }},
      {"output in the arena", [](Program& p) { p.output_buffers[2] = 1; }},
      {"output buffer that is not returned", [](Program& p) { p.output_buffers = {0}; }},
      {"output index out of range", [](Program& p) { p.buffers[2].index = 3; }},
      {"output index of another buffer", [](Program& p) { p.buffers[2].index = 2; }},
      {"negative input", [](Program& p) { p.buffers[0].index = -1; }},
      {"one input twice", [](Program& p) { p.buffers.push_back(p.buffers[0]); }},
      {"size overflows",
       [](Program& p) {
         p.buffers[0].spec.shape = {INT64_MAX, 8};
       }},
      {"negative count in a report", [](Program& p) { p.kernels[0].report.measured = -1; }},
      {"negative time in a report", [](Program& p) { p.kernels[0].report.best_us = -1; }},
  };
  for (const auto& [name, harm] : harms) {
    Program program = two_kernels();
    harm(program);
    const Result<Program> read = program_from_json(program_to_json(program));
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().code, Code::kCorruption) << name;
  }
}

// Every member, wherever it stands, is required and has one type: replacing any of them by null is
// refused, and nothing crashes.
TEST(ProgramJson, EveryFieldIsRequired) {
  const Json flat = Json::parse(program_to_json(two_kernels())).flatten();
  for (const auto& [path, value] : flat.items()) {
    Json damaged = flat;
    damaged[path] = nullptr;
    EXPECT_FALSE(program_from_json(damaged.unflatten().dump())) << path;
  }
}

// 64 sizes of 64 terms each: their product, written out, would not fit into any memory.
TEST(ProgramJson, ReadsHugePolynomialsWithoutMultiplyingThem) {
  Program program = two_kernels();
  Dim sum = 0;
  for (SymbolId id = 0; id < 64; ++id) sum = sum + Dim::symbol(id);
  program.symbols.assign(64, {0, 4096, 7});
  program.buffers.push_back({Buffer::Kind::kInput, 1, {DType::kF32, std::vector<Dim>(64, sum)}, 0});
  EXPECT_TRUE(program_from_json(program_to_json(program)));
}

TEST(ProgramJson, RefusesFormatVersionsItDoesNotKnow) {
  Json json = Json::parse(program_to_json(two_kernels()));
  for (const int version : {0, 6}) {
    json["kiln_program"] = version;
    const Result<Program> read = program_from_json(json.dump());
    ASSERT_FALSE(read);
    EXPECT_NE(read.error().message.find("version " + std::to_string(version)), std::string::npos);
  }
}

TEST(ProgramJson, SurvivesRandomDamage) {
  const std::string good = program_to_json(two_kernels());
  std::mt19937 random(1);
  for (int round = 0; round < 3000; ++round) {
    std::string text = good;
    for (unsigned changes = 1 + random() % 4; changes > 0; --changes) {
      const size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, 1 + random() % 16);
          break;
        default:
          text.insert(at, text.substr(random() % text.size(), random() % 16));
          break;
      }
      if (text.empty()) text = "x";
    }
    // What is accepted must be a program in every respect: it prints, and reads back as itself.
    if (const Result<Program> read = program_from_json(text)) {
      const Result<Program> again = program_from_json(program_to_json(*read));
      ASSERT_TRUE(again);
      EXPECT_EQ(*again, *read);
    }
  }
}

TEST(ProgramJson, RefusesEveryTruncation) {
  const std::string good = program_to_json(two_kernels());
  for (size_t length = 0; length < good.size(); ++length)
    EXPECT_FALSE(program_from_json(std::string_view(good).substr(0, length)));
}

TEST(KernelJson, RoundTrips) {
  const ProgramKernel f = kernel("f", {kVector});
  const Result<ProgramKernel> read = kernel_from_json(kernel_to_json(f));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, f);
  EXPECT_FALSE(kernel_from_json("{}"));
}

TEST(ProgramKey, EveryPartChangesIt) {
  const Digest graph = Digest::of("graph");
  const Target target{Backend::kCpu, "x86-64-v3", "", 0, {}};
  const Digest key = program_key(graph, target, Mode::kDefault);
  EXPECT_EQ(key, program_key(graph, target, Mode::kDefault));
  EXPECT_NE(key, program_key(Digest::of("other"), target, Mode::kDefault));
  EXPECT_NE(key, program_key(graph, {Backend::kCpu, "x86-64-v4", "", 0, {}}, Mode::kDefault));
  EXPECT_NE(key, program_key(graph, target, Mode::kMaxAutotune));
}

}  // namespace
}  // namespace kiln
