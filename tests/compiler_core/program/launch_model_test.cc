// Library calls, listed arguments, tensor maps and fallbacks: in recipes and in manifests.
#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/compiler_core/program/launch_samples.h"

namespace kiln {
namespace {

using Json = nlohmann::json;
using samples::library_recipe;
using samples::mapped_recipe;
using Damages = std::vector<std::pair<const char*, std::function<void(Json&)>>>;

Program program_of(const Recipe& recipe) {
  Program program;
  program.key = Digest::of("key");
  program.graph = Digest::of("graph");
  program.target = {Backend::kCuda, "sm_90a", "a GPU", 132, "cuda-13"};
  program.template_stamp = Digest::of("stamp");
  ProgramKernel kernel;
  kernel.family = "matmul";
  kernel.schedule = "library rank=2";
  kernel.blob = Digest::of("blob");
  kernel.recipe = recipe;
  program.kernels = {kernel};
  for (int i = 0; i < 3; ++i)
    program.buffers.push_back({Buffer::Kind::kInput, i, recipe.inputs[static_cast<size_t>(i)], 0});
  program.buffers.push_back({Buffer::Kind::kOutput, 0, recipe.outputs[0], 0});
  program.launches = {{0, {0, 1, 2, 3}}};
  program.output_buffers = {3};
  return program;
}

TEST(LaunchModel, RecipesRoundTrip) {
  Recipe windows = mapped_recipe();
  TensorMap& map = *windows.phases[0].arguments[0].map;
  map.sizes = {16, 2, 2, 4};
  map.strides = {32, 64, 128};
  map.element_strides = {1, 1, 1, 1};
  map.box = {};
  map.im2col = TensorMap::Im2col{{-1, -1}, {1, 1}, 16, 64};
  map.fill_nan = true;
  Recipe exact = library_recipe();
  exact.phases[0].call->algorithm = std::string(128, 'a');
  exact.phases[0].call->rank = 0;
  for (const Recipe& recipe : {library_recipe(), mapped_recipe(), windows, exact,
                               samples::early_recipe(), samples::updating_recipe()}) {
    const auto read = recipe_from_json(recipe_to_json(recipe));
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, recipe);
  }
}

void expect_refused(const Recipe& recipe, const Damages& damages) {
  for (const auto& [what, damage] : damages) {
    Json json = Json::parse(recipe_to_json(recipe));
    damage(json["phases"][0]);
    const auto read = recipe_from_json(json.dump());
    ASSERT_FALSE(read) << what;
    EXPECT_EQ(read.error().code, Code::kCorruption) << what;
  }
}

TEST(LaunchModel, DamagedTensorMapsAreRefused) {
  const auto map = [](auto change) {
    return [change](Json& phase) { change(phase["arguments"][0]["tensor_map"]); };
  };
  expect_refused(
      mapped_recipe(),
      {{"buffer out of range", map([](Json& json) { json["buffer"] = 4; })},
       {"no axes", map([](Json& json) { json["sizes"] = Json::array(); })},
       {"six axes", map([](Json& json) { json["sizes"] = {1, 1, 1, 1, 1, 1}; })},
       {"a stride too few", map([](Json& json) { json["strides"] = Json::array(); })},
       {"a box too large", map([](Json& json) { json["box"][0] = 257; })},
       {"a box that is a fraction", map([](Json& json) { json["box"][0] = 1.5; })},
       {"no box", map([](Json& json) { json.erase("box"); })},
       {"no element strides", map([](Json& json) {
          json["element_strides"] = {0, 1};
        })},
       {"another swizzle", map([](Json& json) { json["swizzle"] = 96; })},
       {"another fill", map([](Json& json) { json["fill"] = "one"; })},
       {"an argument of no kind", [](Json& phase) { phase["arguments"][1] = Json::object(); }},
       {"a buffer that is not there", [](Json& phase) { phase["arguments"][1]["buffer"] = 4; }}});
}

TEST(LaunchModel, OnlyInputsAreReady) {
  expect_refused(samples::early_recipe(),
                 {{"an output", [](Json& phase) { phase["arguments"][5]["ready"] = 3; }},
                  {"none", [](Json& phase) { phase["arguments"][5]["ready"] = -1; }}});
}

TEST(LaunchModel, AnOutputKeepsAnInputOfItsOwnForm) {
  for (const auto& [what, kept] :
       {std::pair{"no list", Json(1)},
        {"no output", Json::array({{{"output", 1}, {"input", 1}}})},
        {"no input", Json::array({{{"output", 0}, {"input", 2}}})},
        {"a scalar", Json::array({{{"output", 0}, {"input", 0}}})},
        {"twice", Json::array({{{"output", 0}, {"input", 1}}, {{"output", 0}, {"input", 1}}})}}) {
    Json json = Json::parse(recipe_to_json(samples::updating_recipe()));
    json["kept"] = kept;
    const auto read = recipe_from_json(json.dump());
    ASSERT_FALSE(read) << what;
    EXPECT_EQ(read.error().code, Code::kCorruption) << what;
  }
}

TEST(LaunchModel, DamagedLibraryCallsAreRefused) {
  const auto call = [](auto change) { return [change](Json& phase) { change(phase["call"]); }; };
  expect_refused(
      library_recipe(),
      {{"another library", call([](Json& json) { json["library"] = "../libevil"; })},
       {"another function", call([](Json& json) { json["function"] = "system"; })},
       {"no version", call([](Json& json) { json.erase("version"); })},
       {"a buffer out of range", call([](Json& json) { json["a"]["buffer"] = -1; })},
       {"a result that is an input", call([](Json& json) { json["d"]["buffer"] = 1; })},
       {"a transposed result", call([](Json& json) { json["d"]["transposed"] = 1; })},
       {"a rank beyond", call([](Json& json) { json["rank"] = kLibraryRanks; })},
       {"an algorithm that is short", call([](Json& json) { json["algorithm"] = "00"; })},
       {"an algorithm of other digits",
        call([](Json& json) { json["algorithm"] = std::string(128, 'g'); })},
       {"no bias", call([](Json& json) { json.erase("bias"); })},
       {"another epilogue", call([](Json& json) { json["epilogue"] = "softmax"; })}});
}

TEST(LaunchModel, ProgramsRoundTripInTheOldestVersionThatSaysAll) {
  Program library = program_of(library_recipe());
  library.kernels[0].fallback = ProgramKernel::Fallback{"matmul tile=64", mapped_recipe()};
  const Program mapped = program_of(mapped_recipe());
  for (const Program& program : {library, mapped}) {
    const std::string text = program_to_json(program);
    EXPECT_EQ(Json::parse(text)["kiln_program"], 2);
    const auto read = program_from_json(text);
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, program);
    const auto kernel = kernel_from_json(kernel_to_json(program.kernels[0]));
    ASSERT_TRUE(kernel);
    EXPECT_EQ(*kernel, program.kernels[0]);
  }
  Program early = program_of(samples::early_recipe());
  EXPECT_EQ(Json::parse(program_to_json(early))["kiln_program"], 3);
  early.kernels[0].fallback = ProgramKernel::Fallback{"matmul tile=64", early.kernels[0].recipe};
  early.kernels[0].recipe = library_recipe();
  EXPECT_EQ(Json::parse(program_to_json(early))["kiln_program"], 3) << "its fallback says so";
  Recipe at_once = mapped_recipe();
  at_once.phases[0].dependent_launch = DependentLaunch::kAtOnce;
  const std::string said = program_to_json(program_of(at_once));
  EXPECT_EQ(Json::parse(said)["kiln_program"], 5);
  EXPECT_EQ(program_from_json(said)->kernels[0].recipe, at_once);
  Recipe usual = mapped_recipe();
  usual.phases = {{"product", 8, 128, 2, 1024}};
  EXPECT_EQ(Json::parse(program_to_json(program_of(usual)))["kiln_program"], 1);
}

Program updating_program() {
  const Recipe recipe = samples::updating_recipe();
  Program program = program_of(samples::early_recipe());
  program.kernels[0].recipe = recipe;
  program.buffers = {{Buffer::Kind::kInput, 0, recipe.inputs[0], 0},
                     {Buffer::Kind::kInput, 1, recipe.inputs[1], 0},
                     {Buffer::Kind::kOutput, 0, recipe.outputs[0], 0}};
  program.launches = {{0, {0, 1, 2}}};
  program.output_buffers = {2};
  return program;
}

TEST(LaunchModel, AProgramSaysWhichInputsItsOutputsMayLieIn) {
  Program program = updating_program();
  EXPECT_EQ(updated_inputs(program), (std::vector<std::optional<int>>{1}));
  const std::string text = program_to_json(program);
  EXPECT_EQ(Json::parse(text)["kiln_program"], 4);
  const auto read = program_from_json(text);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, program);
  EXPECT_EQ(updated_inputs(program_of(samples::early_recipe())),
            (std::vector<std::optional<int>>{std::nullopt}));
}

TEST(LaunchModel, OnlyOutputsOfTheProgramKeepAnInputOfIt) {
  Program from_another = updating_program();
  from_another.buffers.push_back({Buffer::Kind::kTemporary, 0, from_another.buffers[1].spec, 0});
  from_another.arena_bytes = 1024;
  Program into_another = from_another;
  from_another.launches[0].args = {0, 3, 2};
  into_another.launches[0].args = {0, 1, 3};
  for (const Program& program : {from_another, into_another}) {
    const auto read = program_from_json(program_to_json(program));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().code, Code::kCorruption);
  }
}

// As Kiln wrote it before there was a version 2.
TEST(LaunchModel, AStoredManifestOfVersionOneIsRead) {
  const std::string zeros(64, '0');
  const std::string text =
      R"({"arena_bytes":1088,"buffers":[{"dtype":"f32","index":0,"kind":"input","shape":[256]},)"
      R"({"arena_offset":64,"dtype":"f32","kind":"temporary","shape":[256]},)"
      R"({"dtype":"f32","index":0,"kind":"output","shape":[256]}],"codegen":"@","graph":"@",)"
      R"("kernels":[{"blob":"@","family":"pointwise","key":"@","recipe":{"inputs":)"
      R"([{"dtype":"f32","shape":[256]}],"outputs":[{"dtype":"f32","shape":[256]}],"phases":)"
      R"([{"cluster":1,"entry":"k","grid":4,"shared_bytes":0,"threads":64}],"scratch_bytes":0,)"
      R"("workspace_bytes":0},"report":{"best_us":3.25,"candidates":12,"first_us":7.5,)"
      R"("measured":10,"rejected":2,"sentinel_us":41.5},"schedule":"pointwise vector=4",)"
      R"("workload":"@"}],"key":"@","kiln_program":1,"launches":[{"args":[0,1],"kernel":0},)"
      R"({"args":[1,2],"kernel":0}],"mode":"max-autotune","output_buffers":[2,0],"target":)"
      R"({"isa":"cuda:sm_90a","model":"NVIDIA H200","toolkit":"cuda-13","units":132}})";
  std::string filled;
  for (const char c : text) c == '@' ? filled += zeros : filled += c;
  const auto read = program_from_json(filled);
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->kernels[0].recipe.phases[0].threads, 64);
  EXPECT_FALSE(read->kernels[0].recipe.phases[0].call);
  EXPECT_EQ(program_to_json(*read), filled) << "and is written as it was";
}

TEST(LaunchModel, PhasesThatReachBeyondTheirBuffersAreDamage) {
  const std::vector<std::pair<const char*, std::function<void(Recipe&)>>> harms = {
      {"too many rows", [](Recipe& r) { r.phases[0].call->m = 5; }},
      {"a leading dimension that is too small", [](Recipe& r) { r.phases[0].call->b.ld = 63; }},
      {"one that is too large", [](Recipe& r) { r.phases[0].call->d.ld = 33; }},
      {"a second product",
       [](Recipe& r) { r.phases[0].call->batch = 2, r.phases[0].call->d.batch_stride = 128; }},
      {"no rows", [](Recipe& r) { r.phases[0].call->m = 0; }},
      {"sizes that overflow",
       [](Recipe& r) { r.phases[0].call->a.ld = r.phases[0].call->a.batch_stride = INT64_MAX; }},
      {"a symbol that nothing binds", [](Recipe& r) { r.phases[0].call->k = Dim::symbol(0); }},
  };
  for (const auto& [what, harm] : harms) {
    Recipe recipe = library_recipe();
    harm(recipe);
    EXPECT_FALSE(program_from_json(program_to_json(program_of(recipe)))) << what;
  }
  const std::vector<std::pair<const char*, std::function<void(TensorMap&)>>> map_harms = {
      {"a row too many", [](TensorMap& map) { map.sizes[1] = 5; }},
      {"an offset", [](TensorMap& map) { map.offset = 16; }},
      {"a stride that is no multiple of 16", [](TensorMap& map) { map.strides[0] = 120; }},
      {"sizes that overflow", [](TensorMap& map) { map.strides[0] = INT64_MAX - 15; }},
      {"a symbol that nothing binds", [](TensorMap& map) { map.sizes[1] = Dim::symbol(0); }},
  };
  for (const auto& [what, harm] : map_harms) {
    Recipe recipe = mapped_recipe();
    harm(*recipe.phases[0].arguments[0].map);
    EXPECT_FALSE(program_from_json(program_to_json(program_of(recipe)))) << what;
    Program program = program_of(library_recipe());
    program.kernels[0].fallback = ProgramKernel::Fallback{"own", recipe};
    EXPECT_FALSE(program_from_json(program_to_json(program))) << what << ", in a fallback";
  }
}

TEST(LaunchModel, ACallThatNeedsNoBinaryIsKeptUnderItsText) {
  const Artifact artifact = library_artifact(library_recipe());
  EXPECT_EQ(artifact.digest, Digest::of(artifact.binary));
  const auto read = recipe_from_json(artifact.binary);
  ASSERT_TRUE(read);
  EXPECT_EQ(*read, artifact.recipe);
}

}  // namespace
}  // namespace kiln
