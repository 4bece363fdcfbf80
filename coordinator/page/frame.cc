#include "coordinator/page/frame.h"

#include <fmt/format.h>

#include "compiler_core/page/blocks.h"

namespace kiln::page {
namespace {

struct Entry {
  const char* view;
  const char* path;
  const char* name;
};
constexpr Entry kEntries[] = {{"overview", "/", "Overview"},      {"tuning", "/tuning", "Tuning"},
                              {"workers", "/workers", "Workers"}, {"misses", "/misses", "Misses"},
                              {"cache", "/cache", "Cache"},       {"audit", "/audit", "Audit"}};

void head(Html& html, const std::string& title) {
  html.open("head");
  write_head(html, title);
  html.empty("link", {{"rel", "stylesheet"}, {"href", "/page.css"}});
  html.empty("link", {{"rel", "icon"}, {"href", "/page.svg"}, {"type", "image/svg+xml"}});
  html.element("script", {{"src", "/page.js"}, Html::Attribute("defer")}, "");
  html.close("head");
}

void navigation(Html& html, const std::string& view, const Frame& frame) {
  html.element("a", {{"class", "skip"}, {"href", "#content"}}, "Skip to the content");
  html.open("header").open("a", {{"class", "brand"}, {"href", "/"}});
  html.empty("img", {{"src", "/page.svg"}, {"alt", ""}, {"width", "22"}, {"height", "22"}});
  html.text("Kiln").close("a");
  html.open("nav", {{"aria-label", "Views"}}).open("ul");
  for (const Entry& entry : kEntries) {
    html.open("li");
    if (view == entry.view)
      html.element("a", {{"href", entry.path}, {"aria-current", "page"}}, entry.name);
    else
      html.element("a", {{"href", entry.path}}, entry.name);
    html.close("li");
  }
  html.close("ul").close("nav");
  if (frame.signed_in) {
    html.open("form", {{"method", "post"}, {"action", "/sign-out"}, {"class", "who"}});
    html.element("span", frame.who);
    html.element("button", {{"class", "plain"}}, "Sign out").close("form");
  }
  html.close("header");
}

void foot(Html& html, const Frame& frame) {
  Query json = frame.query;
  json.set("format", "json");
  html.open("footer").element("span", frame.version).element("span", frame.service);
  html.element("a", {{"href", frame.path + json.to_string()}}, "This view as JSON");
  html.element("a", {{"href", "/metrics"}}, "Metrics").close("footer");
}

}  // namespace

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
  Html html;
  html.open("html", {{"lang", "en"}});
  head(html, document.title);
  html.open("body");
  navigation(html, document.view, frame);
  html.open("main", {{"id", "content"}, {"tabindex", "-1"}});
  html.append(write_blocks(document, {frame.path, frame.query, frame.may_act, frame.token}));
  html.close("main");
  foot(html, frame);
  html.close("body").close("html");
  return "<!doctype html>\n" + html.take();
}

}  // namespace kiln::page
