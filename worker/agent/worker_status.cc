#include "worker/agent/worker_status.h"

#include <algorithm>

namespace kiln {

void CandidateTally::count(const CandidateResult& result) {
  const auto verdict = std::ranges::find(kVerdicts, result.verdict);
  if (verdict != kVerdicts.end()) ++by_verdict[static_cast<size_t>(verdict - kVerdicts.begin())];
  if (result.compiled) ++compiled;
  const auto observe = [](Histogram& histogram, double ms) {
    if (ms > 0) histogram.observe(ms / 1000);
  };
  if (result.compiled) observe(compile, result.compile_ms);
  observe(verify, result.verify_ms);
  observe(measure, result.measure_ms);
}

}  // namespace kiln
