// The argument names of ATen ops as torch declares them: torch_schemas.txt, which refresh_schemas.py
// writes.
#pragma once

#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

namespace kiln::testing {

using TorchSchemas = std::map<std::string, std::vector<std::string>>;  // "aten.add.Tensor"

inline const TorchSchemas& torch_schemas() {
  static const TorchSchemas kSchemas = [] {
    TorchSchemas schemas;
    std::ifstream file(KILN_SOURCE_DIR "/tests/compiler_core/frontend/torch_schemas.txt");
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with('#')) continue;
      std::istringstream words(line);
      std::string op;
      words >> op;
      for (std::string name; words >> name;) schemas[op].push_back(name);
      schemas[op];  // an op may have no arguments
    }
    return schemas;
  }();
  return kSchemas;
}

}  // namespace kiln::testing
