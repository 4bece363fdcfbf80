#include "compiler_core/ir/custom_source.h"

#include <gtest/gtest.h>

#include <string>

namespace kiln {
namespace {

TEST(CustomSource, SourcesThatNameFilesAreRefused) {
  const char* const sources[] = {
      "#include \"/etc/passwd\"",
      "#include </etc/passwd>",
      "  # /* x */ include </etc/passwd>",
      "/* a\n */ #include </etc/passwd>",
      "#inc\\\nlude </etc/passwd>",
      "#inc\\\r\nlude </etc/passwd>",
      "%:include </etc/passwd>",
      "?"
      "?=include </etc/passwd>",
      "// ?"
      "?/\n#include </etc/passwd>",
      "// \\ \n#include </etc/passwd>",
      "// \\ \n/*\n#include </etc/passwd>\n// */",
      "#include_next <x>",
      "#import <x>",
      "#embed \"/etc/passwd\"",
      "#line 1 \"/etc/passwd\"",
      "# 1 \"/etc/passwd\" 1",
      "#ident \"x\"",
      "#if __has_include(</etc/passwd>)\n#endif",
      "#ifdef __has_include\n#endif",
      "#if __has_embed(</etc/passwd>)\n#endif",
      "#define J(a, b) a##b\n#if J(__has_, include)(</etc/passwd>)\n#endif",
      "#define J(a, b) a %:%: b",
      "#define S(x) #x\nasm(S(.incbin \"x\"));",
      "#define S(define) #define\nasm(S(.incbin));",
      "_Pragma(\"GCC dependency \\\"/etc/passwd\\\"\")",
      "#pragma GCC dependency \"/etc/passwd\"",
      "#pragma GCC pch_preprocess \"x\"",
      "#pragma implementation \"x\"",
      "#pragma clang module load x",
      "#pragma comment(lib, \"x\")",
      "asm(\".incbin \\\"/etc/passwd\\\"\");",
      "__asm__(\"\\056incbin\");",
      "__asm__(\"\\x2eincbin\");",
      "__asm__(\".inc\" \"bin\");",
      "__asm__(R\"(.incbin \"x\")\");",
      "__asm__(u8R\"x(a)x\");",
      "__asm(__FILE__);",
      "asm(\"x\" __TIMESTAMP__);",
      "int x __attribute__((section(\"a\\n.incbin x\")));",
      "int f() __attribute__((optimize(\"-fplugin=/tmp/x\")));",
      "asm(\".macro\");",
      "char c = '\"; /*\n#include </etc/passwd>\n*/",
      "#if 0\ndon't /*\n#endif\n#include </etc/passwd>\n/* */",
      "int a = 1'0'0'; /*'\n#include <x>\n*/",
      "/* open",
      "\"open",
      "int \\u0061;",
      "int a;\f#include <x>",
      "int a;\r#include <x>",
      "int a; #include <x>",
      "\xEF\xBB\xBFR\"(\")\" _Pragma(R\"(GCC dependency </etc/passwd>)\")\"",
      "\xEF\xBB\xBF#include <x>",
      "int \xC3\xA4;",
      "int a =\xC2\xA0R\"(\")\";",
      "int a = 1\xE2\x80\xA8;",
      "asm(\"a\" __VERSION__ \"incbin\");",
      "#if __has_include__(</etc/passwd>)\n#endif",
  };
  for (const char* source : sources) {
    const Status verified = verify_custom_source(source, "cpu");
    ASSERT_FALSE(verified.has_value()) << source;
    EXPECT_EQ(verified.error().code, Code::kInvalidArgument);
    EXPECT_TRUE(verified.error().message.starts_with("line ")) << verified.error().message;
  }
  for (const char* source : {"#include <x>", "asm(\".incbin \\\"x\\\"\");", "__has_include(<x>)"})
    EXPECT_FALSE(verify_custom_source(source, "cuda")) << source;
}

TEST(CustomSource, TheLineIsTheAuthors) {
  const Status verified = verify_custom_source("int a; \\\n\n/*\n*/\n#include <x>\n", "cpu");
  ASSERT_FALSE(verified.has_value());
  EXPECT_EQ(verified.error().message,
            "line 5: #include may not be used: a custom call's source is one text, without files");
}

TEST(CustomSource, WhatKernelsNeedIsAccepted) {
  const char* const sources[] = {
      "#define TILE 4\n#if TILE > 2 && defined(X)\n#error \"no\"\n#elif 0\n#else\n#undef TILE\n"
      "#endif\n#\n",
      "#pragma unroll 4\n#pragma GCC ivdep\n#pragma GCC unroll 8\n#pragma omp simd\n",
      "#define F(a, b) \\\n  ((a) + \\\n  (b))\nstatic float f(float x) { return F(x, 1.5e+3f); "
      "}\n",
      "asm volatile(\"vaddps %1, %0, %0\\n\\tjmp 1f\\n1:\" : \"+x\"(a) : \"x\"(b));",
      "// #include <nothing> isn't read, nor \".incbin\"\n/* # include \"x\" ' */ int a = 1'000;",
      "char a = '\\0', b = '\"', c = '\\'', d = '\\x41', e = '#';\r\nint f = a ? b : c % d;",
      "__attribute__((target(\"avx2\"))) int x;",
      "// \xC3\xA4\nconst char* name = \"\xC3\xA4\"; /* \xE2\x80\xA8 */",
  };
  for (const char* source : sources) {
    const Status verified = verify_custom_source(source, "cpu");
    EXPECT_TRUE(verified.has_value()) << source << verified.error().message;
  }
  EXPECT_TRUE(verify_custom_source(
      "asm volatile(\"mma.sync.aligned.m16n8k8 {%0};\\n\" \"ld.shared.f32\" : \"+f\"(x));",
      "cuda"));
}

}  // namespace
}  // namespace kiln
