// Truth: what the simulated world is like: programs, their kernels, and how each candidate really
// behaves. Workers measure it (with noise), the checker knows it. Constant after construction.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "coordinator/core/events.h"
#include "tests/simulation/random.h"
#include "tests/simulation/scenario.h"

namespace kiln::simulation {

inline constexpr double kNoise = 0.02;             // of every measurement, to either side
inline constexpr double kCalibrationNoise = 0.01;  // of every reading of a calibration kernel

struct TrueCandidate {
  Schedule schedule;
  Verdict verdict = Verdict::kOk;
  double us = 0;
  bool dies_in_finals = false;  // kills its runner there, and nowhere else
};
struct TrueKernel {
  std::string name;
  std::vector<TrueCandidate> candidates;  // best guess first
  const TrueCandidate* find(const Schedule& schedule) const;
  const TrueCandidate* find(const std::string& schedule) const;
};
// One partition: which kernels it needs, and which of those each launch runs.
struct TruePartition {
  std::vector<int> kernels;
  std::vector<int> launches;  // positions in `kernels`; each is launched
  bool operator==(const TruePartition&) const = default;
};
struct TrueProgram {
  Digest graph;
  std::string graph_text;
  Target target;
  std::vector<TruePartition> partitions;  // the default one first; no two are alike
  bool supported = true;
};

class Truth {
 public:
  Truth(Random& random, const Scenario& scenario);

  const std::vector<TrueProgram>& programs() const { return programs_; }
  const TrueKernel& kernel(int index) const { return kernels_[index]; }
  Digest kernel_key(int kernel, const Target& target, Mode mode) const;
  // REQUIRES: kernel_key() gave it.
  const TrueKernel& by_key(const Digest& key) const { return *by_key_.at(key); }
  const TrueProgram& by_graph(const Digest& graph) const;
  // Which of `truth`'s partitions an answered program is, or nullptr. Without timing: the default
  // one.
  const TruePartition* partition_of(const TrueProgram& truth, const Program& program) const;
  // The outcome of compiling a candidate.
  static std::string binary(const Digest& kernel_key, const Schedule& schedule);

 private:
  std::vector<TrueKernel> kernels_;
  std::vector<TrueProgram> programs_;
  std::map<Digest, const TrueKernel*> by_key_;
};

Target target_v3();
Target target_v4();

}  // namespace kiln::simulation
