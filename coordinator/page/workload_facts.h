// WorkloadFacts: what a kernel computes and what that takes, and where in the source of whoever asked
// for it first it stands. A store keeps the text of a workload beside its winner, unless an older Kiln
// stored it. Pure.
#pragma once

#include <optional>
#include <string>

#include "cache/store.h"
#include "compiler_core/plan/kernel_cost.h"

namespace kiln::page {

struct WorkloadFacts {
  std::string operations{};          // but views, each once: "matmul, add x2, erf"
  std::string sources{};             // "model.py:42 in forward, model.py:44 in forward"
  std::optional<KernelCost> cost{};  // none where sizes vary
};

// Nothing is known of a kernel whose workload was not stored.
WorkloadFacts workload_facts(const StoredKernel& kernel);

}  // namespace kiln::page
