// Graphs in text, as clients send them. What is valid is printed and read again, the same.
#include "compiler_core/base/check.h"
#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {

std::vector<std::string> seeds() {
  std::vector<std::string> graphs = files_of(".graph", 60'000);
  for (const char* name : {"softmax", "matmul", "layernorm", "batch_dynamic_mlp", "argmax",
                           "conv_bn_relu", "embedding_sum"}) {
    const auto program =
        read_graph_file(Path(KILN_GRAPHS_DIR) / "small" / (std::string(name) + ".pt2"));
    if (program) graphs.push_back(print(program->graph));
  }
  return graphs;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto graph = kiln::parse_graph(kiln::fuzz::text_of(data, size));
  if (!graph || !kiln::verify(*graph)) return 0;
  const std::string text = kiln::print(*graph);
  const auto again = kiln::parse_graph(text);
  CHECK(again && kiln::print(*again) == text, "a valid graph's text is its own");
  return 0;
}
