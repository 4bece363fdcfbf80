#include <cmath>
#include <nlohmann/json.hpp>

#include "coordinator/page/frame.h"

namespace kiln::page {
namespace {

using Json = nlohmann::ordered_json;

Json to_json(const Value& value) {
  Json json = std::visit(
      [](const auto& data) -> Json {
        if constexpr (std::is_same_v<std::decay_t<decltype(data)>, std::monostate>)
          return nullptr;
        else
          return data;
      },
      value.data);
  if (json.is_null() && !value.strip.empty()) json = value.strip;
  return json;
}

void add(Json& json, const Tiles& tiles) {
  for (const Tile& tile : tiles.tiles) json[tile.name] = to_json(tile.value);
}
void add(Json& json, const Facts& facts) {
  for (const Fact& fact : facts.facts) json[fact.name] = to_json(fact.value);
}
void add(Json& json, const Table& table) {
  Json rows = Json::array();
  for (const auto& row : table.rows) {
    Json object = Json::object();
    for (size_t i = 0; i < row.size(); ++i)
      if (!table.columns[i].name.empty()) object[table.columns[i].name] = to_json(row[i]);
    rows.push_back(std::move(object));
  }
  json[table.name] = std::move(rows);
  if (table.paging)
    json[table.name + "_paging"] = {{"first", table.paging->first},
                                    {"total", table.paging->total},
                                    {"limit", table.paging->limit}};
}
void add(Json& json, const Chart& chart) {
  Json series = Json::object();
  series["at_ms"] = chart.at_ms;
  for (const Series& each : chart.series) {
    Json values = Json::array();
    for (const double value : each.values) {
      if (std::isnan(value))
        values.push_back(nullptr);
      else
        values.push_back(value);
    }
    series[each.name] = std::move(values);
  }
  json[chart.name] = std::move(series);
}
void add(Json& json, const Race& race) {
  Json runners = Json::array();
  for (const Runner& runner : race.runners)
    runners.push_back({{"schedule", runner.label},
                       {"median_us", runner.median_us},
                       {"won", runner.won},
                       {"samples_us", runner.samples_us}});
  json[race.name] = std::move(runners);
}
void add(Json& /*json*/, const Choices& /*choices*/) {}  // the addresses say them
void add(Json& json, const Code& code) {
  json[code.name] = code.text;
}
void add(Json& json, const Notice& notice) {
  json["notices"].push_back(notice.text);
}

}  // namespace

std::string to_json(const Document& document) {
  Json json = {{"view", document.view}, {"title", document.title}};
  for (const Block& block : document.blocks)
    std::visit([&json](const auto& alternative) { add(json, alternative); }, block);
  // Names may hold bytes that are no UTF-8: replaced, so that what is written can be read.
  return json.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace kiln::page
