// The bugs that can be planted, by the names of docs/simulation.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/cluster.h"

namespace kiln::simulation {

struct NamedBug {
  std::string name;
  Bug bug;
};
const std::vector<NamedBug>& all_bugs();
std::optional<Bug> bug_named(std::string_view name);

}  // namespace kiln::simulation
