// Every program of tests/graphs: its normal form is a fixed point through its text, and every pass
// on the way to its kernels leaves a valid graph.
#include <gtest/gtest.h>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/text.h"
#include "compiler_core/ir/verify.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/partition.h"

namespace kiln {
namespace {

TEST(Programs, NormalFormsAreFixedPointsAndEveryPassLeavesAValidGraph) {
  int programs = 0;
  for (const auto& file : std::filesystem::recursive_directory_iterator(KILN_GRAPHS_DIR)) {
    const Path path = file.path();
    if (path.extension() != ".pt2" && path.extension() != ".graph") continue;
    const auto program = read_graph_file(path);
    if (!program) continue;  // those of bad/
    SCOPED_TRACE(path.string());
    const auto valid = [](std::string_view pass, const Graph& graph) {
      const Status status = verify(graph);
      EXPECT_TRUE(status) << pass << ": " << status.error().message;
    };
    const auto form = normalise(program->graph, valid);
    ASSERT_TRUE(form.has_value()) << form.error().message;
    const auto again = normalise(parse_graph(print(form->graph)).value());
    ASSERT_TRUE(again.has_value());
    EXPECT_EQ(form->digest, again->digest);
    PartitionOptions options;
    options.after = valid;
    EXPECT_TRUE(partition(form->graph, options));
    options.rules.channels_last = true;
    EXPECT_TRUE(partition(form->graph, options));
    ++programs;
  }
  EXPECT_GT(programs, 80);
}

}  // namespace
}  // namespace kiln
