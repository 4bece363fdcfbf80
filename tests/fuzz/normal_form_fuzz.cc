// Graphs as text, or out of any bytes: normal form is a fixed point through its text. A service that
// reads what a client sent finds the digest under which it was sent.
#include "compiler_core/base/check.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "tests/compiler_core/passes/graph_from_bytes.h"
#include "tests/fuzz/fuzz_target.h"

namespace kiln::fuzz {
namespace {

constexpr int kMostNodes = 2'000;
constexpr int64_t kMostElements = 1 << 20;  // of a node: reading text, anybody can ask for more

bool is_small(const Graph& graph) {
  for (const Node& node : graph.nodes())
    if (const Dim size = numel(node.shape); size.is_constant() && size.constant() > kMostElements)
      return false;
  return graph.size() <= kMostNodes;
}

}  // namespace

std::vector<std::string> seeds() {
  std::vector<std::string> inputs = files_of(".graph", 60'000);
  for (uint64_t seed = 0; seed < 32; ++seed) inputs.push_back(testing::random_bytes(seed, 120));
  return inputs;
}

}  // namespace kiln::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  auto graph = kiln::parse_graph(kiln::fuzz::text_of(data, size));
  if (!graph) graph = kiln::testing::graph_from_bytes({data, size});
  if (!graph || !kiln::verify(*graph) || !kiln::fuzz::is_small(*graph)) return 0;
  const auto form = kiln::normalise(*graph);
  if (!form) return 0;
  const auto read = kiln::parse_graph(kiln::print(form->graph));
  CHECK(read, "a normal form's text is a graph");
  const auto again = kiln::normalise(*read);
  CHECK(again && again->digest == form->digest, "normal form is a fixed point");
  return 0;
}
