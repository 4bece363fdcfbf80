#include "worker/jobs/known_evaluations.h"

namespace kiln {
namespace {

// The same binary is another kernel when it is launched another way.
Digest object_key(const Artifact& artifact) {
  return Hasher("kiln.object.v1")
      .add(artifact.digest.hex())
      .add(recipe_to_json(artifact.recipe))
      .finish();
}

}  // namespace

const KnownEvaluations::Known* KnownEvaluations::find(const Digest& kernel,
                                                      const Artifact& artifact) const {
  const auto known = kernels_.find(kernel);
  if (known == kernels_.end()) return nullptr;
  const auto found = known->second.find(object_key(artifact));
  return found == known->second.end() ? nullptr : &found->second;
}

void KnownEvaluations::remember(const Digest& kernel, const Artifact& artifact,
                                const Known& known) {
  if (!is_terminal(known.evaluation.verdict)) return;
  const auto [of_kernel, is_new] = kernels_.try_emplace(kernel);
  of_kernel->second.insert_or_assign(object_key(artifact), known);
  if (!is_new) return;
  order_.push_back(kernel);
  if (order_.size() <= kMaxKernels) return;
  kernels_.erase(order_.front());
  order_.pop_front();
}

}  // namespace kiln
