// Whatever a name holds, it shows as text.
#include "compiler_core/page/html.h"

#include <gtest/gtest.h>

#include "compiler_core/page/blocks.h"
#include "compiler_core/page/values.h"

namespace kiln::page {
namespace {

TEST(Escape, MarkupIsSpeltOut) {
  EXPECT_EQ(escape("<script>alert(\"1\" & '2')</script>"),
            "&lt;script&gt;alert(&quot;1&quot; &amp; &#39;2&#39;)&lt;/script&gt;");
  EXPECT_EQ(escape("plain ünïcødé 漢字 🙂"), "plain ünïcødé 漢字 🙂");
  EXPECT_EQ(escape("two\nlines\tand a tab"), "two\nlines\tand a tab");
}

TEST(Escape, WhatChangesHowOtherTextReadsIsNamed) {
  EXPECT_EQ(escape("gpu\u202e7upg"), "gpu[U+202E]7upg");
  EXPECT_EQ(escape("a\u2066b\u200bc\u2028d\ufeff"), "a[U+2066]b[U+200B]c[U+2028]d[U+FEFF]");
  EXPECT_EQ(escape(std::string("a\0b\x1b[31m\x7f", 9)), "a[U+0000]b[U+001B][31m[U+007F]");
  EXPECT_EQ(escape("\u0085\u00ad\U000E0041"), "[U+0085][U+00AD][U+E0041]");
}

TEST(Escape, BytesThatAreNoTextAreNamed) {
  EXPECT_EQ(escape("\xff<"), "[0xFF]&lt;");
  EXPECT_EQ(escape("\xc0\xbc"), "[0xC0][0xBC]") << "an overlong '<'";
  EXPECT_EQ(escape("\xed\xa0\x80"), "[0xED][0xA0][0x80]") << "half a surrogate pair";
  EXPECT_EQ(escape("\xe2\x80"), "[0xE2][0x80]") << "cut short";
}

// The source of a highlighted text, without the tags.
std::string without_tags(std::string html) {
  for (size_t from = html.find('<'); from != std::string::npos; from = html.find('<', from))
    html.erase(from, html.find('>', from) - from + 1);
  return html;
}

TEST(Highlighted, WordsAreToldApartAndTheTextStaysWhole) {
  const std::string source =
      "#include <cmath>\n"
      "// a < b\n"
      "extern \"C\" void k(const float* in, int n) {  /* for\n each */\n"
      "  for (int i = 0; i < n; ++i) in2[i] = 'x' + 1.5e-3f + 0x1F;  // done\n"
      "}\n";
  const std::string html = highlighted(source).take();
  EXPECT_EQ(without_tags(html), escape(source));
  for (const char* part :
       {"<span class=\"p\">#include &lt;cmath&gt;</span>", "<span class=\"c\">// a &lt; b</span>",
        "<span class=\"s\">&quot;C&quot;</span>", "<span class=\"k\">const</span>",
        "<span class=\"c\">/* for\n each */</span>", "<span class=\"n\">1.5e-3f</span>",
        "<span class=\"n\">0x1F</span>", "<span class=\"s\">&#39;x&#39;</span>"})
    EXPECT_NE(html.find(part), std::string::npos) << part << "\n" << html;
  EXPECT_EQ(html.find("<span class=\"k\">in</span>"), std::string::npos) << "a name is no keyword";
}

TEST(Highlighted, TextThatEndsEarlyIsWritten) {
  for (const char* source : {"\"open", "/* open", "#define A \\", "'", "\"a\\", "", "1e", "\n#"})
    EXPECT_EQ(without_tags(highlighted(source).take()), escape(source)) << source;
}

TEST(SelfContainedPage, NeedsNothingElseAndNamesInItAreText) {
  const std::string hostile = "</style><script>alert(1)</script>\"><img src=//x onerror=alert(1)>";
  Document page{"", hostile, hostile};
  Table table{hostile, hostile, {{"a", hostile}}};
  table.rows = {{code(hostile)}};
  table.is_folded = true;
  page.blocks = {Notice{Tone::kBad, hostile, ""}, table,
                 Code{"source", hostile, hostile, hostile, true, true}};
  const std::string html = self_contained_page(page, hostile);
  EXPECT_EQ(html.find("<script"), std::string::npos) << html;
  EXPECT_EQ(html.find("<img"), std::string::npos);
  EXPECT_EQ(html.find("</style>"), html.rfind("</style>")) << "the only one is our own";
  for (const char* fetched : {" src=\"", "url(", "@import", "<link", "http:", "https:"})
    EXPECT_EQ(html.find(fetched), std::string::npos) << fetched;
  EXPECT_NE(html.find("default-src &#39;none&#39;"), std::string::npos);
  EXPECT_NE(html.find("<details>"), std::string::npos);
}

}  // namespace
}  // namespace kiln::page
