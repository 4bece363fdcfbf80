#include "coordinator/page/html.h"

#include <fmt/format.h>

#include "coordinator/page/plots.h"
#include "coordinator/page/values.h"

namespace kiln::page {
namespace {

struct Place {
  const char* view;
  const char* path;
  const char* name;
};
constexpr Place kPlaces[] = {{"overview", "/", "Overview"},      {"tuning", "/tuning", "Tuning"},
                             {"workers", "/workers", "Workers"}, {"misses", "/misses", "Misses"},
                             {"cache", "/cache", "Cache"},       {"audit", "/audit", "Audit"}};

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

void head(Html& html, const std::string& title) {
  html.open("head");
  html.empty("meta", {{"charset", "utf-8"}});
  html.empty("meta", {{"name", "viewport"}, {"content", "width=device-width, initial-scale=1"}});
  html.empty("meta", {{"name", "color-scheme"}, {"content", "light dark"}});
  html.element("title", title + " - Kiln");
  html.empty("link", {{"rel", "stylesheet"}, {"href", "/page.css"}});
  html.empty("link", {{"rel", "icon"}, {"href", "/page.svg"}, {"type", "image/svg+xml"}});
  html.element("script", {{"src", "/page.js"}, Html::Attribute("defer")}, "");
  html.close("head");
}

class Writer {
 public:
  Writer(const Document& document, const Frame& frame) : document_(document), frame_(frame) {}
  std::string write();

 private:
  void navigation();
  void foot();
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
  void filter(const Table& table);
  void pages(const Paging& paging);
  void heading(const std::string& name, const std::string& text) {
    if (!text.empty()) html_.element("h2", {{"id", name + "-heading"}}, text);
  }
  void note(const std::string& text) {
    if (!text.empty()) html_.element("p", {{"class", "note"}}, text);
  }

  const Document& document_;
  const Frame& frame_;
  Html html_;
};

void Writer::navigation() {
  html_.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the content");
  html_.open("header").open("a", {{"class", "brand"}, {"href", "/"}});
  html_.empty("img", {{"src", "/page.svg"}, {"alt", ""}, {"width", "22"}, {"height", "22"}});
  html_.text("Kiln").close("a");
  html_.open("nav", {{"aria-label", "Views"}}).open("ul");
  for (const Place& place : kPlaces) {
    html_.open("li");
    if (document_.view == place.view)
      html_.element("a", {{"href", place.path}, {"aria-current", "page"}}, place.name);
    else
      html_.element("a", {{"href", place.path}}, place.name);
    html_.close("li");
  }
  html_.close("ul").close("nav");
  if (frame_.signed_in) {
    html_.open("form", {{"method", "post"}, {"action", "/sign-out"}, {"class", "who"}});
    html_.element("span", frame_.who);
    html_.element("button", {{"class", "plain"}}, "Sign out").close("form");
  }
  html_.close("header");
}

void Writer::foot() {
  Query json = frame_.query;
  json.set("format", "json");
  html_.open("footer").element("span", frame_.version).element("span", frame_.service);
  html_.element("a", {{"href", frame_.path + json.to_string()}}, "This view as JSON");
  html_.element("a", {{"href", "/metrics"}}, "Metrics").close("footer");
}

std::string Writer::write() {
  html_.open("html", {{"lang", "en"}});
  head(html_, document_.title);
  html_.open("body");
  navigation();
  html_.open("main", {{"id", "content"}, {"tabindex", "-1"}});
  html_.element("h1", document_.title);
  if (!document_.about.empty()) html_.element("p", {{"class", "about"}}, document_.about);
  html_.open("div", {{"id", "live"}});
  for (const Block& each : document_.blocks)
    std::visit([this](const auto& alternative) { block(alternative); }, each);
  html_.close("div").close("main");
  foot();
  html_.close("body").close("html");
  return "<!doctype html>\n" + html_.take();
}

void Writer::act(const Act& act) {
  html_.open(
      "form",
      {{"method", "post"}, {"action", "/act"}, {"class", "act"}, {"data-ask", act.question}});
  const auto hidden = [this](const std::string& name, const std::string& value) {
    html_.empty("input", {{"type", "hidden"}, {"name", name}, {"value", value}});
  };
  for (const auto& [name, value] : act.fields) hidden(name, value);
  hidden("back", frame_.path + frame_.query.to_string());
  hidden("token", frame_.token);
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
  if (frame_.may_act)
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
  if (!paging.filter.empty()) html_.element("a", {{"href", frame_.path}}, "Show all");
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
    Query query = frame_.query;
    query.set("first", first == 0 ? "" : std::to_string(first));
    html_.element("a", {{"href", frame_.path + query.to_string()}}, name);
  };
  if (paging.first > 0) link(paging.first - std::min(paging.first, paging.limit), "Previous");
  if (paging.first + paging.shown < paging.total) link(paging.first + paging.shown, "Next");
  html_.close("nav");
}

void Writer::block(const Table& table) {
  html_.open("section");
  heading(table.name, table.heading);
  note(table.note);
  if (table.paging) filter(table);
  if (table.rows.empty()) {
    html_.element("p", {{"class", "nothing"}}, table.empty).close("section");
    return;
  }
  html_.open("div", {{"class", "scroll"},
                     {"tabindex", "0"},
                     {"role", "region"},
                     {"aria-labelledby", table.name + "-heading"}});
  html_.open("table").open("thead").open("tr");
  const std::vector<bool> shown = said_columns(table, frame_.may_act);
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
  html_.close("section");
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
  html_.open("section");
  heading(code.name, code.heading);
  html_.open("pre", {{"tabindex", "0"}}).element("code", code.text).close("pre").close("section");
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

Html& Html::open(std::string_view name, Attributes attributes) {
  text_ += fmt::format("<{}", name);
  for (const Attribute& each : attributes) {
    text_ += fmt::format(" {}", each.name);
    if (each.has_value) text_ += fmt::format("=\"{}\"", escape(each.value));
  }
  text_ += '>';
  return *this;
}

Html& Html::close(std::string_view name) {
  text_ += fmt::format("</{}>\n", name);
  return *this;
}

Html& Html::empty(std::string_view name, Attributes attributes) {
  open(name, attributes);
  text_.insert(text_.size() - 1, "/");
  return *this;
}

Html& Html::text(std::string_view raw) {
  text_ += escape(raw);
  return *this;
}

Html& Html::element(std::string_view name, Attributes attributes, std::string_view raw) {
  return open(name, attributes).text(raw).close(name);
}

Html& Html::append(const Html& written) {
  text_ += written.text_;
  return *this;
}

std::string sign_in_page(std::string_view why) {
  Html html;
  html.open("html", {{"lang", "en"}});
  head(html, "Sign in");
  html.open("body").open("main", {{"id", "content"}});
  html.element("h1", "Kiln: sign in");
  html.element("p", {{"class", "notice"}, {"role", "status"}}, why);
  html.element("p", {{"class", "about"}},
               "On a machine that has your key file, `kiln page-token --key FILE` prints a token. "
               "It ends by itself after some hours, and lets nobody do more than read, unless it "
               "was made with `--role admin`.");
  html.open("form", {{"method", "post"}, {"action", "/sign-in"}, {"class", "sign-in"}});
  html.element("label", {{"for", "token"}}, "Token");
  html.empty("input", {{"id", "token"},
                       {"name", "token"},
                       {"type", "password"},
                       {"autocomplete", "off"},
                       {"maxlength", "256"},
                       Html::Attribute("required")});
  html.element("button", {{"type", "submit"}}, "Sign in").close("form");
  html.close("main").close("body").close("html");
  return "<!doctype html>\n" + html.take();
}

std::string to_html(const Document& document, const Frame& frame) {
  return Writer(document, frame).write();
}

}  // namespace kiln::page
