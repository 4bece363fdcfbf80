#include "tests/simulation/truth.h"

#include <algorithm>

#include "compiler_core/base/check.h"

namespace kiln::simulation {
namespace {

Target target_of(const char* isa) {
  Target target;
  target.isa = isa;
  return target;
}

TrueKernel make_kernel(Random& random, const Scenario& scenario, int number) {
  TrueKernel kernel;
  kernel.name = "kernel" + std::to_string(number);
  const auto size = scenario.crowded() ? random.between(6, 16) : random.between(1, 9);
  const bool hopeless = random.chance(0.08);
  for (int i = 0; i < size; ++i) {
    TrueCandidate candidate;
    candidate.schedule = Schedule{"cpu.pointwise", {{"vector", i}}};
    candidate.us = static_cast<double>(random.between(100, 180));
    if (hopeless || random.chance(0.2))
      candidate.verdict = random.chance(0.5) ? Verdict::kCompileFailed : Verdict::kWrongResult;
    else if (random.chance(0.04))
      candidate.verdict = Verdict::kRunnerDied;  // whatever runs it
    // By its time: a draw of its own would change the history of every seed.
    candidate.dies_in_finals = candidate.verdict == Verdict::kOk && candidate.us == 103;
    kernel.candidates.push_back(std::move(candidate));
  }
  return kernel;
}

// Some kernel is launched more than once, as equal layers are.
TrueWay make_way(Random& random, std::vector<int> kernels) {
  TrueWay way{std::move(kernels), {}};
  for (int position = 0; position < std::ssize(way.kernels); ++position)
    for (int64_t left = random.chance(0.3) ? 2 : 1; left > 0; --left)
      way.launches.push_back(position);
  return way;
}

std::vector<int> some_of(Random& random, int kernels) {
  std::vector<int> chosen;
  for (int k = 0; k < kernels; ++k)
    if (random.chance(0.5)) chosen.push_back(k);
  return chosen;
}

// Up to two others, which may share kernels with it.
void add_ways(Random& random, int kernels, TrueProgram& program) {
  if (program.ways.front().kernels.empty() || random.chance(0.5)) return;
  for (int64_t left = random.between(1, 2); left > 0; --left) {
    TrueWay way = make_way(random, some_of(random, kernels));
    const bool known =
        std::find(program.ways.begin(), program.ways.end(), way) != program.ways.end();
    if (!way.kernels.empty() && !known) program.ways.push_back(std::move(way));
  }
}

}  // namespace

Target target_v3() {
  return target_of("x86-64-v3");
}
Target target_v4() {
  return target_of("x86-64-v4");
}

const TrueCandidate* TrueKernel::find(const Schedule& schedule) const {
  for (const TrueCandidate& candidate : candidates)
    if (candidate.schedule == schedule) return &candidate;
  return nullptr;
}

const TrueCandidate* TrueKernel::find(const std::string& schedule) const {
  for (const TrueCandidate& candidate : candidates)
    if (candidate.schedule.to_string() == schedule) return &candidate;
  return nullptr;
}

Truth::Truth(Random& random, const Scenario& scenario) {
  const bool large = scenario.crowded();
  const int kernels = static_cast<int>(large ? 24 : random.between(1, 5));
  for (int i = 0; i < kernels; ++i) kernels_.push_back(make_kernel(random, scenario, i));
  const int programs = static_cast<int>(large ? 6 : random.between(1, 4));
  for (int i = 0; i < programs; ++i) {
    TrueProgram program;
    program.graph_text = "graph" + std::to_string(i);
    program.graph = Digest::of(program.graph_text);
    program.target = large || random.chance(0.7) ? target_v3() : target_v4();
    program.supported = !random.chance(0.05);
    if (large) {
      std::vector<int> own;
      for (int k = i; k < kernels; k += programs) own.push_back(k);
      program.ways.push_back(make_way(random, std::move(own)));
    } else {
      program.ways.push_back(make_way(random, some_of(random, kernels)));
      add_ways(random, kernels, program);
    }
    programs_.push_back(std::move(program));
  }
  for (int k = 0; k < kernels; ++k)
    for (const Target& target : {target_v3(), target_v4()})
      for (Mode mode : {Mode::kDefault, Mode::kMaxAutotune})
        by_key_[kernel_key(k, target, mode)] = &kernels_[k];
}

Digest Truth::kernel_key(int kernel, const Target& target, Mode mode) const {
  return kiln::kernel_key(Digest::of(kernels_[kernel].name), target, mode, {}, {});
}

const TrueProgram& Truth::by_graph(const Digest& graph) const {
  for (const TrueProgram& program : programs_)
    if (program.graph == graph) return program;
  check_failed(__FILE__, __LINE__, "by_graph", "clients ask for programs there are");
}

const TrueWay* Truth::way_of(const TrueProgram& truth, const Program& program) const {
  std::vector<int> launches;
  for (const Launch& launch : program.launches) launches.push_back(launch.kernel);
  for (const TrueWay& way : truth.ways) {
    if (program.mode == Mode::kDefault && &way != &truth.ways.front()) break;
    if (launches != way.launches || program.kernels.size() != way.kernels.size()) continue;
    bool same = true;
    for (size_t i = 0; i < way.kernels.size(); ++i)
      same = same &&
             program.kernels[i].key == kernel_key(way.kernels[i], program.target, program.mode);
    if (same) return &way;
  }
  return nullptr;
}

std::string Truth::binary(const Digest& kernel_key, const Schedule& schedule) {
  return kernel_key.hex() + " " + schedule.to_string();
}

}  // namespace kiln::simulation
