// From the command line's words to the client library's types.
#pragma once

#include "client/cli/options.h"
#include "client/client.h"

namespace kiln::cli {

// `open_gpu`: begin to open it at once.
Result<std::unique_ptr<Client>> make_client(const Options& options, bool open_gpu = false);
// Target, mode, deadline, check, CUDA graphs.
Result<CompileOptions> compile_options(const Options& options);

}  // namespace kiln::cli
