// CHECK: an invariant of Kiln's own code. On in release; a failure is a bug here, never bad input,
// so it stops the process with the place and the reason. Bad input is a Result (result.h).
#pragma once

#include <string_view>

namespace kiln {

[[noreturn]] void check_failed(const char* file, int line, const char* condition,
                               std::string_view message);

}  // namespace kiln

// CHECK(condition, "why this always holds")
#define CHECK(condition, message)                                      \
  do {                                                                 \
    if (!(condition)) [[unlikely]]                                     \
      ::kiln::check_failed(__FILE__, __LINE__, #condition, (message)); \
  } while (false)
