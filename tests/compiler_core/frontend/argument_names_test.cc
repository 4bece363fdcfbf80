// Lowerings read their arguments by name. That the names are torch's own: every node that a test
// makes has them checked (model_text.h), and here in-place and out twins, which a lowering also
// serves, are compared with the op that they are twins of.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "compiler_core/frontend/lowering.h"
#include "tests/compiler_core/frontend/torch_schemas.h"

namespace kiln {
namespace {

using testing::torch_schemas;

// Ops of other versions of torch than the one that wrote the table, and names that stand for an op
// which exists in place only.
const std::set<std::string, std::less<>> kNotInTheTable = {
    "aten.bfloat16.default",    "aten.double.default",         "aten.fill_diagonal.default",
    "aten.float.default",       "aten.half.default",           "aten.l1_loss_backward.default",
    "aten.special_softmax.int", "aten.special_log_softmax.int"};

TEST(ArgumentNames, TorchDeclaresEveryCoveredOp) {
  for (const std::string_view op : covered_ops()) {
    if (!op.starts_with("aten.") || kNotInTheTable.contains(op)) continue;
    EXPECT_TRUE(torch_schemas().contains(std::string(op)))
        << op << ": run tests/compiler_core/frontend/refresh_schemas.py";
  }
}

// An in-place twin may call `self` what its functional form calls `input` (Call::find knows); any
// other difference would make its lowering miss an argument.
TEST(ArgumentNames, InPlaceTwinsHaveThoseOfTheirFunctionalForm) {
  int twins = 0;
  for (const auto& [op, names] : torch_schemas()) {
    const auto functional = functional_op(op);
    if (!functional || find_lowering(op) != nullptr || find_lowering(*functional) == nullptr)
      continue;
    const auto original = torch_schemas().find(*functional);
    if (original == torch_schemas().end()) continue;  // exists in place only
    ++twins;
    std::set<std::string> ours(original->second.begin(), original->second.end());
    const std::set<std::string> theirs(names.begin(), names.end());
    if (!theirs.contains("input") && ours.erase("input") > 0) ours.insert("self");
    EXPECT_TRUE(std::includes(theirs.begin(), theirs.end(), ours.begin(), ours.end())) << op;
  }
  EXPECT_GT(twins, 150);
}

}  // namespace
}  // namespace kiln
