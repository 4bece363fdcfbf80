#include "schema/metrics/metrics_text.h"

#include <fmt/format.h>

namespace kiln {
namespace {

// Label values are anybody's: the three characters that the format escapes.
std::string escaped(std::string_view value) {
  std::string text;
  for (const char c : value) {
    if (c == '\\' || c == '"') text += '\\';
    if (c == '\n') {
      text += "\\n";
    } else {
      text += c;
    }
  }
  return text;
}

}  // namespace

void MetricsText::family(std::string_view name, std::string_view type, std::string_view help) {
  name_ = name;
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
}

void MetricsText::sample(double value, Labels labels) {
  line("", labels, "", value);
}

void MetricsText::histogram(const Histogram& histogram, Labels labels) {
  int64_t below = 0;
  for (size_t i = 0; i < histogram.upper_s().size(); ++i) {
    below += histogram.count_in(i);
    line("_bucket", labels, fmt::format("{}", histogram.upper_s()[i]), static_cast<double>(below));
  }
  const auto count = static_cast<double>(histogram.count());
  line("_bucket", labels, "+Inf", count);
  line("_sum", labels, "", histogram.sum_s());
  line("_count", labels, "", count);
}

void MetricsText::counter(std::string_view name, std::string_view help, int64_t value) {
  family(name, "counter", help);
  sample(static_cast<double>(value));
}

void MetricsText::gauge(std::string_view name, std::string_view help, double value) {
  family(name, "gauge", help);
  sample(value);
}

void MetricsText::line(std::string_view suffix, Labels labels, std::string_view le, double value) {
  text_ += fmt::format("{}{}", name_, suffix);
  std::string inside;
  for (const auto& [name, label] : labels) {
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", name, escaped(label));
  }
  if (!le.empty()) inside += fmt::format("{}le=\"{}\"", inside.empty() ? "" : ",", le);
  if (!inside.empty()) text_ += fmt::format("{{{}}}", inside);
  text_ += fmt::format(" {}\n", value);
}

}  // namespace kiln
