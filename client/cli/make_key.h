// Makes keys for those who may use a coordinator (schema/keys/key_file.h).
#pragma once

#include "client/cli/options.h"
#include "compiler_core/base/file.h"

namespace kiln::cli {

// --keys, or the folder of keys in --data-dir.
Path keys_folder(const Options& options);

// A key named files.front() with the role of --role, let in at keys_folder(), in the file --out
// (default: NAME.key here). The coordinator's own keys are made where there are none.
Result<Path> make_key(const Options& options);

}  // namespace kiln::cli
