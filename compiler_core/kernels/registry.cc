#include "compiler_core/kernels/registry.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "compiler_core/base/check.h"

#include "compiler_core/kernels/analysis/repeated_values.h"
#include "compiler_core/kernels/attention/cpu_attention.h"
#include "compiler_core/kernels/attention/cuda_attention.h"
#include "compiler_core/kernels/column_reduction/cpu_column_reduction.h"
#include "compiler_core/kernels/column_reduction/cuda_column_reduction.h"
#include "compiler_core/kernels/convolution/cpu_convolution.h"
#include "compiler_core/kernels/convolution/cuda_convolution.h"
#include "compiler_core/kernels/convolution/cuda_depthwise.h"
#include "compiler_core/kernels/custom/custom.h"
#include "compiler_core/kernels/library/cublaslt_matmul.h"
#include "compiler_core/kernels/matmul/cpu_matmul.h"
#include "compiler_core/kernels/matmul/cuda_matmul.h"
#include "compiler_core/kernels/pointwise/cpu_pointwise.h"
#include "compiler_core/kernels/pointwise/cuda_pointwise.h"
#include "compiler_core/kernels/row_reduction/cpu_row_reduction.h"
#include "compiler_core/kernels/row_reduction/cuda_row_reduction.h"
#include "compiler_core/kernels/scan/cpu_scan.h"
#include "compiler_core/kernels/scan/cuda_scan.h"
#include "compiler_core/kernels/scatter/cpu_scatter.h"
#include "compiler_core/kernels/scatter/cuda_scatter.h"
#include "compiler_core/kernels/sort/cpu_sort.h"
#include "compiler_core/kernels/sort/cuda_sort.h"
#include "compiler_core/kernels/wgmma/wgmma_attention.h"
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"
#include "compiler_core/kernels/wgmma/wgmma_copied.h"
#include "compiler_core/kernels/wgmma/wgmma_gradient.h"
#include "compiler_core/kernels/wgmma/wgmma_matmul.h"
#include "compiler_core/kernels/wgmma/wgmma_picked.h"
#include "compiler_core/program/offered_kernel.h"

namespace kiln {
namespace {

constexpr size_t kMostSourceBytes = size_t{4} << 20;  // of one kernel
// Raised when offered kernels are launched otherwise. Their code is no template's of this build.
constexpr int kOfferedVersion = 1;

std::vector<const KernelTemplate*>& registered() {
  static std::vector<const KernelTemplate*> templates = {
      &cpu_pointwise(),
      &cpu_row_reduction(),
      &cpu_column_reduction(),
      &cpu_matmul(),
      &cpu_convolution(),
      &cpu_attention(),
      &cpu_scan(),
      &cpu_sort(),
      &cpu_scatter(),
      &cpu_row_update(),
      &cuda_pointwise(),
      &cuda_row_reduction(),
      &cuda_column_reduction(),
      &cuda_matmul(),
      &cuda_narrow_matmul(),
      &cuda_few_rows(),
      &wgmma_matmul(),
      &wgmma_copied(),
      &cuda_convolution(),
      &cuda_depthwise(),
      &wgmma_convolution(),
      &cuda_attention(),
      &cuda_few_rows_attention(),
      &wgmma_attention(),
      &cuda_scan(),
      &cuda_sort(),
      &cuda_scatter(),
      &cuda_row_update(),
      &custom_call(),
      &cublaslt_matmul(),
      &wgmma_picked(),
      &wgmma_gradient(),
      &cuda_depthwise_channels_last(),
      &cuda_joined_few_rows(),
      &wgmma_joined(),
  };
  return templates;
}

TemplateVersions listed(int (KernelTemplate::*version)() const) {
  TemplateVersions versions;
  for (const KernelTemplate* made : registered())
    versions.push_back({std::string(made->name()), (made->*version)()});
  versions.push_back({std::string(kOfferedTemplate), kOfferedVersion});
  std::ranges::sort(versions, {}, &TemplateVersion::name);
  return versions;
}

tl::unexpected<Error> no_kernels(const Workload& workload, const Target& target) {
  return fail(Code::kUnsupported, "no kernels of the family " +
                                      std::string(to_string(workload.family)) +
                                      " are written for " + target.to_string() +
                                      " (for cpu:x86-64-v3 and cuda:sm_80 and up they are)");
}

}  // namespace

const std::vector<const KernelTemplate*>& kernel_templates() {
  return registered();
}

void add_kernel_template(const KernelTemplate& made) {
  CHECK(find_kernel_template(made.name()) == nullptr, "two kernel templates have one name");
  registered().push_back(&made);
}

const KernelTemplate* find_kernel_template(std::string_view name) {
  for (const KernelTemplate* made : registered())
    if (made->name() == name) return made;
  return nullptr;
}

namespace {

// The candidates of one template.
struct RankedList {
  double best_time = 0;  // of its best guess, in multiples of the device's least time
  bool calls_library = false;
  std::vector<Schedule> schedules;
};

// A candidate is expected to be so much slower than the one before it in its list.
constexpr double kSlowdown = 1.05;

// Beside the one of Kiln's own templates that begins best, others bring what may come near it, and
// two candidates in any case, or one from far behind: expectations are rough. Returns the templates
// that are so far behind that records have no winner of theirs (tests/gpu/LOG.md, "Tuning").
// REQUIRES: one calls no library.
std::set<std::string> keep_near(std::vector<RankedList>& lists) {
  constexpr double kNear = 1.5, kReserve = 1.65, kFar = 3;
  std::set<std::string> far;
  double best = std::numeric_limits<double>::infinity();
  for (const RankedList& list : lists)
    if (!list.calls_library) best = std::min(best, list.best_time);
  for (RankedList& list : lists) {
    if (list.calls_library || list.best_time == best) continue;
    size_t near = 0;
    for (double time = list.best_time; time <= kNear * best; time *= kSlowdown) ++near;
    const size_t least = list.best_time > kFar * best ? 1 : 2;
    if (list.best_time > kReserve * best) far.insert(list.schedules.front().template_name);
    list.schedules.resize(std::min(list.schedules.size(), std::max(near, least)));
  }
  return far;
}

// By expected time; equal ones in the order of the lists.
std::vector<Schedule> merge(std::vector<RankedList> lists) {
  std::vector<size_t> next(lists.size(), 0);
  std::vector<Schedule> space;
  for (;;) {
    RankedList* first = nullptr;
    for (RankedList& list : lists) {
      const bool is_left = next[static_cast<size_t>(&list - lists.data())] < list.schedules.size();
      if (is_left && (first == nullptr || list.best_time < first->best_time)) first = &list;
    }
    if (first == nullptr) return space;
    size_t& at = next[static_cast<size_t>(first - lists.data())];
    space.push_back(std::move(first->schedules[at++]));
    first->best_time *= kSlowdown;
  }
}

// The candidates of each template that has some. Never empty of those that call no library.
Result<std::vector<RankedList>> ranked_lists(const Workload& workload, const Target& target,
                                             Libraries libraries) {
  constexpr double kLeastEfficiency = 1e-3;
  TRY_STATUS(check_repeated_values(workload.graph));
  std::vector<RankedList> lists;
  std::optional<Error> reason;
  bool has_own = false;
  for (const KernelTemplate* made : registered()) {
    const bool calls_library = !made->library().empty();
    if (calls_library && libraries == Libraries::kLeaveOut) continue;
    if (!made->covers(workload, target)) continue;
    if (auto list = made->candidates(workload, target)) {
      if (list->empty()) continue;
      has_own = has_own || !calls_library;
      lists.push_back({1 / std::max(made->expected_efficiency(workload, target), kLeastEfficiency),
                       calls_library, *std::move(list)});
    } else if (list.error().code != Code::kUnsupported) {
      return tl::make_unexpected(std::move(list.error()));
    } else if (!calls_library) {
      reason = std::move(list.error());
    }
  }
  if (has_own) return lists;
  if (reason) return tl::make_unexpected(*std::move(reason));
  return no_kernels(workload, target);
}

}  // namespace

Result<SearchSpace> ranked_space(const Workload& workload, const Target& target,
                                 Libraries libraries) {
  TRY(std::vector<RankedList> lists, ranked_lists(workload, target, libraries));
  SearchSpace space;
  space.far = keep_near(lists);
  space.schedules = merge(std::move(lists));
  return space;
}

Result<std::vector<Schedule>> search_space(const Workload& workload, const Target& target,
                                           Libraries libraries) {
  TRY(SearchSpace space, ranked_space(workload, target, libraries));
  return std::move(space.schedules);
}

Result<double> expected_slowness(const Workload& workload, const Target& target) {
  TRY(const std::vector<RankedList> lists, ranked_lists(workload, target, Libraries::kLeaveOut));
  return std::ranges::min(lists, {}, &RankedList::best_time).best_time;
}

std::string_view library_of(const Schedule& schedule) {
  const KernelTemplate* made = find_kernel_template(schedule.template_name);
  return made == nullptr ? std::string_view() : made->library();
}

Result<Buildable> lower(const Workload& workload, const Schedule& schedule, const Target& target) {
  const KernelTemplate* made = find_kernel_template(schedule.template_name);
  if (made == nullptr)
    return fail(Code::kUnsupported,
                "this build has no kernel template '" + schedule.template_name + "'");
  TRY_STATUS(check_repeated_values(workload.graph));
  if (!made->covers(workload, target)) {
    const bool covered = std::any_of(registered().begin(), registered().end(),
                                     [&](const auto* t) { return t->covers(workload, target); });
    if (!covered) return no_kernels(workload, target);
    return fail(Code::kInvalidArgument,
                schedule.template_name + " does not cover a workload of the family " +
                    std::string(to_string(workload.family)) + " on " + target.to_string());
  }
  auto instantiated = made->instantiate(workload, schedule, target);
  const Source* source = instantiated ? std::get_if<Source>(&*instantiated) : nullptr;
  if (source != nullptr && source->text.size() > kMostSourceBytes)
    return fail(Code::kUnsupported,
                fmt::format("a kernel of {} operations would have {} bytes of source, over {}: "
                            "compile its parts as programs of their own",
                            workload.graph.nodes().size(), source->text.size(), kMostSourceBytes));
  return instantiated;
}

Result<Source> lower_to_source(const Workload& workload, const Schedule& schedule,
                               const Target& target) {
  TRY(Buildable made, lower(workload, schedule, target));
  if (Source* source = std::get_if<Source>(&made)) return std::move(*source);
  return fail(Code::kUnsupported, schedule.template_name + " makes no source");
}

TemplateVersions template_versions() {
  return listed(&KernelTemplate::version);
}

TemplateVersions sound_versions() {
  return listed(&KernelTemplate::sound_since);
}

TemplateVersions covering_templates(const TemplateVersions& versions, const Workload& workload,
                                    const Target& target, Libraries libraries) {
  TemplateVersions covering;
  for (const TemplateVersion& each : versions) {
    const KernelTemplate* made = find_kernel_template(each.name);
    if (made == nullptr || !made->covers(workload, target)) continue;
    if (made->library().empty() || libraries == Libraries::kTake) covering.push_back(each);
  }
  return covering;
}

}  // namespace kiln
