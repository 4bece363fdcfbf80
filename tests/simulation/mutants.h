// The mutants that can be mutated, by the names of docs/simulation.md.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tests/simulation/cluster.h"

namespace kiln::simulation {

struct NamedMutant {
  std::string name;
  Mutant mutant;
  Cast cast = Cast::kOne;
};
const std::vector<NamedMutant>& all_mutants();
std::optional<NamedMutant> mutant_named(std::string_view name);

}  // namespace kiln::simulation
