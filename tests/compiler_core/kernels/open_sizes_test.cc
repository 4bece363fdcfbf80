// docs/dynamic_shapes.md says what the code does with sizes that come at run time.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <sstream>

#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/registry.h"
#include "tests/compiler_core/kernels/open_workloads.h"

namespace kiln {
namespace {

using testing::open_workloads;
using testing::OpenSize;
using testing::OpenWorkload;
using Cells = std::vector<std::string>;  // CPU: constant, batch, length; CUDA: the same

// "| a | b |" gives a and b.
Cells cells_of(const std::string& line) {
  Cells cells;
  std::istringstream in(line.substr(1));
  for (std::string cell; std::getline(in, cell, '|');) {
    const size_t first = cell.find_first_not_of(' '), last = cell.find_last_not_of(' ');
    if (first != std::string::npos) cells.push_back(cell.substr(first, last - first + 1));
  }
  return cells;
}

std::map<std::string, Cells> page() {
  std::map<std::string, Cells> rows;
  std::ifstream in(std::string(KILN_SOURCE_DIR) + "/docs/dynamic_shapes.md");
  EXPECT_TRUE(in.good());
  for (std::string line; std::getline(in, line);) {
    Cells cells = line.starts_with("| ") ? cells_of(line) : Cells{};
    if (cells.size() != 7 || !parse_family(cells[0])) continue;
    rows[cells[0]] = Cells(cells.begin() + 1, cells.end());
  }
  return rows;
}

bool is_written(const Workload& workload, const Target& target) {
  const auto space = search_space(workload, target);
  return space && !space->empty() && lower_to_source(workload, (*space)[0], target);
}

// Whether every workload of the family that is open so has kernels; there is one at least.
bool is_written(Family family, std::optional<OpenSize> open, const Target& target) {
  bool any = false, all = true;
  for (const OpenWorkload& one : open_workloads()) {
    if (one.family != family || (open && one.open != *open)) continue;
    const auto workload = testing::workload_of(one);
    EXPECT_TRUE(workload) << one.name << ": " << (workload ? "" : workload.error().message);
    if (!workload) return false;
    EXPECT_EQ(workload->family, family) << one.name;
    any = true;
    all = all &&
          (open ? is_written(*workload, target)
                : is_written(*sized_workload(*workload, measured_sizes(workload->graph.symbols())),
                             target));
  }
  return any && all;
}

TEST(OpenSizes, ThePageSaysWhichKernelsAreWritten) {
  std::map<std::string, Cells> written;
  for (const OpenWorkload& open : open_workloads()) {
    Cells& cells = written[std::string(to_string(open.family))];
    if (!cells.empty()) continue;
    for (const char* target : {"cpu:x86-64-v3", "cuda:sm_90a"})
      for (const std::optional<OpenSize> size :
           {std::optional<OpenSize>(), std::optional(OpenSize::kBatch),
            std::optional(OpenSize::kLength)})
        cells.emplace_back(is_written(open.family, size, *Target::parse(target)) ? "yes" : "no");
  }
  EXPECT_EQ(page(), written);
}

}  // namespace
}  // namespace kiln
