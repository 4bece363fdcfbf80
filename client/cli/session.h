// From the command line's words to the client library's types.
#pragma once

#include "client/cli/options.h"
#include "client/client.h"

namespace kiln::cli {

Result<std::unique_ptr<Client>> make_client(const Options& options);
// Target, mode, deadline, check.
Result<CompileOptions> compile_options(const Options& options);

}  // namespace kiln::cli
