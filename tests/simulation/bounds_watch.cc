#include "tests/simulation/bounds_watch.h"

#include <fmt/core.h>

#include <algorithm>

namespace kiln::simulation {

void BoundsWatch::incarnation_begins() {
  open_.clear();
  out_.clear();
  detached_.clear();
  storing_.clear();
  verifying_.clear();
  recovered_ = 0;
}

Digest BoundsWatch::key_of(const DetachedTask& task) const {
  return program_key(task.graph, task.target, task.mode);
}

void BoundsWatch::came_back(const Digest& program) {
  const auto found = out_.find(program);
  if (found != out_.end() && --found->second <= 0) out_.erase(found);
}

void BoundsWatch::saw(const Event& event) {
  if (const auto* e = std::get_if<RequestReceived>(&event)) {
    const CompileRequest& r = e->request;
    open_.try_emplace(
        {e->client, r.request},
        Open{program_key(r.graph, r.target, r.mode),
             e->user.empty() ? e->client : "user " + e->user,
             r.now ? std::optional(program_key(r.graph, r.target, Mode::kDefault)) : std::nullopt});
  }
  if (const auto* e = std::get_if<RequestCancelled>(&event)) end({e->client, e->request});
  if (const auto* e = std::get_if<ClientGone>(&event))
    std::erase_if(open_, [&](const auto& entry) { return entry.first.first == e->client; });
  if (const auto* e = std::get_if<ProgramLookedUp>(&event)) came_back(e->key);
  if (const auto* e = std::get_if<PlanFinished>(&event)) came_back(e->key);
  if (const auto* e = std::get_if<ProgramStored>(&event)) {
    came_back(e->key);
    verifying_.erase(e->key);
  }
  if (const auto* e = std::get_if<DetachedStored>(&event)) {
    came_back(e->key);
    storing_.erase(e->key);
    if (e->status) detached_.insert(e->key);
  }
  if (const auto* e = std::get_if<DetachedRecovered>(&event); e != nullptr && !e->failure) {
    detached_.insert(key_of(e->task));
    ++recovered_;
  }
}

void BoundsWatch::saw(const Action& action) {
  if (const auto* a = std::get_if<Answer>(&action)) {
    const auto open = open_.find({a->client, a->reply.request});
    if (a->is_early && open != open_.end())
      verifying_.insert(a->reply.tier0 && open->second.tier0 ? *open->second.tier0
                                                             : open->second.program);
    end({a->client, a->reply.request});
  }
  if (const auto* a = std::get_if<KeepProgram>(&action)) verifying_.erase(a->task);
  if (const auto* a = std::get_if<LookUpProgram>(&action)) went_out(a->key);
  if (const auto* a = std::get_if<StartPlan>(&action)) went_out(a->key);
  if (const auto* a = std::get_if<StoreProgram>(&action)) went_out(a->program.key);
  if (const auto* a = std::get_if<StoreDetached>(&action)) {
    went_out(a->key);
    storing_.insert(a->key);
  }
  if (const auto* a = std::get_if<EndDetached>(&action)) detached_.erase(key_of(a->task));
}

std::map<TenantId, int> BoundsWatch::of_tenant() const {
  std::map<TenantId, int> counts;
  for (const auto& [id, open] : open_) ++counts[open.tenant];
  return counts;
}

std::optional<std::string> BoundsWatch::saw(const Stats& stats) const {
  if (std::ssize(open_) > options_.max_open_requests) return "more open requests than the bound";
  for (const auto& [tenant, count] : of_tenant())
    if (count > options_.max_open_requests_a_client)
      return fmt::format("{} has {} open requests", tenant, count);
  const auto places = static_cast<size_t>(options_.max_detached);
  if (detached_.size() > std::max(places, recovered_))
    return fmt::format("{} programs are queued", detached_.size());
  // Tasks that nobody waits for, with nothing that was asked for them still on its way.
  std::set<Digest> known;
  for (const auto& [id, open] : open_) {
    known.insert(open.program);
    if (open.tier0) known.insert(*open.tier0);
  }
  for (const auto& [program, count] : out_) known.insert(program);
  known.insert(verifying_.begin(), verifying_.end());
  if (const auto left = stats.flights_open - std::ssize(known);
      left > options_.max_detached_running)
    return fmt::format("{} tasks go on that nobody waits for", left);
  return std::nullopt;
}

std::optional<std::string> BoundsWatch::made_candidates(int64_t before, int64_t after) const {
  if (before < options_.max_candidates_queued || after <= before) return std::nullopt;
  return fmt::format("{} candidates are queued, and then {}", before, after);
}

bool BoundsWatch::may_refuse(const ClientId& client, uint64_t request) const {
  const auto counts = of_tenant();
  return std::ssize(open_) > options_.max_open_requests ||
         counts.at(open_.at({client, request}).tenant) > options_.max_open_requests_a_client;
}

bool BoundsWatch::may_refuse_detached() const {
  return std::ssize(detached_) + std::ssize(storing_) >= options_.max_detached;
}

}  // namespace kiln::simulation
