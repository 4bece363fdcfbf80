// The inside of CompiledProgram, shared with Client only.
#pragma once

#include <mutex>
#include <optional>
#include <variant>

#include "client/client.h"
#include "client/gpu_program.h"
#include "client/local_tier.h"
#include "compiler_core/runtime/executable.h"
#include "compiler_core/runtime/size_binder.h"

namespace kiln {

struct CpuProgram {
  Executable executable;
  std::shared_ptr<ThreadPool> pool;     // shared by the programs of one client
  std::shared_ptr<std::mutex> pool_mu;  // one launch at a time on the pool
};

struct CompiledProgram::Impl {
  std::shared_ptr<const ProgramFiles> files;
  std::vector<int> input_order;  // canonical input i is the caller's input_order[i]
  int caller_inputs = 0;
  SizeBinder binder;  // of the caller's inputs
  std::string_view outcome;
  bool memory_only = false;
  double seconds = 0;
  StartUp start_up;
  std::variant<std::monostate, CpuProgram, GpuProgram> loaded;  // the first: not loaded
};

}  // namespace kiln
