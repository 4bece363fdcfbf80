#include "schema/artifact_kinds.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(ArtifactKinds, CodeTakesTheRolePublishAndDataTheRoleSubmit) {
  for (const ArtifactKind& kind : artifact_kinds()) {
    EXPECT_EQ(find_artifact_kind(kind.name), &kind);
    EXPECT_EQ(kind.grant_to_put(), kind.is_code ? Grant::kPublish : Grant::kSubmit);
  }
  EXPECT_TRUE(find_artifact_kind("inductor.fx_graph")->is_code);
  EXPECT_TRUE(find_artifact_kind("inductor.aot_autograd")->is_code);
  EXPECT_FALSE(find_artifact_kind("inductor.gemm")->is_code);
  EXPECT_TRUE(find_artifact_kind("triton.group")->is_code);
  EXPECT_TRUE(find_artifact_kind("vllm.aot")->is_code);
  EXPECT_TRUE(find_artifact_kind("kiln.candidate")->is_code);
  EXPECT_EQ(find_artifact_kind("inductor"), nullptr);
  EXPECT_NE(unknown_artifact_kind("x").message.find("inductor.gemm"), std::string::npos);
}

TEST(ArtifactKinds, DataIsOneFlatObjectOfPlainValues) {
  for (const char* sound : {"{}", R"({"a": 1.5, "b": null, "c": true, "d": "text", "e": -3})"})
    EXPECT_TRUE(check_artifact_data(sound)) << sound;
  std::string many = "{";
  for (int i = 0; i < 5000; ++i) many += (i > 0 ? ",\"" : "\"") + std::to_string(i) + "\":1";
  const std::string long_text = "{\"a\": \"" + std::string(300, 'x') + "\"}";
  const std::string deep(200'000, '[');
  for (const std::string& bad :
       {std::string(), std::string("[]"), std::string("1"), std::string("{\"a\": [1]}"),
        std::string("{\"a\": {\"b\": 1}}"), std::string("{\"a\": NaN}"),
        std::string("{\"a\": 1e999}"), std::string("{\"a\": \"\\u0000\"}"),
        std::string("{\"a\": 1} x"), std::string("\x80\x04K\x01."), many + "}", long_text, deep,
        std::string(300 << 10, ' ') + "{}"})
    EXPECT_FALSE(check_artifact_data(bad)) << bad.substr(0, 60);
}

}  // namespace
}  // namespace kiln
