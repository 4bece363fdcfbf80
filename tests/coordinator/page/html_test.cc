// Whatever a name holds, it shows as text.
#include "coordinator/page/html.h"

#include <gtest/gtest.h>

#include "coordinator/page/json.h"
#include "coordinator/page/values.h"
#include "coordinator/page/views.h"

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

const std::string kHostile[] = {"<script>alert(1)</script>",   "\"><img src=x onerror=alert(1)>",
                                "'); DROP TABLE programs; --", "evil\u202egpj.exe",
                                std::string(4096, '<'),        "&amp;<b>\x01\xff"};

// Every text that a view shows, hostile.
Snapshot hostile_snapshot(const std::string& name) {
  Snapshot now;
  now.now_ms = 1'000'000;
  now.sees_details = true;
  WorkerStats worker{.name = name, .target = {Backend::kCpu, name, name, 2, name}, .toolkit = name};
  worker.state = "quarantined";
  worker.reason = worker.sandbox = worker.waiting = name;
  now.status.stats.workers = {worker};
  now.strips[name] = "biwq<";
  DetachedStats detached;
  detached.target = worker.target;
  detached.state = "failed";
  detached.reason = name;
  now.status.stats.detached = {detached};
  OpenProgram open{
      .key = Digest::of(name), .graph = {}, .target = worker.target, .stage = "tuning"};
  open.waiting = name;
  open.kernels = {{.key = {}, .stage = "screening", .candidates = 4, .settled = 2}};
  now.open = {open};
  Miss miss{.program = Digest::of(name), .graph = {}, .target = worker.target};
  miss.outcome = miss.reason = name;
  miss.users = {name};
  now.misses = {miss};
  now.acts = {{1, 999'000, name, name, name, false}};
  return now;
}

// The tags of `html` without what the frame itself has.
bool has_only_own_tags(const std::string& html) {
  return html.find("<script>") == std::string::npos &&
         html.find("<img src=x") == std::string::npos &&
         html.find("onerror=alert(1)>") == std::string::npos &&
         html.find("\u202e") == std::string::npos && html.find('\x01') == std::string::npos &&
         html.find('\xff') == std::string::npos && html.find("<b>") == std::string::npos &&
         html.find("<<") == std::string::npos;
}

TEST(HostileNames, ShowAsTextInEveryView) {
  for (const std::string& name : kHostile) {
    const Snapshot now = hostile_snapshot(name);
    KernelFacts kernel_facts;
    kernel_facts.key = Digest::of(name);
    TuningRecord record;
    record.schedule.template_name = name;
    record.log = record.worker = name;
    record.measurement.samples_us = {1, 2, 3};
    kernel_facts.records = {record};
    ProgramList list;
    list.programs = {{Digest::of(name), name, 1, 2, true}};
    list.total = 1;
    Query query;
    for (const Document& view :
         {overview(now), tuning(now, query), workers(now, query), misses(now, query),
          audit(now, query), kernel(now, kernel_facts, query), cache(now, list, query),
          program(now, {Digest::of(name)}, query), not_here(name, name)}) {
      Frame frame;
      frame.path = "/x?" + name;
      frame.query.set("filter", name);
      frame.who = frame.service = name;
      frame.may_act = frame.signed_in = true;
      const std::string html = to_html(view, frame);
      EXPECT_TRUE(has_only_own_tags(html)) << view.view << ": " << html;
      EXPECT_NE(html.find(escape(name).substr(0, 40)), std::string::npos) << view.view;
      EXPECT_EQ(to_json(view).find("\x01"), std::string::npos) << view.view;
    }
    Query filtered;
    filtered.set("filter", name);
    EXPECT_TRUE(has_only_own_tags(to_html(workers(now, filtered), {.path = "/workers"})));
    EXPECT_TRUE(has_only_own_tags(sign_in_page(name)));
  }
}

TEST(Html, ActsAreShownToThoseWhoMayOnly) {
  const Snapshot now = hostile_snapshot("gpu7");
  Frame frame{.path = "/workers"};
  frame.token = "the-token";
  EXPECT_EQ(to_html(workers(now, {}), frame).find("<button type=\"submit\">Drain"),
            std::string::npos);
  EXPECT_EQ(to_html(workers(now, {}), frame).find("the-token"), std::string::npos);
  frame.may_act = true;
  const std::string html = to_html(workers(now, {}), frame);
  EXPECT_NE(html.find("<button type=\"submit\">Drain"), std::string::npos);
  EXPECT_NE(html.find("name=\"token\" value=\"the-token\""), std::string::npos);
  EXPECT_NE(html.find("name=\"worker\" value=\"gpu7\""), std::string::npos);
}

TEST(Html, NothingIsInlineForThePolicyAllowsNone) {
  Frame frame{.path = "/"};
  frame.may_act = true;
  for (const Document& view :
       {overview(hostile_snapshot("w")), workers(hostile_snapshot("w"), {})}) {
    const std::string html = to_html(view, frame);
    EXPECT_EQ(html.find(" style="), std::string::npos);
    EXPECT_EQ(html.find(" onclick="), std::string::npos);
    EXPECT_EQ(html.find("javascript:"), std::string::npos);
  }
}

TEST(Query, ReadsAndWritesWhatAnAddressSays) {
  const Query query = Query::parse("filter=a%20%3Cb%3E+c&first=50&x=%zz&format=json");
  EXPECT_EQ(query.filter(), "a <b> c");
  EXPECT_EQ(query.first(), 50u);
  EXPECT_EQ(query.limit(), 50u);
  EXPECT_TRUE(query.wants_json());
  EXPECT_EQ(query.get("x"), "%zz");
  EXPECT_EQ(Query::parse(query.to_string().substr(1)).filter(), "a <b> c");
  EXPECT_EQ(Query::parse("limit=999999").limit(), 250u);
  EXPECT_EQ(Query::parse("first=-1&limit=0").first(), 0u);
  EXPECT_EQ(Query().to_string(), "");
}

TEST(Query, PagesAndFiltersALongList) {
  Table table{"t", "T", {{"name", "Name"}}};
  for (int i = 0; i < 120; ++i) table.rows.push_back({text("Worker " + std::to_string(i))});
  Table second = table;
  page_rows(second, Query::parse("first=100"), "name");
  EXPECT_EQ(second.rows.size(), 20u);
  EXPECT_EQ(second.rows[0][0].text, "Worker 100");
  EXPECT_EQ(second.paging->total, 120u);
  page_rows(table, Query::parse("filter=worker%2011"), "name");
  EXPECT_EQ(table.rows.size(), 11u) << "11 and 110 to 119";
  Frame frame{.path = "/t", .query = Query::parse("first=100")};
  const std::string html = to_html({"", "T", "", {second}}, frame);
  EXPECT_NE(html.find("101 to 120 of 120"), std::string::npos);
  EXPECT_NE(html.find("href=\"/t?first=50\">Previous"), std::string::npos) << html;
  EXPECT_EQ(html.find(">Next<"), std::string::npos);
}

}  // namespace
}  // namespace kiln::page
