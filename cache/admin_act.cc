// The acts in the tables of a KernelCache, too.
#include "cache/admin_act.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "cache/index.h"
#include "compiler_core/base/clock.h"

namespace kiln {
namespace {

void mend(std::string& text) {
  using Json = nlohmann::json;
  std::erase(text, '\0');
  const std::string valid = Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  text = Json::parse(valid).get<std::string>();
}

}  // namespace

AdminAct in_utf8(AdminAct act) {
  for (std::string* text : {&act.coordinator, &act.who, &act.request, &act.outcome}) mend(*text);
  return act;
}

std::string to_json(const AdminAct& act) {
  const nlohmann::ordered_json json = {{"number", act.number},           {"at_ms", act.at_ms},
                                       {"coordinator", act.coordinator}, {"who", act.who},
                                       {"request", act.request},         {"done", act.done},
                                       {"outcome", act.outcome}};
  return json.dump();
}

AdminAct act_of_now(std::string coordinator, std::string who, std::string request) {
  AdminAct act;
  act.at_ms = unix_ms();
  act.coordinator = std::move(coordinator);
  act.who = std::move(who);
  act.request = std::move(request);
  return act;
}

AdminAct came_to(AdminAct act, const TakenBack& taken) {
  const nlohmann::ordered_json json = {{"programs", taken.programs.size()},
                                       {"kernels", taken.kernels.size()},
                                       {"records", taken.records},
                                       {"blobs", taken.blobs.size()}};
  act.done = true;
  act.outcome = json.dump();
  return act;
}

Status CacheIndex::note(const AdminAct& given) {
  const AdminAct act = in_utf8(given);
  TRY_STATUS(Query(db_,
                   "INSERT INTO acts (at_ms, coordinator, who, request, done, outcome)"
                   " VALUES (?, ?, ?, ?, ?, ?)")
                 .bind(act.at_ms)
                 .bind_text(act.coordinator)
                 .bind_text(act.who)
                 .bind_text(act.request)
                 .bind(int64_t{act.done})
                 .bind_text(act.outcome)
                 .run());
  return Query(db_, "DELETE FROM acts WHERE id <= (SELECT max(id) FROM acts) - ?")
      .bind(kMaxActs)
      .run();
}

Result<std::vector<AdminAct>> CacheIndex::acts(int64_t before, int64_t limit) {
  Query query(db_,
              "SELECT id, at_ms, coordinator, who, request, done, outcome FROM acts"
              " WHERE id < ? ORDER BY id DESC LIMIT ?");
  query.bind(before).bind(limit);
  std::vector<AdminAct> found;
  for (;;) {
    TRY(const bool row, query.next());
    if (!row) return found;
    found.push_back({query.integer(0), query.integer(1), std::string(query.bytes(2)),
                     std::string(query.bytes(3)), std::string(query.bytes(4)),
                     query.integer(5) != 0, std::string(query.bytes(6))});
  }
}

}  // namespace kiln
