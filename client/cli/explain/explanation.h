// Explanation: what Kiln makes of a program, in the user's terms: its kernels in the order in which
// they are launched, where each comes from, what kept them apart, what they cost at least, and what
// is known about how they run. A value.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/passes/normalise.h"
#include "compiler_core/plan/kernel_cost.h"
#include "compiler_core/plan/plan.h"
#include "compiler_core/program/program.h"
#include "compiler_core/tune/device_peak.h"

namespace kiln::cli {

// A value that a launch leaves in memory for later ones.
struct StoredFor {
  std::string value;         // "f32[4,64]"
  std::vector<int> readers;  // launches
  std::string reason;
};

struct ExplainedLaunch {
  int kernel = 0;                             // index into Explanation::kernels
  std::vector<std::string> fused_ops;         // ATen ops in the program's order, with repetition
  std::vector<std::string> sources, modules;  // each once, in the program's order
  std::vector<std::string> inputs, outputs;   // "layers.0.weight f32[64,64]", "launch 3 f32[4,64]"
  std::vector<StoredFor> stored;
  KernelCost cost;
  double floor_us = 0;  // 0: the target's speed is not known
};

// A buffer of a call. Temporaries share the arena.
struct ExplainedBuffer {
  Buffer::Kind kind = Buffer::Kind::kTemporary;
  std::string value;                  // "l.weight f32[96,32]", "f32[24,96]"
  int64_t bytes = 0;                  // for the sizes that costs are computed for
  int64_t arena_offset = 0;           // of a temporary
  std::vector<int> writers, readers;  // launches
};

// The program before it is divided.
struct ExplainedGraph {
  int read_nodes = 0;                            // as the file has it
  int nodes = 0;                                 // normalised
  std::vector<std::pair<std::string, int>> ops;  // of the normalised, the most frequent first
};

struct ExplainedKernel {
  Workload workload;
  std::string schedule;  // empty: no schedule, and why
  std::string no_schedule;
  double time_us = 0;               // as measured when it was tuned; 0: not known
  bool known = false;               // the cache has it
  std::optional<LibraryCall> call;  // it is one, of this library at this version
  std::string own_schedule;         // of Kiln's own kernel beside a call
  double own_us = 0;                // 0: not known
  KernelReport report;              // of its tuning, when known
};

// One way to divide the program into kernels.
struct ExplainedAlternative {
  std::string name;  // as PlanAlternative's
  int launches = 0;
  double time_us = 0;  // of all launches by their kernels' times; 0: some are not known
};

struct Explanation {
  Digest graph;
  Target target;
  Mode mode = Mode::kDefault;
  std::string cache;  // "hit", "miss", "not asked", or why nobody answered
  std::vector<Symbol> symbols;
  std::vector<std::string> guards;
  std::vector<int64_t> sizes;  // what costs are computed for: the hints
  // Its partitions, the one by rules first, and the one that the rest is about.
  std::vector<ExplainedAlternative> alternatives;
  int alternative = 0;
  std::string alternative_reason;
  std::vector<ExplainedKernel> kernels;  // distinct
  std::vector<ExplainedLaunch> launches;
  ExplainedGraph summary;
  std::vector<ExplainedBuffer> buffers;
  int64_t arena_bytes = 0;
  int64_t temporary_bytes = 0;  // without an arena: the sum
  int64_t live_bytes = 0;       // that no arena can do without: the most alive at one launch
  DevicePeak peak;
};

// The peak of a CPU, from which a kernel's roofline bound is computed. For this machine's own,
// memory is measured by copying, which takes about a tenth of a second; for another one only the
// arithmetic is known, by this one's clock.
DevicePeak host_peak(const Target& target);

// `tuned`: programs that the cache has for this target and mode, none of them stale: this one, or
// others that share kernels with it. A kernel that none of them has gets its first guess. The
// partition is this program's where it is among them, else the one by rules. kUnsupported when the
// program has no plan.
Result<Explanation> explain(const ExportedProgram& program, const Target& target, Mode mode,
                            std::span<const Program> tuned, const DevicePeak& peak);

// `kiln explain --candidates`: each distinct kernel's schedules, best guess first, with the
// template that makes each and its version; tunes nothing. Fields of a kernel: workload, family,
// launches, candidates[] of {template, version, schedule}; reason, where there is no candidate.
nlohmann::ordered_json candidates_json(const std::string& file, const Explanation& explanation);
std::string candidates_text(const Explanation& explanation);

// `kiln explain --html`: all of it as one page that needs nothing else and can be mailed, with each
// kernel's candidates and source.
std::string explanation_page(const std::string& file, const Explanation& explanation);

// Results of an explanation as texts; 0 us is "?".
std::string time_text(double us);
// "mul x2, add": each ATen op as people say it, with repetitions counted.
std::vector<std::string> spoken_ops(const std::vector<std::string>& ops);
// "s0 from 1 to 128 (costs for 16)".
std::string symbol_text(const Explanation& explanation, size_t symbol);

nlohmann::ordered_json explanation_json(const std::string& file, const Explanation& explanation);
// At most 100 columns.
std::string explanation_text(const std::string& file, const Explanation& explanation);

}  // namespace kiln::cli
