#include "compiler_core/kernels/printing/device_text.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(NeededText, WhatNothingBelowNamesIsLeftOutWithItsComment) {
  const char* source =
      "using int64_t = long;\n"
      "// Used by used().\n"
      "KILN_INLINE int below(int x) { return x; }\n"
      "// used() is not.\n"
      "template <class T, class U = A<B<T>>>\n"
      "KILN_INLINE T unused(T x) {\n"
      "  asm(\"{}\" : \"r\"(x));\n"
      "  return x;\n"
      "}\n"
      "KILN_INLINE int used(int x) { return below(x); }\n"
      "KILN_KERNEL(32, 1) kernel() { used(3); }\n";
  EXPECT_EQ(needed_text(source),
            "using int64_t = long;\n"
            "// Used by used().\n"
            "KILN_INLINE int below(int x) { return x; }\n"
            "KILN_INLINE int used(int x) { return below(x); }\n"
            "KILN_KERNEL(32, 1) kernel() { used(3); }\n");
}

TEST(NeededText, OfSpecialisationsThoseOfTheTypesInUseStay) {
  const char* source =
      "template <>\n"
      "struct memory<bf16> {\n"
      "  int x;\n"
      "};\n"
      "template <>\n"
      "struct memory<f16> { int x; };\n"
      "KILN_MEMORY(signed char, vi32, a, b)\n"
      "KILN_LANEWISE1(op_exp, float, expf(a))\n"
      "KILN_LANEWISE1(op_exp, double,\n"
      "               exp(a))\n"
      "KILN_INLINE vf64 op_sin(const vf64& x) { return x; }\n"
      "KILN_INLINE vindex operator/(vindex x, index_t by) { return x; }\n"
      "KILN_KERNEL(32, 1) kernel(bf16* in0) { const vf32 x = op_exp(op_sin(memory(in0))); }\n";
  EXPECT_EQ(
      needed_text(source),
      "template <>\n"
      "struct memory<bf16> {\n"
      "  int x;\n"
      "};\n"
      "KILN_LANEWISE1(op_exp, float, expf(a))\n"
      "KILN_INLINE vindex operator/(vindex x, index_t by) { return x; }\n"
      "KILN_KERNEL(32, 1) kernel(bf16* in0) { const vf32 x = op_exp(op_sin(memory(in0))); }\n");
}

}  // namespace
}  // namespace kiln
