// A program as a coordinator answers it, before anything of it is used: is it signed by whom we
// trust, and is it what we asked for. Free functions; thread-safe.
#pragma once

#include <string_view>

#include "compiler_core/base/signature.h"
#include "schema/messages.h"

namespace kiln {

// kPermissionDenied: unsigned, or by somebody else than `trusted`; kCorruption: altered, or the
// program of another request. `signer`: whose key the coordinator says it has; who signed is told
// from it when it is not `trusted`.
Result<Program> checked_program(const CompileRequest& asked, const CompileReply& reply,
                                std::string_view signer, std::string_view trusted);

// kCorruption unless it is what `asked` is about, by what stands in it.
Status check_is_asked(const CompileRequest& asked, const Program& program, std::string_view where);

}  // namespace kiln
