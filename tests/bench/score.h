// Score: what a benchmark found, as rows of a table: a figure, its unit, the goal and whether it
// was met. Printed as markdown or JSON.
#pragma once

#include <fmt/format.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace kiln::bench {

class Score {
 public:
  // `goal` is empty, or "< 5", "> 50000".
  void add(const std::string& name, double value, const std::string& unit,
           const std::string& goal = "", const std::string& note = "") {
    rows_.push_back({name, value, unit, goal, note});
  }

  std::string markdown() const {
    std::string text = "| what | figure | goal | |\n|---|---|---|---|\n";
    for (const Row& row : rows_)
      text += fmt::format("| {} | {:.{}f} {} | {} | {} |\n", row.name, row.value,
                          row.value >= 100 ? 0 : 2, row.unit,
                          row.goal + (row.met() ? "" : " (missed)"), row.note);
    return text;
  }

  nlohmann::ordered_json json() const {
    auto rows = nlohmann::ordered_json::array();
    for (const Row& row : rows_)
      rows.push_back({{"what", row.name},
                      {"value", row.value},
                      {"unit", row.unit},
                      {"goal", row.goal},
                      {"met", row.met()},
                      {"note", row.note}});
    return rows;
  }

 private:
  struct Row {
    std::string name;
    double value = 0;
    std::string unit, goal, note;
    bool met() const {
      if (goal.empty()) return true;
      const double limit = std::stod(goal.substr(2));
      return goal[0] == '<' ? value < limit : value >= limit;
    }
  };
  std::vector<Row> rows_;
};

}  // namespace kiln::bench
