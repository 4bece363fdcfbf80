// Objects that compilers made of generated kernels, kept for this machine's next test run, as ccache keeps the
// objects of our own sources. For tests of the kernels: a test of a compiler calls the compiler.
// Processes and clones share it; functions are thread-safe.
#pragma once

#include <functional>
#include <string>

#include "compiler_core/base/digest.h"
#include "compiler_core/base/file.h"

namespace kiln::testing {

// kiln/NAME in $XDG_CACHE_HOME or ~/.cache, for this user alone; it is made where it is not there. Empty:
// there can be none, and nothing is kept.
Path kept_folder(const std::string& name);

// The object of `key`, or else what `compile` gives, which is kept unless it is an error. `key` names all that
// the object depends on: source, flags, compiler. An object that its digest does not fit is not there.
Result<std::string> kept_object(const Digest& key,
                                const std::function<Result<std::string>()>& compile);

}  // namespace kiln::testing
