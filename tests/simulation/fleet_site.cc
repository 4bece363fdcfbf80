#include "tests/simulation/fleet_site.h"

#include <fmt/core.h>

#include <algorithm>

#include "tests/simulation/random.h"

namespace kiln::simulation {
namespace {

// How a family's candidates differ from the mean, and how many of ten kernels are of it.
struct FamilyCosts {
  Family family;
  int share;
  double candidates, build, device;
};
constexpr FamilyCosts kFamilies[] = {{Family::kPointwise, 3, 0.6, 0.6, 0.7},
                                     {Family::kRowReduction, 1, 0.7, 0.8, 0.8},
                                     {Family::kMatmul, 3, 1.4, 1.1, 0.9},
                                     {Family::kConvolution, 3, 1.1, 1.4, 1.5}};

const FamilyCosts& family_of(int number) {
  int at = number % 10;
  for (const FamilyCosts& costs : kFamilies)
    if ((at -= costs.share) < 0) return costs;
  return kFamilies[0];
}

}  // namespace

Target fleet_target() {
  return {Backend::kCuda, "sm_90a", "device", 132, "cuda-13"};
}

WorkerReport fleet_report(const std::string& name, int compilers, bool only_builds, int slots) {
  WorkerReport report;
  report.worker = name;
  report.target = only_builds ? Target{Backend::kCuda, "", "", 0, ""} : fleet_target();
  report.toolkit = "nvrtc";
  report.slots = only_builds ? 0 : std::min(compilers, slots);
  report.builds = true;
  report.compilers = compilers;
  if (only_builds) report.builds_for = {Target{Backend::kCuda, "sm_90a", "", 0, "cuda-13"}};
  return report;
}

FleetKernel::FleetKernel(int number, double candidates, const FleetCosts& costs) : number_(number) {
  Random random(static_cast<uint64_t>(number));
  const FamilyCosts& family = family_of(number);
  family_ = family.family;
  const auto about = [&](double ms) { return us_of(ms * (0.4 + 1.2 * random.fraction())); };
  const double device = family.device * (0.4 + 1.2 * random.fraction());
  open_us_ = about(costs.open * family.device);
  final_us_ = us_of(costs.final_one * device);
  const int count = std::max(
      2, static_cast<int>(candidates * family.candidates * (0.4 + 1.2 * random.fraction())));
  for (int i = 0; i < count; ++i) {
    build_us_.push_back(about(costs.build * family.build));
    try_us_.push_back(about(costs.try_one * device));
    times_us_.push_back(100 + 100 * random.fraction());
    spills_.push_back(i > 0 && random.chance(costs.spilling));
    twins_.push_back(i > 0 && random.chance(costs.twins) ? i - 1 : i);
    if (spills_.back()) try_us_.back() *= 3;  // it is slow
  }
  Random others(static_cast<uint64_t>(number) + 1'000'000);  // the draws before stay as they are
  for (int i = 1; i < count; ++i) reserves_ += others.chance(costs.reserves);
  for (int i = 0; i < count; ++i)
    schedules_.push_back(
        {i < count - reserves_ ? "cuda.fleet" : "cuda.reserve", {{"tile", int64_t{i}}}});
}

FleetKernel::FleetKernel(int number, const RecordedKernel& recorded, bool has_variants)
    : number_(number),
      open_us_(us_of(recorded.open_ms)),
      final_us_(us_of(recorded.final_ms)),
      has_variants_(has_variants) {
  for (const RecordedKernel::Candidate& candidate : recorded.candidates) {
    twins_.push_back(size());
    build_us_.push_back(us_of(candidate.build_ms));
    try_us_.push_back(us_of(candidate.try_ms));
    spills_.push_back(candidate.us <= 0);
    times_us_.push_back(candidate.us > 0 ? candidate.us : 1e4);
    schedules_.push_back(Schedule::parse(candidate.schedule).value());
  }
}

PlannedKernel FleetKernel::planned() const {
  PlannedKernel kernel;
  kernel.workload = Digest::of(fmt::format("workload {}", number_));
  kernel.key = Digest::of(fmt::format("kernel {}", number_));
  kernel.family = family_;
  kernel.workload_text = "graph";
  if (reserves_ > 0) kernel.reserves = {"cuda.reserve"};
  kernel.schedules = schedules_;
  kernel.has_variants = has_variants_;
  return kernel;
}

bool FleetSite::Held::has(Progress progress) const {
  return std::ranges::find(candidates, progress) != candidates.end();
}

void FleetSite::start(std::vector<Job> jobs) {
  for (Job& job : jobs) {
    const uint64_t lease = job.lease;
    const size_t count = job.candidates.size();
    begin(leases_.emplace(lease, Held{std::move(job), std::vector(count, Progress::kCompiling)})
              .first->second);
  }
  compile_next();
  use_device();
}

// ---- Compilers ----

void FleetSite::begin(Held& held) {
  for (size_t i = 0; i < held.candidates.size(); ++i) {
    if (!held.job.candidates[i].binary.empty())
      held.candidates[i] = Progress::kReady;
    else
      to_compile_.emplace_back(held.job.lease, i);
  }
}

void FleetSite::compile_next() {
  while (free_ > 0 && !to_compile_.empty()) {
    const auto [lease, candidate] = to_compile_.front();
    to_compile_.pop_front();
    const auto held = leases_.find(lease);
    if (held == leases_.end()) continue;
    const Job& job = held->second.job;
    const int64_t us = world_.kernel(job.kernel_key).build_us(job.candidates[candidate].index);
    --free_;
    ++figures_.builds;
    figures_.compile_us += us;
    world_.after(us, [this, lease = lease, candidate = candidate] { compiled(lease, candidate); });
  }
}

void FleetSite::compiled(uint64_t lease, size_t candidate) {
  ++free_;
  figures_.last_build_us = world_.now_us();
  const auto found = leases_.find(lease);
  if (found != leases_.end()) {
    Held& held = found->second;
    callbacks_.stepped(lease);
    held.candidates[candidate] = Progress::kReady;
    if (held.job.kind == Job::Kind::kBuild) {
      finish(held, candidate);
      leases_.erase(lease);  // of one candidate
    }
  }
  compile_next();
  use_device();
}

// ---- The device ----

// As JobRunner does: stays with a job while something of it is ready; a job that waits for its
// compilers gives way to one that need not.
void FleetSite::use_device() {
  if (device_busy_) return;
  JobEntry* chosen = nullptr;
  if (const auto current = leases_.find(current_);
      current != leases_.end() && current->second.has(Progress::kReady))
    chosen = &*current;
  if (chosen == nullptr) chosen = most_ready();
  const bool waits = chosen == nullptr && std::ranges::any_of(leases_, [](const JobEntry& entry) {
                       return entry.second.job.kind != Job::Kind::kBuild;
                     });
  account_wait();
  if (waits) waits_since_us_ = world_.now_us();
  if (chosen != nullptr) try_next(*chosen);
}

void FleetSite::account_wait() {
  if (waits_since_us_ >= 0) figures_.waited_us += world_.now_us() - waits_since_us_;
  waits_since_us_ = -1;
}

FleetSite::JobEntry* FleetSite::most_ready() {
  JobEntry* some = nullptr;
  for (JobEntry& entry : leases_) {
    const Held& held = entry.second;
    if (held.job.kind == Job::Kind::kBuild || !held.has(Progress::kReady)) continue;
    if (!held.has(Progress::kCompiling)) return &entry;
    if (some == nullptr) some = &entry;
  }
  return some;
}

int64_t FleetSite::open_us(const Digest& kernel) {
  const auto known = std::ranges::find(open_, kernel);
  if (known != open_.end()) {
    open_.splice(open_.begin(), open_, known);
    return 0;
  }
  open_.push_front(kernel);
  if (std::ssize(open_) > costs_.workloads_held) open_.pop_back();
  ++figures_.opens;
  return world_.kernel(kernel).open_us();
}

// What spills is tried last.
size_t FleetSite::next_of(const Held& held) const {
  const FleetKernel& kernel = world_.kernel(held.job.kernel_key);
  size_t first = held.candidates.size();
  for (size_t i = 0; i < held.candidates.size(); ++i) {
    if (held.candidates[i] != Progress::kReady) continue;
    if (!kernel.spills(held.job.candidates[i].index)) return i;
    first = std::min(first, i);
  }
  return first;
}

// Nothing for what spills where something that does not is right, and for a binary that was tried.
int64_t FleetSite::screen_us(Held& held, size_t candidate) {
  const FleetKernel& kernel = world_.kernel(held.job.kernel_key);
  const int index = held.job.candidates[candidate].index;
  if (kernel.spills(index) && held.right_without_spills) {
    held.pruned.insert(candidate);
    return 0;
  }
  if (!kernel.spills(index)) held.right_without_spills = true;
  if (!known_.emplace(held.job.kernel_key, kernel.twin_of(index)).second) return 0;
  return kernel.try_us(index);
}

void FleetSite::try_next(JobEntry& chosen) {
  auto& [lease, held] = chosen;
  const FleetKernel& kernel = world_.kernel(held.job.kernel_key);
  int64_t us = open_us(held.job.kernel_key);
  std::vector<size_t> candidates;
  if (held.job.kind == Job::Kind::kFinal) {
    for (size_t i = 0; i < held.candidates.size(); ++i) candidates.push_back(i);
    us += kernel.final_us() * std::ssize(candidates);
  } else {
    candidates.push_back(next_of(held));
    us += held.job.kind == Job::Kind::kScreen ? screen_us(held, candidates.front()) : us_of(2);
  }
  current_ = lease;
  device_busy_ = true;
  figures_.busy_us += us;
  if (figures_.first_us == 0) figures_.first_us = world_.now_us();
  world_.after(
      us, [this, lease = lease, candidates = std::move(candidates)] { tried(lease, candidates); });
}

void FleetSite::tried(uint64_t lease, const std::vector<size_t>& candidates) {
  device_busy_ = false;
  figures_.last_us = world_.now_us();
  const auto found = leases_.find(lease);
  if (found != leases_.end()) {
    Held& held = found->second;
    for (const size_t i : candidates) {
      held.candidates[i] = Progress::kFinished;
      callbacks_.stepped(lease);
      ++figures_.tried;
      finish(held, i);
    }
    if (!held.has(Progress::kReady) && !held.has(Progress::kCompiling)) return job_over(lease);
  }
  use_device();
}

void FleetSite::job_over(uint64_t lease) {
  ++figures_.leases;
  leases_.erase(lease);
  device_busy_ = true;
  world_.after(us_of(costs_.calibration), [this] {
    device_busy_ = false;
    use_device();
  });
}

void FleetSite::finish(const Held& held, size_t candidate) {
  const Job& job = held.job;
  const CandidateJob& tried = job.candidates[candidate];
  const FleetKernel& kernel = world_.kernel(job.kernel_key);
  CandidateResult result;
  result.lease = job.lease;
  result.epoch = job.epoch;
  result.kernel_key = job.kernel_key;
  result.index = tried.index;
  result.compiled = tried.binary.empty();
  if (held.pruned.contains(candidate)) {
    result.verdict = Verdict::kCompileFailed;
    return callbacks_.finished(std::move(result));
  }
  const double us = kernel.time_of(kernel.twin_of(tried.index));
  if (job.kind != Job::Kind::kBuild) {
    result.measurement.samples_us.assign(job.kind == Job::Kind::kFinal ? 40 : 20, us);
    const double ms = static_cast<double>(kernel.try_us(tried.index)) / 1e3;
    result.verify_ms = 0.3 * ms;
    result.measure_ms = 0.7 * ms;
  }
  if (tried.binary.empty()) {
    result.recipe_json = recipe_to_json(Recipe{});
    result.binary = fmt::format("{} {}", job.kernel_key.short_hex(), kernel.twin_of(tried.index));
    if (job.kind == Job::Kind::kBuild) result.local_bytes = kernel.spills(tried.index) ? 64 : 0;
    result.binary.resize(std::max(result.binary.size(), binary_bytes_), 'b');
  }
  callbacks_.finished(std::move(result));
}

}  // namespace kiln::simulation
