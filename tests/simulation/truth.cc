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
    const bool other = scenario.mixed && i % 2 == 1;
    candidate.schedule = Schedule{other ? "cpu.vector" : "cpu.pointwise", {{"vector", i}}};
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
TruePartition make_alternative(Random& random, std::vector<int> kernels) {
  TruePartition partition{std::move(kernels), {}};
  for (int position = 0; position < std::ssize(partition.kernels); ++position)
    for (int64_t left = random.chance(0.3) ? 2 : 1; left > 0; --left)
      partition.launches.push_back(position);
  return partition;
}

std::vector<int> some_of(Random& random, int kernels) {
  std::vector<int> chosen;
  for (int k = 0; k < kernels; ++k)
    if (random.chance(0.5)) chosen.push_back(k);
  return chosen;
}

// Up to two others, which may share kernels with it.
void add_alternatives(Random& random, int kernels, TrueProgram& program) {
  if (program.partitions.front().kernels.empty() || random.chance(0.5)) return;
  for (int64_t left = random.between(1, 2); left > 0; --left) {
    TruePartition partition = make_alternative(random, some_of(random, kernels));
    const bool known = std::find(program.partitions.begin(), program.partitions.end(), partition) !=
                       program.partitions.end();
    if (!partition.kernels.empty() && !known) program.partitions.push_back(std::move(partition));
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
      program.partitions.push_back(make_alternative(random, std::move(own)));
    } else {
      program.partitions.push_back(make_alternative(random, some_of(random, kernels)));
      add_alternatives(random, kernels, program);
    }
    programs_.push_back(std::move(program));
  }
  for (int k = 0; k < kernels; ++k)
    for (const Target& target : {target_v3(), target_v4()})
      for (Mode mode : {Mode::kDefault, Mode::kMaxAutotune})
        by_key_[kernel_key(k, target, mode)] = &kernels_[k];
}

Digest Truth::kernel_key(int kernel, const Target& target, Mode mode) const {
  return kiln::kernel_key(Digest::of(kernels_[kernel].name), target, mode, {});
}

const TrueProgram& Truth::by_graph(const Digest& graph) const {
  for (const TrueProgram& program : programs_)
    if (program.graph == graph) return program;
  check_failed(__FILE__, __LINE__, "by_graph", "clients ask for programs there are");
}

const TruePartition* Truth::partition_of(const TrueProgram& truth, const Program& program) const {
  std::vector<int> launches;
  for (const Launch& launch : program.launches) launches.push_back(launch.kernel);
  for (const TruePartition& partition : truth.partitions) {
    if (program.mode == Mode::kDefault && &partition != &truth.partitions.front()) break;
    if (launches != partition.launches || program.kernels.size() != partition.kernels.size())
      continue;
    bool same = true;
    for (size_t i = 0; i < partition.kernels.size(); ++i)
      same = same && program.kernels[i].key ==
                         kernel_key(partition.kernels[i], program.target, program.mode);
    if (same) return &partition;
  }
  return nullptr;
}

std::string Truth::binary(const Digest& kernel_key, const Schedule& schedule) {
  return kernel_key.hex() + " " + schedule.to_string();
}

}  // namespace kiln::simulation
