#include "coordinator/core/fleet/worker_registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

namespace kiln {
namespace {

constexpr int kMaxSlots = 64;  // a worker that asks for more is mistaken
constexpr int kMaxCompilers = 1'024;
constexpr int kBuildsACompiler = 2;  // one that runs, and the next
constexpr double kMaxCalibration = 2.0;
constexpr size_t kMaxWaitingBytes = 1000;  // of a sentence for clients

// Devices that are compared by their calibration kernels: of equal hard facts, and of one model.
std::pair<std::string, std::string> model_of(const Target& target) {
  return {describe(target), target.device_model};
}

}  // namespace

std::string describe(const Target& target) {
  return target.to_string() + (target.toolkit.empty() ? "" : " (" + target.toolkit + ")");
}

bool can_build(const Target& compiler, const Target& target) {
  if (compiler.backend == Backend::kCpu) return compiler.can_run(target);
  Target made = target;
  made.toolkit = compiler.toolkit;
  return compiler.isa == target.isa && target.can_run(made);
}

// The targets that its compilers make code for: its own device, or what it says.
std::vector<Target> WorkerRegistry::built_by(const Worker& worker) {
  if (!worker.builds) return {};
  return worker.only_builds() ? worker.builds_for : std::vector<Target>{worker.target};
}

void WorkerRegistry::leave_class(const WorkerId& id, const Worker& worker) {
  for (const Target& target : built_by(worker)) {
    const auto entry = builder_classes_.find(describe(target));
    if (entry == builder_classes_.end() || entry->second.builders.erase(id) == 0) continue;
    entry->second.only -= worker.only_builds();
    if (worker.build_places > 0) entry->second.idle.erase({worker.build_load(), id});
    if (entry->second.builders.empty()) builder_classes_.erase(entry);
  }
  if (worker.only_builds()) return;
  WorkerClass& entry = classes_[describe(worker.target)];
  --entry.members;
  if (entry.serving.erase(id) > 0) entry.complete -= worker.lacks.empty();
  entry.idle.erase({worker.leases, id});
}

void WorkerRegistry::enter_class(const WorkerId& id, const Worker& worker) {
  for (const Target& target : worker.takes_work() ? built_by(worker) : std::vector<Target>()) {
    BuilderClass& entry = builder_classes_[describe(target)];
    entry.target = target;
    if (!entry.builders.insert(id).second) continue;
    entry.only += worker.only_builds();
    if (worker.has_free_compiler()) entry.idle.emplace(worker.build_load(), id);
  }
  if (worker.only_builds()) return;
  const std::string name = describe(worker.target);
  if (classes_.size() >= kMaxClasses && !classes_.contains(name))
    std::erase_if(classes_, [](const auto& named) { return named.second.members == 0; });
  WorkerClass& entry = classes_[name];
  entry.target = worker.target;
  ++entry.members;
  if (!worker.takes_work()) return;
  entry.serving.insert(id);
  entry.complete += worker.lacks.empty();
  if (worker.has_free_slot()) entry.idle.emplace(worker.leases, id);
}

std::vector<std::string> WorkerRegistry::lacking(const TemplateVersions* templates) const {
  std::vector<std::string> lacks;
  for (const TemplateVersion& ours : options_.templates)
    if (templates == nullptr || find_version(*templates, ours.name) != ours.version)
      lacks.push_back(ours.name);
  return lacks;
}

void WorkerRegistry::report(int64_t now_ms, const WorkerId& id, const WorkerReport& report,
                            const std::shared_ptr<const TemplateVersions>& templates) {
  const auto [entry, is_new] = workers_.try_emplace(id);
  Worker& worker = entry->second;
  if (is_new)
    worker.health = health_of(id, report);
  else
    leave_class(id, worker);
  if (is_new || worker.templates != templates) {  // one list for each connection
    worker.templates = templates;
    worker.lacks = lacking(templates.get());
  }
  worker.target = report.target;
  if (report.only_builds()) worker.target.isa.clear();  // so that it runs nothing
  worker.toolkit = report.toolkit;
  worker.libraries = report.libraries;
  worker.builds_for = report.builds ? report.builds_for : std::vector<Target>();
  worker.slots = worker.only_builds() ? 0 : std::clamp(report.slots, 0, kMaxSlots);
  worker.builds = report.builds;
  worker.build_places =
      report.builds ? kBuildsACompiler * std::clamp(report.compilers, 0, kMaxCompilers) : 0;
  worker.draining = report.draining || worker.drain_ordered;
  worker.report_ms = now_ms;
  worker.said_compiles = report.compiled;
  worker.sandbox = report.sandbox;
  worker.waiting = report.waiting;
  if (worker.waiting.empty())
    waiting_.erase(id);
  else
    waiting_.insert(id);
  worker.health.saw(now_ms, report.sentinel_us, report.device_errors, options_);
  if (worker.health.baseline_us() > 0)
    set_reference(model_of(worker.target), worker.health.baseline_us());
  enter_class(id, worker);
  judge(id, worker);
}

Worker* WorkerRegistry::find(const WorkerId& id) {
  const auto found = workers_.find(id);
  return found == workers_.end() ? nullptr : &found->second;
}

void WorkerRegistry::remove(const WorkerId& id) {
  const auto found = workers_.find(id);
  if (found == workers_.end()) return;
  leave_class(id, found->second);
  waiting_.erase(id);
  screeners_.erase(id);
  remember(id, found->second);
  workers_.erase(found);
  judge_drifting();
}

std::string WorkerRegistry::waiting_for(const Target& target) const {
  for (const WorkerId& id : waiting_) {
    const Worker& worker = workers_.at(id);
    if (worker.target.backend == target.backend && worker.target.isa == target.isa)
      return fmt::format("{} waits for {}", id, worker.waiting).substr(0, kMaxWaitingBytes);
  }
  return {};
}

// Another process under the same name counts its compiles anew.
WorkerHealth WorkerRegistry::health_of(const WorkerId& id, const WorkerReport& report) const {
  const auto gone = gone_.find(id);
  if (gone == gone_.end() || report.compiled < gone->second.said_compiles ||
      mutated(Mutation::kForgetHealth))
    return {};
  return gone->second.health;
}

void WorkerRegistry::set_reference(const Model& model, double sentinel_us) {
  if (reference_us_.size() < kMaxModels) reference_us_.try_emplace(model, sentinel_us);
}

void WorkerRegistry::remember(const WorkerId& id, const Worker& worker) {
  const auto [entry, is_new] = gone_.try_emplace(id);
  entry->second = {model_of(worker.target), worker.health, worker.said_compiles};
  if (!is_new) return;
  gone_since_.push_back(id);
  if (gone_since_.size() <= kRemembered) return;
  gone_.erase(gone_since_.front());
  gone_since_.pop_front();
}

void WorkerRegistry::order_drain(const WorkerId& id) {
  Worker* worker = find(id);
  if (worker == nullptr) return;
  leave_class(id, *worker);
  worker->draining = worker->drain_ordered = true;
  enter_class(id, *worker);
  judge_drifting();
}

void WorkerRegistry::distrust(const WorkerId& id) {
  distrusted_.insert(id);
  if (Worker* worker = find(id)) judge(id, *worker);
  judge_drifting();
}

void WorkerRegistry::set_leases(const WorkerId& id, int leases, int builds) {
  Worker* worker = find(id);
  if (worker == nullptr || (worker->leases == leases && worker->open_builds == builds)) return;
  const int load_before = worker->build_places > 0 ? worker->build_load() : 0;
  if (!worker->only_builds()) {
    auto& idle = classes_[describe(worker->target)].idle;
    idle.erase({worker->leases, id});
    worker->leases = leases;
    if (worker->has_free_slot()) idle.emplace(leases, id);
  }
  worker->open_builds = builds;
  for (const Target& target : built_by(*worker)) {
    const auto entry = builder_classes_.find(describe(target));
    if (entry == builder_classes_.end()) continue;  // it takes no work
    entry->second.idle.erase({load_before, id});
    if (worker->has_free_compiler()) entry->second.idle.emplace(worker->build_load(), id);
  }
}

void WorkerRegistry::judge(const WorkerId& id, Worker& worker) {
  const auto entry = classes_.find(describe(worker.target));
  const bool others =
      entry != classes_.end() && entry->second.serving.size() > entry->second.serving.count(id);
  worker.distrusted = distrusted_.contains(id);
  const bool quarantined =
      worker.distrusted || worker.health.errs() || (worker.health.drifts() && others);
  if (quarantined == worker.quarantined) return;
  leave_class(id, worker);
  worker.quarantined = quarantined;
  enter_class(id, worker);
  if (quarantined) quarantined_.push_back(id);
}

// The workers that take work may have changed.
void WorkerRegistry::judge_drifting() {
  for (auto& [id, worker] : workers_)
    if (worker.health.drifts()) judge(id, worker);
}

void WorkerRegistry::tick(int64_t now_ms) {
  for (auto& [id, worker] : workers_) {
    worker.health.review(now_ms, options_);
    judge(id, worker);
  }
}

double WorkerRegistry::calibration(const WorkerId& id) const {
  std::pair<Model, double> known;  // its model and baseline
  if (const auto worker = workers_.find(id); worker != workers_.end())
    known = {model_of(worker->second.target), worker->second.health.baseline_us()};
  else if (const auto gone = gone_.find(id); gone != gone_.end())
    known = {gone->second.model, gone->second.health.baseline_us()};
  return calibration(known.first, known.second);
}

double WorkerRegistry::calibration(const TuningRecord& record) {
  if (record.sentinel_us <= 0 || mutated(Mutation::kForgetCalibration))
    return calibration(record.worker);
  const Model model = model_of(record.target);
  set_reference(model, record.sentinel_us);
  return calibration(model, record.sentinel_us);
}

double WorkerRegistry::calibration(const Model& model, double sentinel_us) const {
  const double reference = reference_us(model);
  if (sentinel_us <= 0 || reference <= 0) return 1;
  return std::clamp(reference / sentinel_us, 1 / kMaxCalibration, kMaxCalibration);
}

double WorkerRegistry::reference_us(const Target& target) const {
  return reference_us(model_of(target));
}

double WorkerRegistry::reference_us(const Model& model) const {
  const auto reference = reference_us_.find(model);
  if (reference == reference_us_.end() || mutated(Mutation::kNoCalibration)) return 0;
  return reference->second;
}

int WorkerRegistry::count_for(const Target& target) const {
  size_t count = 0;
  for (const auto& [name, entry] : classes_)
    if (entry.target.can_run(target)) count += entry.serving.size();
  return static_cast<int>(count);
}

bool WorkerRegistry::serves(const Target& target, const WorkerId& except) const {
  return std::any_of(classes_.begin(), classes_.end(), [&](const auto& named) {
    const WorkerClass& entry = named.second;
    return entry.serving.size() > entry.serving.count(except) && entry.target.can_run(target);
  });
}

bool WorkerRegistry::serves_as(const Target& target, const WorkerId& id) const {
  const auto found = workers_.find(id);
  const std::vector<std::string> none;
  const std::vector<std::string>& lacks = found == workers_.end() ? none : found->second.lacks;
  return std::any_of(classes_.begin(), classes_.end(), [&](const auto& named) {
    const WorkerClass& entry = named.second;
    if (!entry.target.can_run(target)) return false;
    if (entry.complete > static_cast<int>(lacks.empty() && entry.serving.contains(id))) return true;
    return std::ranges::any_of(entry.serving, [&](const WorkerId& other) {
      return other != id && std::ranges::includes(lacks, workers_.at(other).lacks);
    });
  });
}

bool WorkerRegistry::has_all_templates(const Target& target) const {
  return std::ranges::any_of(classes_, [&](const auto& named) {
    return named.second.complete > 0 && named.second.target.can_run(target);
  });
}

// Whether `is_meant` says so of a worker that takes new work for `target`.
template <class Predicate>
bool WorkerRegistry::some_serves(const Target& target, const Predicate& is_meant) const {
  return std::ranges::any_of(classes_, [&](const auto& named) {
    return named.second.target.can_run(target) &&
           std::ranges::any_of(named.second.serving,
                               [&](const WorkerId& id) { return is_meant(id, workers_.at(id)); });
  });
}

bool WorkerRegistry::has_template(const Target& target, const std::string& name) const {
  return some_serves(target, [&](const WorkerId&, const Worker& worker) {
    return std::ranges::find(worker.lacks, needed_template(name)) == worker.lacks.end();
  });
}

// The same of those that build for it.
template <class Predicate>
bool WorkerRegistry::some_builds(const Target& target, const Predicate& is_meant) const {
  return std::ranges::any_of(builder_classes_, [&](const auto& named) {
    return can_build(named.second.target, target) &&
           std::ranges::any_of(named.second.builders, [&](const WorkerId& id) {
             return is_meant(id, workers_.at(id).lacks);
           });
  });
}

bool WorkerRegistry::has_builder(const Target& target, const std::string& template_name,
                                 const WorkerId& except) const {
  return some_builds(target, [&](const WorkerId& id, const std::vector<std::string>& lacks) {
    return id != except && std::ranges::find(lacks, template_name) == lacks.end();
  });
}

bool WorkerRegistry::has_complete_builder(const Target& target) const {
  return some_builds(
      target, [](const WorkerId&, const std::vector<std::string>& lacks) { return lacks.empty(); });
}

bool WorkerRegistry::tries_built(const Target& target, const WorkerId& instead_of) const {
  const auto except = workers_.find(instead_of);
  return some_serves(target, [&](const WorkerId& id, const Worker& worker) {
    return id != instead_of && worker.builds &&
           (except == workers_.end() || std::ranges::includes(except->second.lacks, worker.lacks));
  });
}

bool WorkerRegistry::has_another_builder(const Target& target, const WorkerId& except) const {
  return some_builds(target, [&](const WorkerId& id, const std::vector<std::string>& lacks) {
    return id != except && lacks.empty();
  });
}

bool WorkerRegistry::builds_apart(const Target& target) const {
  std::set<WorkerId> with_device, without;
  for (const auto& [name, entry] : builder_classes_)
    if (can_build(entry.target, target))
      for (const WorkerId& id : entry.builders)
        (workers_.at(id).only_builds() ? without : with_device).insert(id);
  const bool others =
      target.backend == Backend::kCpu ? !without.empty() : with_device.size() + without.size() > 1;
  return others && (tries_built(target) || mutated(Mutation::kBuildForNobody)) &&
         has_complete_builder(target);
}

int WorkerRegistry::only_builders(const Target& target) const {
  std::set<WorkerId> ids;
  for (const auto& [name, entry] : builder_classes_)
    if (entry.only > 0 && can_build(entry.target, target))
      for (const WorkerId& id : entry.builders)
        if (workers_.at(id).only_builds()) ids.insert(id);
  return static_cast<int>(ids.size());
}

void WorkerRegistry::built_badly(int64_t now_ms, const WorkerId& id) {
  Worker* worker = find(id);
  if (worker == nullptr) return;
  worker->health.built_badly(now_ms);
  judge(id, *worker);
}

bool WorkerRegistry::has_library(const Target& target, const LibraryVersion& library,
                                 const WorkerId& except) const {
  return some_serves(target, [&](const WorkerId& id, const Worker& worker) {
    const std::string* version = worker.version_of(library.name);
    return id != except && version != nullptr &&
           (library.version.empty() || library.version == *version);
  });
}

bool WorkerRegistry::has_any_library(const Target& target) const {
  return some_serves(
      target, [](const WorkerId&, const Worker& worker) { return !worker.libraries.empty(); });
}

bool WorkerRegistry::times_finals(const Target& target) const {
  if (screeners_.empty()) return serves(target);
  return some_serves(
      target, [](const WorkerId&, const Worker& worker) { return worker.standing.times_finals; });
}

void WorkerRegistry::set_key(const WorkerId& id, const std::string& owner,
                             const Standing& standing) {
  Worker* worker = find(id);
  if (worker == nullptr) return;
  worker->owner = owner;
  worker->standing = standing;
  if (standing.times_finals)
    screeners_.erase(id);
  else
    screeners_.insert(id);
}

bool WorkerRegistry::saw(const Target& target) const {
  return std::any_of(classes_.begin(), classes_.end(),
                     [&](const auto& named) { return named.second.target.can_run(target); });
}

std::vector<WorkerId> WorkerRegistry::silent_since(int64_t time_ms) const {
  std::vector<WorkerId> silent;
  for (const auto& [id, worker] : workers_)
    if (worker.report_ms <= time_ms) silent.push_back(id);
  return silent;
}

Target WorkerRegistry::resolve(const Target& target) const {
  if (!names_no_device(target)) return target;
  const Target* found = nullptr;
  for (const auto& [id, worker] : workers_) {
    if (!worker.takes_work() || !worker.target.can_run(target)) continue;
    const bool better =
        found == nullptr || (found->isa != target.isa && worker.target.isa == target.isa);
    if (better) found = &worker.target;
  }
  if (found == nullptr) return target;
  Target resolved = *found;
  resolved.isa = target.isa;
  return resolved;
}

std::string WorkerRegistry::targets() const {
  std::map<std::string, int> names;  // with how many in quarantine
  for (const auto& [id, worker] : workers_)
    if (!worker.only_builds()) names[describe(worker.target)] += worker.quarantined;
  std::string text;
  for (const auto& [name, quarantined] : names) {
    text += (text.empty() ? "" : ", ") + name;
    if (quarantined > 0) text += fmt::format(" [{} in quarantine]", quarantined);
  }
  return text.empty() ? "none" : text;
}

}  // namespace kiln
