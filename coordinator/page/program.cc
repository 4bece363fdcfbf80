#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "compiler_core/page/values.h"
#include "compiler_core/tune/device_peak.h"
#include "coordinator/page/views.h"

namespace kiln::page {
namespace {

std::string shape_of(const TensorSpec& spec) {
  std::string text = fmt::format("{}[", to_string(spec.dtype));
  for (size_t i = 0; i < spec.shape.size(); ++i)
    text += (i == 0 ? "" : ", ") + spec.shape[i].to_string();
  return text + "]";
}

std::string shapes_of(const std::vector<TensorSpec>& specs) {
  constexpr size_t kNamed = 6;
  std::string text;
  for (size_t i = 0; i < std::min(specs.size(), kNamed); ++i)
    text += (i == 0 ? "" : ", ") + shape_of(specs[i]);
  if (specs.size() > kNamed) text += fmt::format(", {} more", specs.size() - kNamed);
  return text;
}

// The bytes of all inputs and outputs; 0 where a size is known only at a call.
int64_t bytes_of(const Recipe& recipe) {
  double sum = 0;
  for (const auto* specs : {&recipe.inputs, &recipe.outputs})
    for (const TensorSpec& spec : *specs) {
      const auto elements = element_count(spec, {});
      if (!elements) return 0;
      sum += static_cast<double>(*elements) * static_cast<double>(size_of(spec.dtype));
    }
  return sum < 1e15 ? static_cast<int64_t>(sum) : 0;
}

// The least time that the device could take, in us; of the bytes alone where the workload is not
// known. 0: not known.
double bound_us(const Recipe& recipe, const WorkloadFacts& workload, const Target& target) {
  if (target.backend != Backend::kCuda) return 0;  // nobody knows that CPU's memory here
  if (workload.cost) return cuda_peak(target).floor_us(*workload.cost);
  const double gb_per_s = cuda_peak(target).gb_per_s;
  return gb_per_s > 0 ? static_cast<double>(bytes_of(recipe)) / gb_per_s * 1e-3 : 0;
}

std::string reporter(const Reporter& by) {
  if (by.worker.empty()) return "";
  return by.key.empty() ? by.worker : fmt::format("{} ({})", by.worker, by.key);
}

Value worker_link(const Reporter& by) {
  if (by.worker.empty()) return {};
  return linked(text(reporter(by)), "/workers?filter=" + encoded(by.worker));
}

Table kernels_of(const ProgramFacts& facts) {
  const Program& program = *facts.program;
  Table table{"kernels",
              "Kernels",
              {{"kernel", "Kernel"},
               {"family", "Family"},
               {"operations", "Fused operations"},
               {"sources", "Source lines"},
               {"launches", "Launches", true},
               {"tensors", "Inputs and outputs"},
               {"bytes", "Bytes", true},
               {"best_us", "Time", true},
               {"first_us", "First guess", true},
               {"bound_us", "Roofline bound", true},
               {"share", "Of the bound", true},
               {"measured", "Tried", true},
               {"rejected", "Rejected", true},
               {"schedule", "Schedule"},
               {"built_by", "Built by"}}};
  table.empty = "There are no kernels: every output is an input.";
  const Value unknown{"-", {}, {}, Tone::kQuiet};
  for (size_t i = 0; i < program.kernels.size(); ++i) {
    const ProgramKernel& kernel = program.kernels[i];
    const auto launches =
        std::ranges::count(program.launches, static_cast<int>(i), &Launch::kernel);
    const auto known = facts.workloads.find(kernel.key);
    const WorkloadFacts workload = known == facts.workloads.end() ? WorkloadFacts() : known->second;
    const int64_t moved = bytes_of(kernel.recipe);
    const double least_us = bound_us(kernel.recipe, workload, program.target);
    Value share = share_of(least_us, kernel.report.best_us);
    if (least_us <= 0) share = {"-", {}, {}, Tone::kQuiet};
    table.rows.push_back(
        {kernel_link(kernel.key), text(kernel.family),
         workload.operations.empty() ? unknown : text(workload.operations),
         workload.sources.empty() ? unknown : text(workload.sources),
         linked(count(launches), "#launches-heading"),
         text(shapes_of(kernel.recipe.inputs) + " to " + shapes_of(kernel.recipe.outputs)),
         moved > 0 ? bytes(moved) : quiet("at the call"), microseconds(kernel.report.best_us),
         microseconds(kernel.report.first_us), microseconds(least_us), std::move(share),
         linked(count(kernel.report.measured), "/kernel/" + kernel.key.hex()),
         linked(count(kernel.report.rejected), "/kernel/" + kernel.key.hex()),
         linked(code(kernel.schedule), "/kernel/" + kernel.key.hex() + "#source-heading"),
         worker_link(kernel.provenance.built)});
  }
  table.note =
      "The bound is the roofline's, at the memory speed and arithmetic that the device model is "
      "known for; a CPU's is not known here, and without its workload a kernel has that of its "
      "bytes alone. Operations and source lines are shown to operators, of kernels whose workload "
      "is kept; the lines are those of the model that a kernel was first tuned for.";
  return table;
}

Table launches_of(const Program& program, const Query& query) {
  Table table{"launches",
              "Launches, in order",
              {{"number", "No.", true},
               {"kernel", "Kernel"},
               {"family", "Family"},
               {"buffers", "Buffers"},
               {"time_us", "Time", true}}};
  table.empty = "None.";
  int64_t number = 0;
  for (const Launch& launch : program.launches) {
    const ProgramKernel& kernel = program.kernels[static_cast<size_t>(launch.kernel)];
    std::string buffers;
    for (const int each : launch.args)
      buffers += fmt::format("{}{}", buffers.empty() ? "" : " ", each);
    table.rows.push_back({count(number++), kernel_link(kernel.key), text(kernel.family),
                          code(buffers), microseconds(kernel.report.best_us)});
  }
  page_rows(table, query, "");
  return table;
}

Table cuts_of(const Program& program) {
  Table table{
      "cuts",
      "Ways to divide the graph",
      {{"name", "Way"}, {"launches", "Launches", true}, {"us", "Time", true}, {"taken", "Taken"}}};
  for (const TunedCut& cut : program.cuts)
    table.rows.push_back(
        {text(cut.name), count(cut.launches), microseconds(cut.us),
         toned(flag(cut.taken, "yes", "no"), cut.taken ? Tone::kGood : Tone::kQuiet)});
  return table;
}

Tiles tiles_of(const Program& program, const ListedProgram& stored, int64_t now_ms) {
  double us = 0;
  for (const Launch& launch : program.launches)
    us += program.kernels[static_cast<size_t>(launch.kernel)].report.best_us;
  Tiles tiles;
  tiles.tiles = {
      {"time_us", "All launches", microseconds(us), "the medians of their kernels together"},
      {"launch_count", "Launches",
       linked(count(std::ssize(program.launches)), "#launches-heading")},
      {"kernel_count", "Kernels", linked(count(std::ssize(program.kernels)), "#kernels-heading")},
      {"used_ms", "Last used", ago(now_ms, stored.used_ms)},
      {"pinned", "Pinned", flag(stored.pinned, "yes", "no")}};
  Act pin{stored.pinned ? "Unpin" : "Pin",
          {{"kind", stored.pinned ? "unpin" : "pin"}, {"program", stored.key.hex()}}};
  Act forget{"Forget",
             {{"kind", "forget"}, {"program", stored.key.hex()}},
             "Take this program back, with its kernels and their measurements? Clients drop it."};
  tiles.tiles.back().value.acts = {std::move(pin), std::move(forget)};
  return tiles;
}

Facts facts_of(const Program& program, int64_t now_ms) {
  Facts facts{"What it is"};
  facts.facts = {
      {"key", "Key", code(program.key.hex())},
      {"graph", "Graph", linked(code(program.graph.hex()), "/cache?filter=" + program.graph.hex())},
      {"target", "Made for", text(device_of(program.target))},
      {"mode", "Mode", text(to_string(program.mode))},
      {"made_at_ms", "Made", ago(now_ms, program.made_at_ms)},
      {"serial", "Serial", {std::to_string(program.serial), program.serial}},
      {"templates", "Templates' stamp", code(program.template_stamp.hex())},
      {"arena_bytes", "Memory for temporaries",
       program.arena_bytes.is_constant() ? bytes(program.arena_bytes.constant())
                                         : quiet("depends on the call's sizes")},
      {"symbols", "Sizes known at the call", count(std::ssize(program.symbols))},
      {"buffers", "Buffers", count(std::ssize(program.buffers))}};
  return facts;
}

// The parts of an entry's key that are not as they were asked for: "mode default, not max-autotune".
// A part that one of them leaves open is no difference.
std::vector<std::string> differences(const Target& target, Mode mode, const Program& entry) {
  std::vector<std::string> all;
  const auto compare = [&](const char* name, const std::string& there, const std::string& asked) {
    if (there != asked && !there.empty() && !asked.empty())
      all.push_back(fmt::format("{} {}, not {}", name, there, asked));
  };
  const auto units_of = [](const Target& of) {
    return of.units > 0 ? std::to_string(of.units) : "";
  };
  compare("target", entry.target.to_string(), target.to_string());
  compare("device", entry.target.device_model, target.device_model);
  compare("cores or SMs", units_of(entry.target), units_of(target));
  compare("toolkit", entry.target.toolkit, target.toolkit);
  compare("mode", std::string(to_string(entry.mode)), std::string(to_string(mode)));
  return all;
}

// `miss`: what was asked for; null where that is not known any more.
Table relatives_of(const ProgramFacts& facts, const Miss* miss, int64_t now_ms) {
  Table table{"relatives",
              "The nearest entries: the same graph",
              {{"program", "Program"},
               {"target", "Made for"},
               {"mode", "Mode"},
               {"used_ms", "Used", true},
               {"differs", "What differs"}}};
  table.empty =
      "The cache has nothing of this graph: its kernels may still be those of other programs, and "
      "`kiln explain MODEL --why-miss` compares each.";
  std::vector<std::pair<size_t, std::vector<Value>>> rows;  // the fewest differences first
  for (const ListedProgram& each : facts.relatives) {
    const auto program = program_from_json(each.manifest);
    if (each.key == facts.key || !program) continue;
    const auto differs = miss == nullptr ? std::vector<std::string>()
                                         : differences(miss->target, miss->mode, *program);
    rows.emplace_back(differs.size(),
                      std::vector<Value>{program_link(each.key), text(device_of(program->target)),
                                         text(to_string(program->mode)), ago(now_ms, each.used_ms),
                                         text(fmt::format("{}", fmt::join(differs, "; ")))});
  }
  std::ranges::stable_sort(rows, {}, [](const auto& row) { return row.first; });
  for (auto& [differing, row] : rows) table.rows.push_back(std::move(row));
  return table;
}

template <class T>
const T* find_key(const std::vector<T>& all, Digest T::*key, const Digest& wanted) {
  const auto found = std::ranges::find(all, wanted, key);
  return found == all.end() ? nullptr : &*found;
}

// `now` with nothing in its lists but this program.
Snapshot only(const Snapshot& now, const Digest& key) {
  Snapshot one;
  one.now_ms = now.now_ms;
  one.sees_details = now.sees_details;
  if (const auto* open = find_key(now.open, &OpenProgram::key, key)) one.open = {*open};
  if (const auto* miss = find_key(now.misses, &Miss::program, key)) one.misses = {*miss};
  return one;
}

}  // namespace

Document program(const Snapshot& now, const ProgramFacts& facts, const Query& query) {
  const Snapshot here = only(now, facts.key);
  if (!facts.program && here.open.empty() && here.misses.empty())
    return not_here("Program " + facts.key.short_hex(),
                    "There is no such program in the cache, none in flight, and none of that key "
                    "was missed lately.");
  Document page{"cache", "Program " + facts.key.short_hex()};
  if (!here.open.empty()) page.blocks.emplace_back(open_programs(here));
  if (facts.program) {
    page.blocks.emplace_back(tiles_of(*facts.program, *facts.stored, now.now_ms));
    page.blocks.emplace_back(facts_of(*facts.program, now.now_ms));
    page.blocks.emplace_back(kernels_of(facts));
    if (!facts.program->cuts.empty()) page.blocks.emplace_back(cuts_of(*facts.program));
    page.blocks.emplace_back(launches_of(*facts.program, query));
  } else {
    page.about = "It is not in the cache.";
  }
  if (!here.misses.empty()) page.blocks.emplace_back(missed_programs(here));
  if (!facts.program)
    page.blocks.emplace_back(
        relatives_of(facts, here.misses.empty() ? nullptr : &here.misses.front(), now.now_ms));
  return page;
}

}  // namespace kiln::page
