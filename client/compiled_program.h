// The inside of CompiledProgram, shared with Client only.
#pragma once

#include <mutex>

#include "client/client.h"
#include "client/local_tier.h"
#include "compiler_core/runtime/executable.h"

namespace kiln {

struct CompiledProgram::Impl {
  Executable executable;
  std::vector<int> input_order;  // canonical input i is the caller's input_order[i]
  int caller_inputs = 0;
  std::string_view outcome;
  double seconds = 0;
  std::shared_ptr<ThreadPool> pool;     // shared by the programs of one client
  std::shared_ptr<std::mutex> pool_mu;  // one launch at a time on the pool
};

}  // namespace kiln
