// docs/operators.md says what the code does, op by op, and leaves out none of Core ATen.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "compiler_core/frontend/lowering.h"
#include "compiler_core/frontend/refusals.h"
#include "tests/compiler_core/frontend/core_aten_ops.h"

namespace kiln {
namespace {

std::string trimmed(const std::string& text) {
  const size_t first = text.find_first_not_of(' ');
  if (first == std::string::npos) return {};
  return text.substr(first, text.find_last_not_of(' ') - first + 1);
}

// "| a | b |" gives a and b.
std::vector<std::string> cells_of(const std::string& line) {
  std::vector<std::string> cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) cells.push_back(trimmed(cell));
  return cells;
}

struct TableRow {
  std::string how;
  bool core = false;
};

// Ops by full name; those without overloads (refused, higher-order) by the name alone.
std::map<std::string, TableRow> read_table() {
  std::map<std::string, TableRow> rows;
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/operators.md");
  EXPECT_TRUE(in.good());
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("| aten.") && !line.starts_with("| higher_order.") &&
        !line.starts_with("| quantized_decomposed.") && !line.starts_with("| torchao.") &&
        !line.starts_with("| transformers."))
      continue;
    const std::vector<std::string> cells = cells_of(line);
    EXPECT_GE(cells.size(), 4u) << line;
    if (cells.size() < 4) continue;
    if (cells[2] == "refused") {
      EXPECT_FALSE(cells[3].empty()) << line << " says no reason";
      EXPECT_TRUE(rows.emplace(cells[0], TableRow{"refused", cells[1] == "core"}).second) << line;
      continue;
    }
    std::istringstream overloads(cells[1]);
    const TableRow row{cells[3], cells[2] == "core"};
    bool any = false;
    for (std::string overload; overloads >> overload; any = true)
      EXPECT_TRUE(rows.emplace(cells[0] + "." + overload, row).second) << line;
    if (any) continue;
    EXPECT_TRUE(rows.emplace(cells[0], row).second) << line;
  }
  return rows;
}

TEST(OperatorTable, says_of_every_op_what_the_code_does) {
  for (const auto& [op, row] : read_table()) {
    const bool listed = row.how == "native" || row.how == "decomposed";
    EXPECT_EQ(find_lowering(op) != nullptr, listed) << op << " is listed as " << row.how;
    const bool right = listed ||
                       (row.how == "refused" && find_refusal(op + ".default") != nullptr) ||
                       (row.how == "ignored" && is_ignored_op(op)) ||
                       (row.how == "body" && is_region(op)) || row.how == "shape";
    EXPECT_TRUE(right) << op << " is listed as " << row.how;
  }
}

TEST(OperatorTable, lists_everything_that_the_code_covers_or_refuses) {
  const std::map<std::string, TableRow> rows = read_table();
  for (const std::string_view op : covered_ops())
    EXPECT_TRUE(rows.contains(std::string(op))) << "docs/operators.md lacks " << op;
  for (const RefusedOp& refusal : refusals())
    EXPECT_TRUE(rows.contains(std::string(refusal.op))) << "docs/operators.md lacks " << refusal.op;
}

TEST(OperatorTable, leaves_out_no_core_op) {
  const std::map<std::string, TableRow> rows = read_table();
  for (const std::string_view op : testing::kCoreAtenOps) {
    auto row = rows.find(std::string(op));
    if (row == rows.end()) row = rows.find(std::string(op.substr(0, op.rfind('.'))));
    ASSERT_NE(row, rows.end()) << "docs/operators.md lacks the core op " << op;
    EXPECT_TRUE(row->second.core) << op << " is a core op, and not marked as one";
  }
}

TEST(OperatorTable, no_op_is_both_covered_and_refused) {
  for (const std::string_view op : covered_ops())
    EXPECT_EQ(find_refusal(op), nullptr) << op << " is covered and refused";
}

}  // namespace
}  // namespace kiln
