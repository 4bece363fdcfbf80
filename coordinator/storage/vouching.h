// Vouching: whether enough keys stand for what is stored to serve it as it is. Plain value; is_enough
// is called from several threads.
#pragma once

#include <algorithm>
#include <functional>
#include <string>

#include "compiler_core/program/program.h"

namespace kiln {

struct Vouching {
  int confirm = 0;  // CoreOptions
  // Whether nobody need confirm the winners of the key of this name, as of now; empty: of none.
  std::function<bool(const std::string& key)> is_enough{};

  bool suffices(const Provenance& provenance) const {
    return confirm < 2 || keys_that_vouch(provenance) >= 2 ||
           (is_enough && is_enough(provenance.built.key));
  }
  bool suffices(const Program& program) const {
    return std::ranges::all_of(program.kernels, [this](const ProgramKernel& kernel) {
      return suffices(kernel.provenance);
    });
  }
};

}  // namespace kiln
