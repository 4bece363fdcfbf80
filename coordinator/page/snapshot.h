// The views' data: copies of the coordinator's state, taken by its loop, and what was read from
// the store for one program, kernel or list. Plain values; times are Unix time in ms.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "cache/store.h"
#include "coordinator/core/open_program.h"
#include "coordinator/page/workload_facts.h"
#include "coordinator/status/history.h"
#include "coordinator/status/miss_log.h"
#include "coordinator/status/service_status.h"

namespace kiln::page {

struct Snapshot {
  int64_t now_ms = 0;
  StatusSnapshot status{};
  Store::Totals totals{};
  std::vector<Sample> seconds{}, minutes{};
  double busy_cpu_s = 0, busy_gpu_s = 0;        // History's
  std::map<std::string, std::string> strips{};  // the same
  std::vector<OpenProgram> open{};              // the oldest; Stats::flights_open counts all
  std::vector<Miss> misses{};                   // the latest first
  std::vector<AdminAct> acts_waiting{};         // the same: those that the store does not have yet
  int64_t acts = 0;                             // of this coordinator, so far

  // A compiler's words are for operators and the sender of the source: others see how they began.
  bool sees_details = false;
};

// One program, as far as anything is known of it.
struct ProgramFacts {
  Digest key;
  std::optional<ListedProgram> stored{};
  std::optional<Program> program{};             // that it says
  std::vector<ListedProgram> relatives{};       // of the same graph, for other targets and modes
  std::map<Digest, WorkloadFacts> workloads{};  // by kernel
};

struct KernelFacts {
  Digest key;
  std::optional<StoredKernel> stored{};
  std::vector<TuningRecord> records{};  // the oldest first
};

}  // namespace kiln::page
