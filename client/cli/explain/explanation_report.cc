// An Explanation as text and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "client/cli/explain/explanation.h"

namespace kiln::cli {
namespace {

using nlohmann::ordered_json;

constexpr size_t kColumns = 100;

std::string bytes_text(int64_t bytes) {
  const double b = static_cast<double>(bytes);
  if (bytes < 10'000) return fmt::format("{} B", bytes);
  if (b < 1e7) return fmt::format("{:.1f} kB", b * 1e-3);
  return b < 1e10 ? fmt::format("{:.1f} MB", b * 1e-6) : fmt::format("{:.1f} GB", b * 1e-9);
}
std::string flops_text(int64_t flops) {
  const double f = static_cast<double>(flops);
  if (flops < 10'000) return fmt::format("{} flop", flops);
  if (f < 1e7) return fmt::format("{:.1f} kflop", f * 1e-3);
  return f < 1e10 ? fmt::format("{:.1f} Mflop", f * 1e-6) : fmt::format("{:.1f} Gflop", f * 1e-9);
}
// "aten.gelu.default" as a person says it: "gelu".
std::string spoken(std::string op) {
  if (op.starts_with("aten.")) op.erase(0, 5);
  const std::string_view plain[] = {".default", ".Tensor"};
  for (const std::string_view end : plain)
    if (op.ends_with(end)) op.erase(op.size() - end.size());
  return op;
}

// "     label     a, b, c", broken between the words.
void add_list(std::string& text, std::string_view label, const std::vector<std::string>& words,
              std::string_view between = ", ") {
  constexpr size_t kIndent = 15;
  if (words.empty()) return;
  std::string line = fmt::format("     {:<10}", label);
  for (size_t i = 0; i < words.size(); ++i) {
    std::string word = words[i] + (i + 1 < words.size() ? std::string(between) : "");
    if (line.size() + word.size() > kColumns && line.size() > kIndent) {
      while (line.ends_with(' ')) line.pop_back();
      text += line + "\n";
      line = std::string(kIndent, ' ');
    }
    while (line.size() + word.size() > kColumns) {  // one long word
      const size_t room = kColumns - line.size();
      const size_t space = word.rfind(' ', room);
      const size_t cut = space == std::string::npos || space == 0 ? room : space;
      text += line + word.substr(0, cut) + "\n";
      word.erase(0, cut + (space == cut ? 1 : 0));
      line = std::string(kIndent, ' ');
    }
    line += word;
  }
  text += line + "\n";
}

std::string places(const std::vector<int>& launches) {
  std::string text;
  for (size_t i = 0; i < launches.size() && i < 6; ++i)
    text += fmt::format("{}#{}", i == 0 ? "" : ", ", launches[i]);
  return launches.size() > 6 ? text + fmt::format(" and {} more", launches.size() - 6) : text;
}

std::vector<std::string> shortened(const std::vector<std::string>& list, size_t most) {
  if (list.size() <= most) return list;
  std::vector<std::string> some(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(most));
  some.push_back(fmt::format("and {} more", list.size() - most));
  return some;
}

std::string launch_text(const Explanation& all, size_t index) {
  const ExplainedLaunch& launch = all.launches[index];
  const ExplainedKernel& kernel = all.kernels[static_cast<size_t>(launch.kernel)];
  std::string text =
      fmt::format("#{:<3} {:<17} {:>11} {:>13}   floor {:>9}   time {:>9}  {}\n", index,
                  to_string(kernel.workload.family), bytes_text(launch.cost.bytes),
                  flops_text(launch.cost.flops), time_text(launch.floor_us),
                  time_text(kernel.time_us), kernel.workload.digest.short_hex());
  add_list(text, "ops", spoken_ops(launch.fused_ops));
  add_list(text, "module", shortened(launch.modules, 4));
  add_list(text, "source", shortened(launch.sources, 4));
  add_list(text, "reads", shortened(launch.inputs, 8));
  add_list(text, "writes", launch.outputs);
  for (const StoredFor& stored : launch.stored)
    add_list(text, "stored",
             {fmt::format("{} for {}: {}", stored.value, places(stored.readers), stored.reason)});
  for (size_t earlier = 0; earlier < index; ++earlier)
    if (all.launches[earlier].kernel == launch.kernel)
      return text + fmt::format("     same kernel as #{}\n", earlier);
  add_list(text, "schedule",
           {kernel.schedule.empty() ? "none: " + kernel.no_schedule : kernel.schedule});
  if (kernel.call) {
    add_list(text, "library",
             {fmt::format("{} of {} {}", kernel.call->function, kernel.call->library,
                          kernel.call->version)});
    add_list(text, "own",
             {fmt::format("{}, {}: where the library is missing or has another version",
                          kernel.own_schedule, time_text(kernel.own_us))});
  }
  return text;
}

ordered_json launch_json(const Explanation& all, size_t index) {
  const ExplainedLaunch& launch = all.launches[index];
  const ExplainedKernel& kernel = all.kernels[static_cast<size_t>(launch.kernel)];
  ordered_json stored = ordered_json::array();
  for (const StoredFor& each : launch.stored)
    stored.push_back({{"value", each.value}, {"readers", each.readers}, {"reason", each.reason}});
  ordered_json object = {{"launch", index},
                         {"kernel", launch.kernel},
                         {"workload", kernel.workload.digest.hex()},
                         {"family", to_string(kernel.workload.family)},
                         {"fused_ops", launch.fused_ops},
                         {"sources", launch.sources},
                         {"modules", launch.modules},
                         {"inputs", launch.inputs},
                         {"outputs", launch.outputs},
                         {"stored", std::move(stored)},
                         {"bytes", launch.cost.bytes},
                         {"flops", launch.cost.flops},
                         {"floor_us", launch.floor_us},
                         {"schedule", kernel.schedule}};
  object["time_us"] = kernel.time_us > 0 ? ordered_json(kernel.time_us) : ordered_json();
  if (!kernel.no_schedule.empty()) object["no_schedule"] = kernel.no_schedule;
  if (kernel.call) {
    object["library"] = {{"name", kernel.call->library},
                         {"version", kernel.call->version},
                         {"function", kernel.call->function}};
    object["own"] = {{"schedule", kernel.own_schedule}};
    object["own"]["time_us"] = kernel.own_us > 0 ? ordered_json(kernel.own_us) : ordered_json();
  }
  return object;
}

// "attention in three kernels, 5 launches, 812.0 us".
std::string alternative_text(const ExplainedAlternative& one) {
  return fmt::format("{}, {} launch{}, {}", one.name, one.launches, one.launches == 1 ? "" : "es",
                     one.time_us > 0 ? time_text(one.time_us) : "time not known here");
}

// Nothing where there is no choice.
void add_alternatives(std::string& text, const Explanation& all) {
  if (all.alternatives.size() < 2) return;
  const auto chosen = static_cast<size_t>(all.alternative);
  add_list(text, "cut",
           {alternative_text(all.alternatives[chosen]) + ": " + all.alternative_reason});
  for (size_t i = 0; i < all.alternatives.size(); ++i)
    if (i != chosen) add_list(text, "", {"not: " + alternative_text(all.alternatives[i])});
}

// Also of some launches only, when the cache knows some of the kernels.
std::string measured_text(double time_us, size_t timed, size_t launches) {
  if (timed == 0) return "";
  if (timed == launches) return ", measured " + time_text(time_us);
  return fmt::format(", measured {} for {} of the launches", time_text(time_us), timed);
}

}  // namespace

std::string time_text(double us) {
  if (us <= 0) return "?";
  return us < 1e4 ? fmt::format("{:.1f} us", us) : fmt::format("{:.2f} ms", us * 1e-3);
}

std::vector<std::string> spoken_ops(const std::vector<std::string>& ops) {
  std::vector<std::pair<std::string, int>> counted;
  for (const std::string& op : ops) {
    const std::string name = spoken(op);
    const auto known = std::find_if(counted.begin(), counted.end(),
                                    [&](const auto& c) { return c.first == name; });
    if (known == counted.end())
      counted.emplace_back(name, 1);
    else
      ++known->second;
  }
  std::vector<std::string> words;
  for (const auto& [name, count] : counted)
    words.push_back(count == 1 ? name : fmt::format("{} x{}", name, count));
  return words;
}

std::string symbol_text(const Explanation& all, size_t i) {
  const Symbol& symbol = all.symbols[i];
  const std::string most =
      symbol.range.max == INT64_MAX ? "any" : fmt::format("{}", symbol.range.max);
  return fmt::format("s{} from {} to {} (costs for {})", i, symbol.range.min, most, all.sizes[i]);
}

std::string explanation_text(const std::string& file, const Explanation& all) {
  double floor_us = 0, time_us = 0;
  size_t timed = 0;
  for (const ExplainedLaunch& launch : all.launches) {
    floor_us += launch.floor_us;
    const double time = all.kernels[static_cast<size_t>(launch.kernel)].time_us;
    time_us += time;
    timed += time > 0;
  }
  std::string text;
  add_list(text, "program", {file + "  graph " + all.graph.short_hex()});
  add_list(
      text, "target",
      {fmt::format("{}, {}; cache: {}", all.target.to_string(), to_string(all.mode), all.cache)});
  add_list(text, "kernels",
           {fmt::format("{} in {} launches; floor {} together{}", all.kernels.size(),
                        all.launches.size(), time_text(floor_us),
                        measured_text(time_us, timed, all.launches.size()))});
  add_alternatives(text, all);
  add_list(text, "memory",
           {fmt::format("arena {}; its temporaries one by one {}; alive at once {}",
                        bytes_text(all.arena_bytes), bytes_text(all.temporary_bytes),
                        bytes_text(all.live_bytes))});
  for (size_t i = 0; i < all.symbols.size(); ++i)
    add_list(text, i == 0 ? "sizes" : "", {symbol_text(all, i)});
  add_list(text, "guards", all.guards);
  add_list(text, "floors", {all.peak.source});
  for (size_t i = 0; i < all.launches.size(); ++i) text += "\n" + launch_text(all, i);
  return text;
}

ordered_json explanation_json(const std::string& file, const Explanation& all) {
  ordered_json kernels = ordered_json::array(), symbols = ordered_json::array();
  for (size_t i = 0; i < all.launches.size(); ++i) kernels.push_back(launch_json(all, i));
  ordered_json alternatives = ordered_json::array();
  for (const ExplainedAlternative& one : all.alternatives) {
    alternatives.push_back({{"name", one.name}, {"launches", one.launches}});
    alternatives.back()["time_us"] = one.time_us > 0 ? ordered_json(one.time_us) : ordered_json();
  }
  for (const Symbol& symbol : all.symbols)
    symbols.push_back(
        {{"min", symbol.range.min}, {"max", symbol.range.max}, {"hint", symbol.hint}});
  return {{"file", file},
          {"graph_digest", all.graph.hex()},
          {"target", all.target.to_string()},
          {"mode", to_string(all.mode)},
          {"cache", all.cache},
          {"launches", all.launches.size()},
          {"distinct_kernels", all.kernels.size()},
          {"kernels_known", std::ranges::count_if(all.kernels, &ExplainedKernel::known)},
          {"alternatives", std::move(alternatives)},
          {"alternative", all.alternative},
          {"alternative_reason", all.alternative_reason},
          {"symbols", std::move(symbols)},
          {"guards", all.guards},
          {"arena_bytes", all.arena_bytes},
          {"temporary_bytes", all.temporary_bytes},
          {"live_bytes", all.live_bytes},
          {"peak",
           {{"gb_per_s", all.peak.gb_per_s},
            {"gflop_per_s", all.peak.gflop_per_s},
            {"f32_matmul_gflop_per_s", all.peak.f32_matmul_gflop_per_s},
            {"half_matmul_gflop_per_s", all.peak.half_matmul_gflop_per_s},
            {"source", all.peak.source}}},
          {"kernels", std::move(kernels)}};
}

}  // namespace kiln::cli
