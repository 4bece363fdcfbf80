// PrintedTemplate: a template that prints source from a struct of decisions (decisions.h), for one
// backend and one family of workloads. All are but those of
// custom calls and of libraries.
#pragma once

#include <optional>
#include <string_view>

#include "compiler_core/kernels/analysis/dynamic_candidates.h"
#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

class PrintedTemplateBase : public KernelTemplate {
 public:
  int version() const final { return version_; }
  bool covers(const Workload& workload, const Target& target) const final;
  Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                const Target& target) const final;

 protected:
  // PrintedTemplate::Parts says what each means.
  struct Covered {
    Backend backend;
    Family family;
    std::string_view isa;
    Status (*check)(const Workload&);
  };
  PrintedTemplateBase(int version, const Covered& covered) : version_(version), covered_(covered) {}

 private:
  virtual Result<Source> print(const Graph& graph, const Schedule& schedule,
                               const Target& target) const = 0;

  const int version_;
  const Covered covered_;
};

template <class Decisions>
class PrintedTemplate final : public PrintedTemplateBase {
 public:
  struct Parts {
    int version = 1;
    Backend backend = Backend::kCpu;
    Family family = Family::kPointwise;
    std::string_view isa = {};  // the only one; empty: each for which this build prints kernels
    // Asked of each workload of the family. Without it, all are covered.
    Status (*check)(const Workload&) = nullptr;
    FixedCandidates candidates = nullptr;  // of workloads without symbols
    // One of the two.
    Result<Source> (*print)(const Graph&, const Decisions&) = nullptr;
    Result<Source> (*print_for)(const Graph&, const Decisions&, const Target&) = nullptr;
    // A candidate as it becomes where sizes have symbols: nullopt when it cannot be printed
    // then. Without it, candidates stay as they are.
    std::optional<Decisions> (*adapt)(const Graph&, Decisions) = nullptr;
    // Made of the first candidate where adapt() leaves none.
    Decisions (*fallback)(const Graph&, Decisions) = nullptr;
    // Other schedules for workloads with symbols, made of the adapted ones.
    std::vector<Schedule> (*extend)(const Graph&, std::vector<Schedule>) = nullptr;
    // Without it, as of any template.
    double (*expected_efficiency)(const Workload&) = nullptr;
  };
  explicit PrintedTemplate(Parts parts)
      : PrintedTemplateBase(parts.version, {parts.backend, parts.family, parts.isa, parts.check}),
        parts_(parts) {}

  std::string_view name() const override { return Decisions::kTemplate; }

  double expected_efficiency(const Workload& workload, const Target& target) const override {
    return parts_.expected_efficiency ? parts_.expected_efficiency(workload)
                                      : KernelTemplate::expected_efficiency(workload, target);
  }

  Result<std::vector<Schedule>> candidates(const Workload& workload,
                                           const Target& target) const override {
    const Graph& graph = workload.graph;
    TRY(std::vector<Schedule> chosen,
        candidates_at_measured_sizes(workload, target, parts_.candidates));
    if (graph.symbols().empty() || parts_.adapt == nullptr || chosen.empty()) return chosen;
    std::vector<Schedule> space;
    for (const Schedule& schedule : chosen) {
      TRY(const Decisions decisions, decisions_of<Decisions>(schedule));
      if (const std::optional<Decisions> adapted = parts_.adapt(graph, decisions))
        add_unless_present(space, to_schedule(*adapted));
    }
    if (space.empty()) {
      TRY(const Decisions first, decisions_of<Decisions>(chosen[0]));
      space.push_back(to_schedule(parts_.fallback ? parts_.fallback(graph, first) : first));
    }
    return parts_.extend ? parts_.extend(graph, std::move(space)) : space;
  }

 private:
  Result<Source> print(const Graph& graph, const Schedule& schedule,
                       const Target& target) const override {
    TRY(const Decisions decisions, decisions_of<Decisions>(schedule));
    return parts_.print_for ? parts_.print_for(graph, decisions, target)
                            : parts_.print(graph, decisions);
  }

  const Parts parts_;
};

}  // namespace kiln
