// KernelTemplate: one way to make kernels for some workloads on some targets. Kiln's own kernels,
// a user's custom call and a library's function are each a template; the search space of a workload
// is the union over the templates that cover it (kernels/registry.h).
//
// A template is immutable and used by any number of threads at once. Templates live as long as the
// process; nobody owns a pointer to one.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "compiler_core/plan/workload.h"
#include "compiler_core/program/artifact.h"
#include "compiler_core/program/target.h"
#include "compiler_core/tune/schedule.h"

namespace kiln {

// Text for a compiler.
struct Source {
  std::string text;  // one self-contained translation unit, no system headers
  Recipe recipe;
};

// A schedule instantiated: text for a compiler, or a finished binary with its recipe.
using Buildable = std::variant<Source, Artifact>;

class KernelTemplate {
 public:
  KernelTemplate() = default;
  KernelTemplate(const KernelTemplate&) = delete;
  KernelTemplate& operator=(const KernelTemplate&) = delete;
  virtual ~KernelTemplate() = default;

  // "cuda.row_reduction": letters, digits, '_' and '.'. Persisted in schedules, never renamed.
  virtual std::string_view name() const = 0;

  // 1 and up. Raised when the text it prints, or what its decisions mean, changes: the winners of
  // workloads that it covers are stale then, and no others. Comments cost nothing.
  // tests/compiler_core/kernels/template_digests_test.cc holds it to the texts for its workloads.
  virtual int version() const = 0;

  // The oldest version whose binaries are right. Raised to version() when what it printed before
  // was wrong: winners of older versions are then not served while they are tuned again.
  virtual int sound_since() const { return 1; }

  // Whether candidates() may have any. Cheap: by backend and family, not by sizes.
  virtual bool covers(const Workload& workload, const Target& target) const = 0;

  // The library of the machine that its kernels call ("cublaslt"); empty: none.
  virtual std::string_view library() const { return {}; }

  // The part of the device's least time for the workload (tune/device_peak.h) that the best guess
  // is expected to reach, as measured for workloads like it: ranks templates, and rejects none.
  virtual double expected_efficiency(const Workload& /*workload*/, const Target& /*target*/) const {
    return 0.5;
  }

  // The legal schedules, best guess first; deterministic. Empty: none for these sizes.
  // kUnsupported says what the template lacks. REQUIRES: covers(workload, target).
  virtual Result<std::vector<Schedule>> candidates(const Workload& workload,
                                                   const Target& target) const = 0;

  // kUnsupported when the workload has something that no schedule of this template covers;
  // kInvalidArgument when the schedule is not one of its own, or its values are out of range.
  // REQUIRES: covers(workload, target).
  virtual Result<Buildable> instantiate(const Workload& workload, const Schedule& schedule,
                                        const Target& target) const = 0;
};

// A recipe with the graph's inputs and outputs; phases and memory are the template's to add.
Recipe argument_recipe(const Graph& graph);

}  // namespace kiln
