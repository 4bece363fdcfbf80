// The tokens that a custom call's source may have. A compiler reads files that a source names
// (`#include`, `__has_include`, `.incbin` in an assembler string); whoever submits a source must not
// read those of the machine that compiles it. So directives, pragmas and the text of strings are
// lists of what is allowed, and tokens cannot be made from others: what a compiler sees is what was
// checked. Text that two compilers may read as different tokens is refused. Pure.
#pragma once

#include <string_view>

#include "compiler_core/base/result.h"

namespace kiln {

// kInvalidArgument names the line and the rule that `source`, of `backend` ("cpu", "cuda"), breaks:
//
//   directives   define, undef, if, ifdef, ifndef, elif, else, endif, error, warning, and pragma
//                with unroll, nounroll, ivdep, omp simd, GCC ivdep, unroll, target, diagnostic,
//                push_options, pop_options
//   no # or ## in a macro; no words that name files, times or versions (__has_include, __FILE__,
//                _Pragma)
//   strings      no raw ones; no escapes but \n \t \" \' and \\; on the CPU neither '.' nor '/': an
//                assembler's directives begin with the one, paths with the other. (PTX has no
//                directive that opens a file.)
//   no trigraphs, control characters, backslashes outside strings, or open strings and comments;
//                bytes outside ASCII in strings and comments alone
Status verify_custom_source(std::string_view source, std::string_view backend);

}  // namespace kiln
