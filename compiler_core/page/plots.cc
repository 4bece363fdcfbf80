#include "compiler_core/page/plots.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "compiler_core/page/values.h"

namespace kiln::page {
namespace {

using std::string;

string number(double value) {
  return fmt::format("{:.1f}", value);
}

// The least of 1, 2 and 5 times a power of ten that is at least `value`.
double round_up(double value) {
  const double power = std::pow(10, std::floor(std::log10(value)));
  for (const double step : {1.0, 2.0, 5.0, 10.0})
    if (step * power >= value * 0.999999) return step * power;
  return value;
}

string clock_text(int64_t at_ms) {
  return fmt::format("{:%H:%M} UTC", fmt::gmtime(static_cast<std::time_t>(at_ms / 1000)));
}

void label(Html& html, double x, double y, const char* anchor, std::string_view text) {
  html.element("text", {{"x", number(x)}, {"y", number(y)}, {"text-anchor", anchor}}, text);
}

void line(Html& html, const char* kind, double x1, double y1, double x2, double y2) {
  html.empty("line", {{"class", kind},
                      {"x1", number(x1)},
                      {"y1", number(y1)},
                      {"x2", number(x2)},
                      {"y2", number(y2)}});
}

// A path through the known values; a gap where one is not known.
string path_of(const std::vector<double>& values, const auto& x, const auto& y) {
  string path;
  bool is_drawing = false;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      is_drawing = false;
      continue;
    }
    path += fmt::format("{}{:.1f} {:.1f}", is_drawing ? "L" : "M", x(i), y(values[i]));
    is_drawing = true;
  }
  return path;
}

void legend(Html& html, const Chart& chart) {
  html.open("ul", {{"class", "legend"}});
  for (size_t i = 0; i < chart.series.size(); ++i) {
    html.open("li").open("svg", {{"viewBox", "0 0 24 8"}, {"aria-hidden", "true"}});
    html.empty("path", {{"class", fmt::format("line s{}", i)}, {"d", "M0 4H24"}}).close("svg");
    html.text(chart.series[i].label).close("li");
  }
  html.close("ul");
}

struct Scale {
  double low = 0, high = 0;  // logarithms
  double left = 0, width = 0;
  double x(double us) const {
    return left + width * (std::log(us) - low) / std::max(high - low, 1e-9);
  }
};

// The times at which such a scale has a mark: even steps in a narrow range, else 1, 2, 5, 10, ...
std::vector<double> marks(double low_us, double high_us) {
  std::vector<double> at;
  if (high_us < 6 * low_us) {
    const double step = round_up((high_us - low_us) / 6);
    for (double us = std::ceil(low_us / step) * step; us <= high_us; us += step) at.push_back(us);
    return at;
  }
  for (double power = std::pow(10, std::floor(std::log10(low_us))); power <= high_us; power *= 10)
    for (const double step : {1.0, 2.0, 5.0})
      if (step * power >= low_us && step * power <= high_us) at.push_back(step * power);
  return at;
}

std::vector<string> words_of(std::string_view text) {
  std::vector<string> words;
  while (!text.empty()) {
    words.emplace_back(text.substr(0, text.find(' ')));
    text.remove_prefix(std::min(text.size(), words.back().size() + 1));
  }
  return words;
}

// The words of a runner's label that not all others have too: what makes it differ.
string short_label(const Runner& runner, const std::vector<Runner>& all) {
  constexpr size_t kLetters = 38;
  string label;
  for (const string& word : words_of(runner.label)) {
    const bool is_shared = all.size() > 1 && std::ranges::all_of(all, [&](const Runner& other) {
                             return std::ranges::count(words_of(other.label), word) > 0;
                           });
    if (!is_shared) label += (label.empty() ? "" : " ") + word;
  }
  return label.size() <= kLetters ? label : label.substr(0, kLetters) + "...";
}

}  // namespace

Html bar(double share, std::string_view said) {
  constexpr double kWidth = 80;
  Html html;
  html.open("svg", {{"class", "bar"},
                    {"viewBox", "0 0 80 8"},
                    {"role", "img"},
                    {"aria-label", string(said)},
                    {"preserveAspectRatio", "none"}});
  html.empty("rect", {{"class", "room"}, {"width", "80"}, {"height", "8"}, {"rx", "2"}});
  html.empty("rect", {{"class", "fill"},
                      {"width", number(kWidth * std::clamp(share, 0.0, 1.0))},
                      {"height", "8"},
                      {"rx", "2"}});
  return std::move(html.close("svg"));
}

Html strip(std::string_view letters) {
  struct Kind {
    char letter;
    const char* name;
    const char* said;
  };
  constexpr Kind kKinds[] = {{'b', "busy", "busy"},
                             {'w', "waits", "waiting"},
                             {'i', "idle", "idle"},
                             {'q', "held", "in quarantine"},
                             {'d', "drains", "draining"}};
  Html html;
  string said;
  for (const Kind& kind : kKinds)
    if (const auto spans = std::ranges::count(letters, kind.letter); spans > 0)
      said += fmt::format("{}{} {:.0f} %", said.empty() ? "" : ", ", kind.said,
                          100.0 * static_cast<double>(spans) / static_cast<double>(letters.size()));
  html.open("svg", {{"class", "strip"},
                    {"viewBox", fmt::format("0 0 {} 10", letters.size())},
                    {"preserveAspectRatio", "none"},
                    {"role", "img"},
                    {"aria-label", said.empty() ? "not connected" : said}});
  for (size_t from = 0; from < letters.size();) {
    const size_t end = std::min(letters.find_first_not_of(letters[from], from), letters.size());
    const auto kind = std::ranges::find(kKinds, letters[from], &Kind::letter);
    html.empty("rect", {{"class", kind == std::end(kKinds) ? "gone" : kind->name},
                        {"x", std::to_string(from)},
                        {"width", std::to_string(end - from)},
                        {"height", "10"}});
    from = end;
  }
  return std::move(html.close("svg"));
}

Html line_chart(const Chart& chart) {
  constexpr double kWidth = 480, kHeight = 170, kLeft = 46, kRight = 8, kTop = 8, kBottom = 22;
  double most = 0;
  string said;
  for (const Series& series : chart.series) {
    double last = 0;
    for (const double value : series.values)
      if (!std::isnan(value)) most = std::max(most, last = value);
    said += fmt::format("{}{}: {:.4g} now", said.empty() ? "" : "; ", series.label, last);
  }
  const double top = most > 0 ? round_up(most) : 1;
  const size_t points = chart.at_ms.size();
  const auto x = [&](size_t i) {
    return kLeft + (kWidth - kLeft - kRight) * static_cast<double>(i) /
                       std::max<double>(static_cast<double>(points) - 1, 1);
  };
  const auto y = [&](double value) {
    return kTop + (kHeight - kTop - kBottom) * (1 - value / top);
  };
  Html html;
  html.open("figure", {{"class", "chart"}});
  html.open("svg", {{"viewBox", "0 0 480 170"},
                    {"role", "img"},
                    {"aria-label", fmt::format("{}. {}", chart.heading, said)}});
  for (const double share : {0.0, 0.5, 1.0}) {
    line(html, "grid", kLeft, y(top * share), kWidth - kRight, y(top * share));
    label(html, kLeft - 6, y(top * share) + 4, "end", fmt::format("{:.4g}", top * share));
  }
  for (size_t i = 0; i < chart.series.size(); ++i)
    html.empty("path", {{"class", fmt::format("line s{}", i)},
                        {"d", path_of(chart.series[i].values, x, y)}});
  if (points > 1) {
    label(html, kLeft, kHeight - 5, "start", clock_text(chart.at_ms.front()));
    label(html, kWidth - kRight, kHeight - 5, "end", clock_text(chart.at_ms.back()));
  }
  html.close("svg");
  legend(html, chart);
  return std::move(html.close("figure"));
}

Html race_plot(const Race& race) {
  constexpr double kWidth = 860, kLabels = 320, kRow = 18, kTop = 4, kAxis = 24;
  constexpr double kHalfAMark = 30;  // of the text below the last line
  double low = std::numeric_limits<double>::max(), high = 0;
  for (const Runner& runner : race.runners)
    for (const double us : runner.samples_us)
      if (us > 0) low = std::min(low, us), high = std::max(high, us);
  Html html;
  if (high <= 0) return html;
  // One run in thousands may take a thousand times as long: such dots stand at the edge.
  constexpr double kFarOut = 3;
  double slowest_us = 0;
  for (const Runner& runner : race.runners) slowest_us = std::max(slowest_us, runner.median_us);
  if (slowest_us > 0) high = std::min(high, kFarOut * slowest_us);
  low /= 1.05, high *= 1.05;
  const Scale scale{std::log(low), std::log(high), kLabels, kWidth - kLabels - kHalfAMark};
  const double bottom = kTop + kRow * static_cast<double>(race.runners.size());
  const Runner& first = race.runners.front();
  html.open("svg", {{"class", "race"},
                    {"viewBox", fmt::format("0 0 {:.0f} {:.0f}", kWidth, bottom + kAxis)},
                    {"role", "img"},
                    {"aria-label",
                     fmt::format("{} candidates; the fastest, {}, takes {}", race.runners.size(),
                                 first.label, microseconds(first.median_us).text)}});
  for (const double us : marks(low, high)) {
    line(html, "grid", scale.x(us), kTop, scale.x(us), bottom);
    label(html, scale.x(us), bottom + 15, "middle", microseconds(us).text);
  }
  double y = kTop + kRow / 2;
  for (const Runner& runner : race.runners) {
    html.open("g", {{"class", runner.won ? "runner won" : "runner"}});
    label(html, kLabels - 8, y + 4, "end", short_label(runner, race.runners));
    for (const double us : runner.samples_us)
      if (us > 0)
        html.empty("circle",
                   {{"cx", number(scale.x(std::min(us, high)))}, {"cy", number(y)}, {"r", "2.2"}});
    if (runner.median_us > 0) {
      const double x = scale.x(runner.median_us);
      line(html, "median", x, y - kRow / 2 + 2, x, y + kRow / 2 - 2);
    }
    html.close("g");
    y += kRow;
  }
  return std::move(html.close("svg"));
}

}  // namespace kiln::page
