#include "compiler_core/page/html.h"

#include <fmt/format.h>

namespace kiln::page {

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
  text_.back() = '/';
  text_ += '>';
  return *this;
}

Html& Html::text(std::string_view raw) {
  text_ += escape(raw);
  return *this;
}

Html& Html::element(std::string_view name, Attributes attributes, std::string_view raw) {
  return open(name, attributes).text(raw).close(name);
}

Html& Html::word(std::string_view name, Attributes attributes, std::string_view raw) {
  open(name, attributes).text(raw);
  text_ += fmt::format("</{}>", name);
  return *this;
}

Html& Html::literal(std::string_view name, std::string_view text) {
  text_ += fmt::format("<{0}>{1}</{0}>\n", name, text);
  return *this;
}

Html& Html::append(const Html& written) {
  text_ += written.text_;
  return *this;
}

}  // namespace kiln::page
