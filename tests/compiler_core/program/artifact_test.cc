#include "compiler_core/program/artifact.h"

#include <gtest/gtest.h>

#include <functional>
#include <nlohmann/json.hpp>

namespace kiln {
namespace {

Recipe softmax_recipe() {
  Recipe recipe;
  recipe.inputs = {{DType::kF32, {Dim::symbol(0), 1024}}};
  recipe.outputs = {{DType::kBF16, {Dim::symbol(0), 1024}}};
  recipe.phases = {
      {"reduce", Dim::symbol(0)}, {"sum", Grid({{Dim::symbol(0), 4}, {6, 2}})}, {"finish", 4}};
  recipe.workspace_bytes = Dim::symbol(0) * 64;
  recipe.scratch_bytes = 4096;
  return recipe;
}

TEST(RecipeJson, RoundTrips) {
  const Recipe recipe = softmax_recipe();
  const Result<Recipe> read = recipe_from_json(recipe_to_json(recipe));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(*read, recipe);
}

TEST(RecipeJson, HasTheFieldNamesThatOthersRead) {
  EXPECT_EQ(recipe_to_json({{{DType::kF32, {8}}}, {}, {{"k", 2}}, 0, 0}),
            R"({"inputs":[{"dtype":"f32","shape":[8]}],"outputs":[],)"
            R"("phases":[{"entry":"k","grid":2}],"scratch_bytes":0,"workspace_bytes":0})");
}

TEST(RecipeJson, RefusesDamage) {
  using Json = nlohmann::json;
  const std::vector<std::pair<const char*, std::function<void(Json&)>>> damages = {
      {"no inputs", [](Json& json) { json.erase("inputs"); }},
      {"inputs of another type", [](Json& json) { json["inputs"] = 3; }},
      {"unknown dtype", [](Json& json) { json["inputs"][0]["dtype"] = "f31"; }},
      {"negative size", [](Json& json) { json["inputs"][0]["shape"][1] = -1; }},
      {"fractional size", [](Json& json) { json["inputs"][0]["shape"][1] = 1.5; }},
      {"size beyond int64", [](Json& json) { json["inputs"][0]["shape"][1] = UINT64_MAX; }},
      {"product overflows",
       [](Json& json) {
         json["inputs"][0]["shape"] = {INT64_MAX / 2, INT64_MAX / 2};
       }},
      {"overflow hidden by a zero",
       [](Json& json) {
         json["inputs"][0]["shape"] = {INT64_MAX, INT64_MAX, 0};
       }},
      {"size that is no expression", [](Json& json) { json["inputs"][0]["shape"][0] = "s0+"; }},
      {"negative as a text", [](Json& json) { json["inputs"][0]["shape"][0] = "-3"; }},
      {"entry that is a path", [](Json& json) { json["phases"][0]["entry"] = "../x"; }},
      {"empty entry", [](Json& json) { json["phases"][0]["entry"] = ""; }},
      {"phase that is no object", [](Json& json) { json["phases"][0] = "reduce"; }},
      {"no grid", [](Json& json) { json["phases"][0].erase("grid"); }},
      {"grid of a step of zero",
       [](Json& json) {
         json["phases"][0]["grid"] = Json::array({Json::array({"s0", 0})});
       }},
      {"grid of a negative step",
       [](Json& json) {
         json["phases"][0]["grid"] = Json::array({Json::array({"s0", -4})});
       }},
      {"grid of no axes", [](Json& json) { json["phases"][0]["grid"] = Json::array(); }},
      {"grid axis without a step",
       [](Json& json) { json["phases"][0]["grid"] = Json::array({Json::array({"s0"})}); }},
      {"grid that overflows",
       [](Json& json) {
         json["phases"][0]["grid"] =
             Json::array({Json::array({INT64_MAX, 1}), Json::array({INT64_MAX, 1})});
       }},
      {"grid of very many axes",
       [](Json& json) {
         json["phases"][0]["grid"] = Json(1000, Json::array({"s0", 1}));
       }},
      {"negative scratch", [](Json& json) { json["scratch_bytes"] = -64; }},
      {"scratch beyond any device", [](Json& json) { json["scratch_bytes"] = INT64_MAX; }},
      {"workspace beyond any device", [](Json& json) { json["workspace_bytes"] = INT64_MAX; }},
  };
  for (const auto& [name, damage] : damages) {
    Json json = Json::parse(recipe_to_json(softmax_recipe()));
    damage(json);
    const Result<Recipe> read = recipe_from_json(json.dump());
    ASSERT_FALSE(read) << name;
    EXPECT_EQ(read.error().code, Code::kCorruption) << name;
  }
}

TEST(RecipeJson, RefusesTextThatIsNotAnObject) {
  const std::string deep(100'000, '[');
  for (const std::string& text : {std::string(), std::string("null"), std::string("[1]"),
                                  std::string("{"), std::string("{\"inputs\":"), deep})
    EXPECT_FALSE(recipe_from_json(text));
}

}  // namespace
}  // namespace kiln
