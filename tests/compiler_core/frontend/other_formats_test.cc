// Files that are no exported programs, as their libraries begin them.
#include "compiler_core/frontend/other_formats.h"

#include <gtest/gtest.h>

#include <vector>

namespace kiln {
namespace {

using namespace std::literals;

TEST(OtherFile, IsRecognisedByItsFirstBytes) {
  const std::pair<std::string_view, std::string_view> cases[] = {
      {"\x40\x00\x00\x00\x00\x00\x00\x00{\"w\":{}}"sv, "holds tensors only (safetensors)"},
      {"GGUF\x03\x00\x00\x00"sv, "holds weights only (GGUF)"},
      {"\x80\x02\x8a\x0al\xfc\x9c"sv, "is a pickle"},
      {"hello, world"sv, "is not a zip archive and no ONNX model"},
      {""sv, "is not a zip archive and no ONNX model"},
  };
  for (const auto& [head, expected] : cases) {
    const std::string said = describe_other_file(head);
    EXPECT_NE(said.find(expected), std::string::npos) << said;
    EXPECT_NE(said.find("torch.export.save"), std::string::npos) << said;
  }
}

TEST(OtherArchive, IsRecognisedByItsEntries) {
  struct Case {
    std::vector<std::string> names;
    std::string_view pickle, expected;
  };
  const Case cases[] = {
      {{"m/data.pkl", "m/data/0"},
       "\x80\x02"
       "ctorch.nn.modules.linear\nLinear\n_parameters",
       "is a pickled nn.Module"},
      {{"m/data.pkl", "m/data/0"},
       "\x80\x02}weightctorch._utils\n_rebuild_tensor_v2",
       "holds weights only"},
      {{"m/data.pkl", "m/constants.pkl", "m/code/__torch__.py"}, "\x80\x02", "is TorchScript"},
      {{"serialized_exported_program.json", "version"}, "", "PyTorch 2.7 or earlier"},
      {{"m/data/aotinductor/model/x.so"}, "", "package of AOTInductor"},
      {{"photo.jpg"}, "", "without models/model.json"},
      {{}, "", "without models/model.json"},
  };
  for (const Case& one : cases) {
    const std::string said = describe_other_archive(one.names, one.pickle);
    EXPECT_NE(said.find(one.expected), std::string::npos) << said;
  }
}

}  // namespace
}  // namespace kiln
