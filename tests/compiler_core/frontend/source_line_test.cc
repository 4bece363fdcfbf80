#include "compiler_core/frontend/refusals.h"

#include <gtest/gtest.h>

namespace kiln {
namespace {

TEST(SourceLine, is_the_users_innermost_frame) {
  EXPECT_EQ(
      source_line("File \"train.py\", line 3, in main\n    model(x)\n"
                  "  File \"net.py\", line 96, in forward\n    return self.l(x)\n"
                  "  File \"lib/site-packages/torch/nn/modules/linear.py\", line 134, in forward\n"
                  "    return F.linear(input, self.weight, self.bias)"),
      "net.py:96: return self.l(x)");
}

TEST(SourceLine, generated_code_is_not_the_users) {
  EXPECT_EQ(source_line("File \"net.py\", line 9, in forward\n    y = f(x)\n"
                        "  File \"<eval_with_key>.4\", line 6, in forward\n    sin = torch.sin(x)"),
            "net.py:9: y = f(x)");
}

TEST(SourceLine, without_a_frame_of_the_user_is_the_innermost) {
  EXPECT_EQ(source_line("File \"a/site-packages/x.py\", line 1, in f\n    g()\n"
                        "  File \"a/site-packages/y.py\", line 2, in g\n    h()"),
            "a/site-packages/y.py:2: h()");
}

TEST(SourceLine, without_code_is_the_place_alone) {
  EXPECT_EQ(source_line("File \"net.py\", line 9, in forward"), "net.py:9");
}

TEST(SourceLine, of_anything_else_is_empty) {
  for (const char* text : {"", "\n\n", "no frames here", "File \"", "File \"x.py\"", "\", line 3"})
    EXPECT_EQ(source_line(text), "") << text;
}

TEST(SourcePlace, is_the_innermost_frame_outside_torch) {
  EXPECT_EQ(source_place(
                "File \"model.py\", line 5, in forward\n    s.m(ids)\n"
                "  File \"site-packages/transformers/llama/modeling_llama.py\", line 122, in norm\n"
                "    freqs = a @ b\n"
                "  File \"site-packages/torch/nn/modules/sparse.py\", line 189, in forward\n"
                "    return F.embedding("),
            "modeling_llama.py:122 in norm");
}

TEST(SourcePlace, without_such_a_frame_is_the_innermost) {
  EXPECT_EQ(source_place("File \"a/site-packages/torch/x.py\", line 7, in f\n    g()"),
            "x.py:7 in f");
  EXPECT_EQ(source_place("no frames here"), "");
}

TEST(ModulePath, is_the_innermost_submodules) {
  EXPECT_EQ(module_path("L__self__,,main.<locals>.W;L__self__m,m,a.Llama;"
                        "L__self__m.layers.0,m.layers.0,a.Layer"),
            "m.layers.0");
  EXPECT_EQ(module_path("L__self__,,main.Fn"), "");
  EXPECT_EQ(module_path(""), "");
}

}  // namespace
}  // namespace kiln
