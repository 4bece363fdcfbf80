// The bench runner's own kernels through NVRTC, where there is one.
#include "worker/build/toolchain.h"

#include <gtest/gtest.h>

#include "compiler_core/compile/nvrtc.h"

namespace kiln {
namespace {

TEST(UtilityKernels, CompileForEveryCardWithoutSpills) {
  const auto nvrtc = Nvrtc::find();
  if (!nvrtc) GTEST_SKIP() << nvrtc.error().message;
  for (const char* isa : {"sm_80", "sm_90a"}) {
    SCOPED_TRACE(isa);
    Target target;
    target.backend = Backend::kCuda;
    target.isa = isa;
    const auto compiled = nvrtc->compile(utility_kernels_source(), target);
    ASSERT_TRUE(compiled.has_value()) << compiled.error().message;
    EXPECT_EQ(compiled->resources.spill_bytes, 0);
    EXPECT_LE(compiled->resources.stack_bytes, 64) << "the sine of a large number needs some";
  }
}

TEST(UtilityKernels, TheSourceKnowsOpsAndTypesByTheirNumbers) {
  const std::string text = utility_kernels_source().text;
  EXPECT_NE(text.find("op_input = 0,"), std::string::npos);
  EXPECT_NE(text.find("dtype_f64 = 1,"), std::string::npos);
  EXPECT_NE(text.find("dtype_bool = 12,"), std::string::npos);
  EXPECT_EQ(utility_kernels_source().text, text) << "what it is cached by must not change";
}

}  // namespace
}  // namespace kiln
