#include "compiler_core/kernels/analysis/dynamic_candidates.h"

#include <algorithm>
#include <bit>

#include "compiler_core/ir/affine.h"
#include "compiler_core/passes/specialise.h"

namespace kiln {
namespace {

constexpr int64_t kMostTileEntries = 1024;

}  // namespace

Result<Workload> sized_workload(const Workload& workload, std::span<const int64_t> sizes) {
  std::vector<Symbol> symbols;
  for (const int64_t size : sizes) symbols.push_back({{size, size}, size});
  TRY(Graph graph, specialise(workload.graph, symbols));
  return Workload{std::move(graph), workload.family, workload.digest};
}

int64_t at_measured_sizes(const Dim& size, std::span<const Symbol> symbols) {
  return size.evaluate(measured_sizes(symbols)).value_or(INT64_MAX);
}

bool has_whole_vectors(const Dim& size, int lanes) {
  return Dim::divide_exact(size, lanes).has_value();
}

int dynamic_tile(const Graph& graph, const Dim& entries, int chosen) {
  if (entries.is_constant()) return chosen;
  const int64_t most =
      std::clamp<int64_t>(upper_bound(entries, graph.symbols()), 64, kMostTileEntries);
  return std::max(chosen, static_cast<int>(std::bit_ceil(static_cast<uint64_t>(most))));
}

Result<std::vector<Schedule>> candidates_at_measured_sizes(const Workload& workload,
                                                           const Target& target,
                                                           FixedCandidates fixed) {
  if (workload.graph.symbols().empty()) return fixed(workload, target);
  TRY(const Workload sized, sized_workload(workload, measured_sizes(workload.graph.symbols())));
  return fixed(sized, target);
}

}  // namespace kiln
