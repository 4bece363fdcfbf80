#include "worker/build/toolchain.h"

#include <fmt/format.h>

#include "compiler_core/ir/op.h"
#include "compiler_core/kernels/printing/device_text.h"

namespace kiln {

std::string_view utility_kernels_text();  // embedded at build time

namespace {

// The numbers of ops and dtypes, by name, so that they cannot differ from those the host sends.
std::string constants() {
  std::string text = "enum : long long {\n";
  for (int op = 0; op < kOpCount; ++op)
    text += fmt::format("  op_{} = {},\n", to_string(static_cast<Op>(op)), op);
  for (int dtype = static_cast<int>(DType::kF64); dtype <= static_cast<int>(DType::kF8E8M0);
       ++dtype)
    text += fmt::format("  dtype_{} = {},\n", to_string(static_cast<DType>(dtype)), dtype);
  return text + "};\n";
}

}  // namespace

Source utility_kernels_source() {
  std::string text(device_text("device.cuh"));
  text += constants();
  text += utility_kernels_text();
  return {std::move(text), {}};
}

}  // namespace kiln
