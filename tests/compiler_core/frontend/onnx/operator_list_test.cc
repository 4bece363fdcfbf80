// docs/onnx.md lists the operators that are read, all of them and no others.
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "compiler_core/frontend/onnx/call.h"

namespace kiln {
namespace {

std::set<std::string> listed() {
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/onnx.md");
  std::set<std::string> ops;
  bool in_list = false;
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("A test holds this list")) {
      in_list = true;
      continue;
    }
    std::istringstream words(in_list ? line : "");
    for (std::string word; words >> word;) ops.insert(word);
  }
  return ops;
}

TEST(OnnxOperatorList, IsWhatTheCodeReads) {
  std::set<std::string> covered = {"Constant", "Shape", "Size"};  // the reader's own
  for (const std::span<const OnnxLowering> list :
       {onnx_arithmetic_lowerings(), onnx_activation_lowerings(), onnx_product_lowerings(),
        onnx_normalisation_lowerings(), onnx_reduction_lowerings(), onnx_pooling_lowerings(),
        onnx_view_lowerings(), onnx_indexing_lowerings(), onnx_creation_lowerings(),
        onnx_resize_lowerings(), onnx_quantised_lowerings()})
    for (const OnnxLowering& each : list) {
      EXPECT_TRUE(covered.emplace(each.op).second) << each.op << " is lowered twice";
      EXPECT_EQ(find_onnx_lowering(each.op), &each) << each.op;
    }
  EXPECT_EQ(listed(), covered);
}

}  // namespace
}  // namespace kiln
