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
    candidate.schedule = Schedule{Family::kPointwise, {{"vector", i}}};
    candidate.us = static_cast<double>(random.between(100, 180));
    if (hopeless || random.chance(0.2))
      candidate.verdict = random.chance(0.5) ? Verdict::kCompileFailed : Verdict::kWrongResult;
    else if (random.chance(0.04))
      candidate.verdict = Verdict::kRunnerDied;  // whatever runs it
    kernel.candidates.push_back(std::move(candidate));
  }
  return kernel;
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
    for (int k = 0; k < kernels; ++k)
      if (large ? k % programs == i : random.chance(0.5)) program.kernels.push_back(k);
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

std::string Truth::binary(const Digest& kernel_key, const Schedule& schedule) {
  return kernel_key.hex() + " " + schedule.to_string();
}

}  // namespace kiln::simulation
