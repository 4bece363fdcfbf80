// Lowerings read their arguments by name. That the names are torch's own: every node that a test
// makes has them checked (model_text.h), and here in-place and out twins, which a lowering also
// serves, are compared with the op that they are twins of.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <set>
#include <sstream>

#include "compiler_core/frontend/lowering.h"
#include "tests/compiler_core/frontend/model_text.h"
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

// torch_types.txt, in the order of torch_schemas().
std::map<std::string, std::vector<std::string>> torch_types() {
  std::map<std::string, std::vector<std::string>> types;
  std::ifstream file(KILN_SOURCE_DIR "/tests/compiler_core/frontend/torch_types.txt");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with('#')) continue;
    std::istringstream words(line);
    std::string op;
    words >> op;
    for (std::string type; words >> type;) types[op].push_back(type);
  }
  return types;
}

// A value of that type; empty where an archive has none, or says nothing of it.
std::string value_for(const std::string& name, std::string type) {
  if (type.starts_with("Optional[")) type = type.substr(9, type.size() - 10);
  if (name.ends_with("dtype")) return testing::dtype(name, testing::kFloat);
  if (type == "Tensor") return testing::tensor(name, "x");
  if (type == "List[Tensor]" || type == "List[Optional[Tensor]]")
    return testing::tensors(name, {"x", "x"});
  if (type == "int" || type == "number") return testing::integer(name, 1);
  if (type == "List[int]") return testing::integers(name, {1, 1});
  if (type == "float") return testing::real(name, "0.5");
  if (type == "bool") return testing::flag(name, false);
  if (type == "str") return testing::text(name, "mean");
  return {};
}

// What lowering the op, with everything that torch would give it, says is missing; empty when that is
// nothing, or when it fails for another reason, as it may: the values have no meaning.
std::string missed_argument(const std::string& op, const std::vector<std::string>& types) {
  const std::vector<std::string>& names = torch_schemas().at(op);
  std::vector<std::string> arguments;
  for (size_t i = 0; i < std::min(names.size(), types.size()); ++i)
    if (std::string value = value_for(names[i], types[i]); !value.empty())
      arguments.push_back(std::move(value));
  testing::ModelText model;
  model.input("x", testing::kFloat, {4, 4})
      .node(op, arguments, "y", testing::kFloat, {4, 4})
      .output("y");
  const auto program = testing::lower(model.json());
  if (program) return {};
  constexpr std::string_view kBefore = "argument '", kAfter = "' is missing or not";
  const std::string& message = program.error().message;
  const size_t after = message.find(kAfter);
  if (after == std::string::npos) return {};
  const size_t before = message.rfind(kBefore, after) + kBefore.size();
  return message.substr(before, after - before);
}

// A lowering that asks for an argument by a name that torch does not have would never find it.
TEST(ArgumentNames, LoweringsNeedNoneThatTorchDoesNotHave) {
  const auto types = torch_types();
  int asked = 0;
  for (const auto& [op, names] : torch_schemas()) {
    const auto functional = functional_op(op);
    const bool covered =
        find_lowering(op) != nullptr || (functional && find_lowering(*functional) != nullptr);
    if (!covered || !types.contains(op)) continue;
    ++asked;
    const std::string missed = missed_argument(op, types.at(op));
    const bool known = std::find(names.begin(), names.end(), missed) != names.end();
    EXPECT_TRUE(missed.empty() || known) << op << " has no argument '" << missed << "'";
  }
  EXPECT_GT(asked, 900);
}

}  // namespace
}  // namespace kiln
