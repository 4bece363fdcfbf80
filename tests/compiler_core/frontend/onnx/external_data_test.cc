// Weights beside the model: found below its folder, and nowhere else.
#include <gtest/gtest.h>

#include <filesystem>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "tests/support/onnx_writer.h"

namespace kiln {
namespace {

using namespace kiln::testing;
namespace fs = std::filesystem;

class ExternalData : public ::testing::Test {
 protected:
  void SetUp() override {
    fs::create_directories(folder());
    const float values[] = {7, 8, 9};
    weights_.assign(reinterpret_cast<const char*>(values), sizeof values);
    ASSERT_TRUE(write_file(folder() / "w.bin", "1234" + weights_));
    ASSERT_TRUE(write_file(root_.path() / "secret", "1234" + weights_));
  }
  Path folder() const { return root_.path() / "model"; }
  Path model(std::string_view location, int64_t offset = 4, int64_t length = 12) {
    OnnxGraphText graph{{onnx_node("Add", {"x", "w"}, {"y"})},
                        {onnx_external("w", {3}, location, offset, length)},
                        {onnx_value("x", kOnnxFloat, {"3"})},
                        {onnx_value("y", kOnnxFloat, {"3"})}};
    const Path file = folder() / "model.onnx";
    EXPECT_TRUE(write_file(file, onnx_model(graph)));
    return file;
  }
  std::string refusal(const Path& file) {
    const auto program = read_graph_file(file);
    return program ? "read" : program.error().message;
  }

  TempDir root_ = TempDir::create().value();
  std::string weights_;
};

TEST_F(ExternalData, IsReadFromBesideTheModel) {
  const Path file = model("w.bin");
  const auto program = read_graph_file(file);
  ASSERT_TRUE(program) << program.error().message;
  ASSERT_TRUE(program->inputs[1].has_payload);
  const auto tensor = read_payload(file, program->inputs[1]);
  ASSERT_TRUE(tensor) << tensor.error().message;
  EXPECT_EQ(tensor->get(2), 9);
}

TEST_F(ExternalData, MayBeMissingWhereOnlyTheGraphIsWanted) {
  const Path file = model("none.bin");
  const auto program = read_graph_file(file);
  ASSERT_TRUE(program) << program.error().message;
  EXPECT_FALSE(program->inputs[1].has_payload);
  EXPECT_EQ(read_payload(file, program->inputs[1]).error().code, Code::kNotFound);
}

TEST_F(ExternalData, NeverLeavesTheModelsFolder) {
  fs::create_symlink("../secret", folder() / "link");
  fs::create_directory_symlink("..", folder() / "up");
  for (const std::string& location :
       {std::string("../secret"), std::string("link"), std::string("up/secret"),
        (root_.path() / "secret").string(), std::string("a/../../secret"), std::string("")})
    EXPECT_NE(refusal(model(location)).find("model's folder"), std::string::npos) << location;
  EXPECT_NE(refusal(model(".")).find("model's folder"), std::string::npos);
}

TEST_F(ExternalData, HasTheTensorsSize) {
  EXPECT_NE(refusal(model("w.bin", 8)).find("is truncated"), std::string::npos);
  EXPECT_NE(refusal(model("w.bin", 4, 8)).find("holds 8 bytes of 12"), std::string::npos);
  EXPECT_NE(refusal(model("w.bin", int64_t{1} << 62)).find("is truncated"), std::string::npos);
}

}  // namespace
}  // namespace kiln
