#include "compiler_core/page/blocks.h"

#include <fmt/format.h>

#include <algorithm>

#include "compiler_core/page/plots.h"
#include "compiler_core/page/values.h"

namespace kiln::page {
namespace {

// Which columns say something in some row: the others would only take room.
std::vector<bool> said_columns(const Table& table, bool may_act) {
  std::vector<bool> said(table.columns.size());
  for (const auto& row : table.rows)
    for (size_t i = 0; i < row.size(); ++i)
      said[i] = said[i] || (!row[i].text.empty() && row[i].text != "-") || !row[i].bars.empty() ||
                !row[i].strip.empty() || (may_act && !row[i].acts.empty());
  return said;
}

std::string class_of(Tone tone) {
  switch (tone) {
    case Tone::kGood:
      return "good";
    case Tone::kWarning:
      return "warning";
    case Tone::kBad:
      return "bad";
    case Tone::kQuiet:
      return "quiet";
    case Tone::kPlain:
      return "plain";
  }
  return "plain";
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return c >= ' ' && c <= '~'; });
}

class Writer {
 public:
  explicit Writer(const Place& place) : place_(place) {}
  Html write(const Document& document);

 private:
  void act(const Act& act);
  void value(const Value& value);
  void block(const Tiles& tiles);
  void block(const Facts& facts);
  void block(const Table& table);
  void block(const Chart& chart);
  void block(const Race& race);
  void block(const Choices& choices);
  void block(const Code& code);
  void block(const Notice& notice);
  void rows(const Table& table);
  void filter(const Table& table);
  void pages(const Paging& paging);
  void heading(const std::string& name, const std::string& text) {
    if (!text.empty()) html_.element("h2", {{"id", name + "-heading"}}, text);
  }
  // A section that people open where they want to see it, or that is open.
  void open_section(const std::string& name, const std::string& text, bool is_folded) {
    html_.open("section");
    if (is_folded) html_.open("details").open("summary");
    heading(name, text);
    if (is_folded) html_.close("summary");
  }
  void close_section(bool is_folded) {
    if (is_folded) html_.close("details");
    html_.close("section");
  }
  void note(const std::string& text) {
    if (!text.empty()) html_.element("p", {{"class", "note"}}, text);
  }

  const Place& place_;
  Html html_;
};

Html Writer::write(const Document& document) {
  html_.element("h1", document.title);
  if (!document.about.empty()) html_.element("p", {{"class", "about"}}, document.about);
  html_.open("div", {{"id", "live"}});
  for (const Block& each : document.blocks)
    std::visit([this](const auto& alternative) { block(alternative); }, each);
  html_.close("div");
  return std::move(html_);
}

void Writer::act(const Act& act) {
  html_.open(
      "form",
      {{"method", "post"}, {"action", "/act"}, {"class", "act"}, {"data-ask", act.question}});
  const auto hidden = [this](const std::string& name, const std::string& value) {
    html_.empty("input", {{"type", "hidden"}, {"name", name}, {"value", value}});
  };
  for (const auto& [name, value] : act.fields) {
    if (is_plain(value))
      hidden(name, value);
    else
      hidden(name + "*", encoded(value));  // escape() would spell it out: another name
  }
  hidden("back", place_.path + place_.query.to_string());
  hidden("token", place_.token);
  html_.element("button", {{"type", "submit"}}, act.label).close("form");
}

void Writer::value(const Value& value) {
  std::string kind = class_of(value.tone);
  if (value.is_code) kind += " code";
  if (!value.text.empty() && value.link.empty())
    html_.element("span", {{"class", kind}}, value.text);
  else if (!value.text.empty())
    html_.element("a", {{"class", kind}, {"href", value.link}}, value.text);
  for (const Bar& each : value.bars) {
    if (!each.link.empty()) html_.open("a", {{"href", each.link}, {"class", "bars"}});
    html_.append(bar(each.share, each.said));
    if (!each.link.empty()) html_.close("a");
  }
  if (!value.strip.empty()) html_.append(strip(value.strip));
  if (place_.may_act)
    for (const Act& each : value.acts) act(each);
}

void Writer::block(const Tiles& tiles) {
  html_.open("dl", {{"class", "tiles"}});
  for (const Tile& tile : tiles.tiles) {
    html_.open("div", {{"class", "tile " + class_of(tile.value.tone)}});
    html_.element("dt", tile.label).open("dd");
    value(tile.value);
    if (!tile.note.empty()) html_.element("small", tile.note);
    html_.close("dd").close("div");
  }
  html_.close("dl");
}

void Writer::block(const Facts& facts) {
  html_.open("section");
  heading(facts.facts.empty() ? "facts" : facts.facts.front().name, facts.heading);
  html_.open("dl", {{"class", "facts"}});
  for (const Fact& fact : facts.facts) {
    html_.element("dt", fact.label).open("dd");
    value(fact.value);
    html_.close("dd");
  }
  html_.close("dl").close("section");
}

void Writer::filter(const Table& table) {
  const Paging& paging = *table.paging;
  if (paging.hint.empty()) return;
  html_.open("form", {{"method", "get"}, {"role", "search"}, {"class", "filter"}});
  html_.element("label", {{"for", table.name + "-filter"}}, "Filter");
  html_.empty("input", {{"type", "search"},
                        {"id", table.name + "-filter"},
                        {"name", "filter"},
                        {"value", paging.filter},
                        {"placeholder", paging.hint}});
  html_.element("button", {{"type", "submit"}}, "Show");
  if (!paging.filter.empty()) html_.element("a", {{"href", place_.path}}, "Show all");
  html_.close("form");
}

void Writer::pages(const Paging& paging) {
  const bool is_whole = paging.shown == paging.total;
  html_.open("nav", {{"class", "pages"}, {"aria-label", "Parts of the list"}});
  html_.element("span", {{"class", "quiet"}},
                is_whole ? fmt::format("{} in all", paging.total)
                         : fmt::format("{} to {} of {}", paging.first + 1,
                                       paging.first + paging.shown, paging.total));
  const auto link = [&](size_t first, const char* name) {
    Query query = place_.query;
    query.set("first", first == 0 ? "" : std::to_string(first));
    html_.element("a", {{"href", place_.path + query.to_string()}}, name);
  };
  if (paging.first > 0) link(paging.first - std::min(paging.first, paging.limit), "Previous");
  if (paging.first + paging.shown < paging.total) link(paging.first + paging.shown, "Next");
  html_.close("nav");
}

void Writer::block(const Table& table) {
  open_section(table.name, table.heading, table.is_folded);
  note(table.note);
  if (table.paging) filter(table);
  if (table.rows.empty())
    html_.element("p", {{"class", "nothing"}}, table.empty);
  else
    rows(table);
  close_section(table.is_folded);
}

void Writer::rows(const Table& table) {
  html_.open("div", {{"class", "scroll"},
                     {"tabindex", "0"},
                     {"role", "region"},
                     {"aria-labelledby", table.name + "-heading"}});
  html_.open("table").open("thead").open("tr");
  const std::vector<bool> shown = said_columns(table, place_.may_act);
  for (size_t i = 0; i < table.columns.size(); ++i)
    if (shown[i])
      html_.element(table.columns[i].heading.empty() ? "td" : "th",
                    {{"class", table.columns[i].is_number ? "number" : "word"}},
                    table.columns[i].heading);
  html_.close("tr").close("thead").open("tbody");
  for (const auto& row : table.rows) {
    html_.open("tr");
    for (size_t i = 0; i < row.size(); ++i) {
      if (!shown[i]) continue;
      html_.open("td", {{"class", table.columns[i].is_number ? "number" : "word"}});
      value(row[i]);
      html_.close("td");
    }
    html_.close("tr");
  }
  html_.close("tbody").close("table").close("div");
  if (table.paging) pages(*table.paging);
}

void Writer::block(const Chart& chart) {
  html_.open("section", {{"class", "half"}});
  heading(chart.name, chart.heading);
  html_.append(line_chart(chart));
  note(chart.note);
  html_.close("section");
}

void Writer::block(const Race& race) {
  html_.open("section");
  heading(race.name, race.heading);
  html_.open("div", {{"class", "scroll"},
                     {"tabindex", "0"},
                     {"role", "region"},
                     {"aria-labelledby", race.name + "-heading"}});
  html_.append(race_plot(race)).close("div");
  note(race.note);
  html_.close("section");
}

void Writer::block(const Choices& choices) {
  html_.open("nav", {{"class", "choices"}, {"aria-label", choices.heading}}).open("ul");
  html_.element("li", {{"class", "quiet"}}, choices.heading);
  for (const Choices::Choice& each : choices.choices) {
    html_.open("li");
    if (each.is_current)
      html_.element("a", {{"href", each.link}, {"aria-current", "true"}}, each.label);
    else
      html_.element("a", {{"href", each.link}}, each.label);
    html_.close("li");
  }
  html_.close("ul").close("nav");
}

void Writer::block(const Code& code) {
  open_section(code.name, code.heading, code.is_folded);
  note(code.note);
  html_.open("pre", {{"tabindex", "0"}}).open("code");
  if (code.is_source)
    html_.append(highlighted(code.text));
  else
    html_.text(code.text);
  html_.close("code").close("pre");
  close_section(code.is_folded);
}

void Writer::block(const Notice& notice) {
  html_.open("p", {{"class", "notice " + class_of(notice.tone)}, {"role", "status"}});
  if (notice.link.empty())
    html_.text(notice.text);
  else
    html_.element("a", {{"href", notice.link}}, notice.text);
  html_.close("p");
}

}  // namespace

void write_head(Html& html, std::string_view title) {
  html.empty("meta", {{"charset", "utf-8"}});
  html.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  html.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  html.element("title", std::string(title) + " - Kiln");
}

Html write_blocks(const Document& document, const Place& place) {
  return Writer(place).write(document);
}

std::string self_contained_page(const Document& document, std::string_view made_by) {
  Html html;
  html.open("html", {{"lang", "en"}}).open("head");
  // Nothing may be fetched or run, whatever somebody put into a name.
  html.empty("meta", {{"http-equiv", "Content-Security-Policy"},
                      {"content", "default-src 'none'; style-src 'unsafe-inline'"}});
  write_head(html, document.title);
  html.literal("style", style()).close("head").open("body");
  html.open("main", {{"id", "content"}}).append(write_blocks(document, {})).close("main");
  html.open("footer").element("span", made_by).close("footer");
  html.close("body").close("html");
  return "<!doctype html>\n" + html.take();
}

}  // namespace kiln::page
