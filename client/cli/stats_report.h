// What `kiln stats` prints: pure functions of what a coordinator says of itself.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "schema/messages.h"

namespace kiln::cli {

// Field names are a promise to scripts: only ever added to.
nlohmann::ordered_json stats_json(const Stats& stats);

// For people. With `before`, of the same coordinator a while ago, also what happened in a second.
std::string stats_text(const std::string& endpoint, const Stats& stats,
                       const Stats* before = nullptr);

// One line of name=value fields for logs: rates since `before`, and what is open now.
std::string stats_line(const Stats& stats, const Stats& before);

}  // namespace kiln::cli
