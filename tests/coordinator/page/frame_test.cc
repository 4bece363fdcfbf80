// Whatever a name holds, it shows as text.
#include "coordinator/page/frame.h"

#include <gtest/gtest.h>

#include "compiler_core/page/html.h"
#include "compiler_core/page/values.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

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
          audit(now, std::vector<AdminAct>{{1, 999'000, name, name, name, false, name}}, query),
          kernel(now, kernel_facts, query), cache(now, list, query),
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

TEST(Frame, ActsAreShownToThoseWhoMayOnly) {
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

TEST(Frame, NothingIsInlineForThePolicyAllowsNone) {
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

}  // namespace
}  // namespace kiln::page
