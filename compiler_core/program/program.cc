// The manifest is one JSON object; its field names are read by people and scripts and never
// renamed. "kiln_program" is the version of the format: a reader refuses versions it does not know.
#include "compiler_core/program/program.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "compiler_core/program/json_fields.h"
#include "compiler_core/program/offered_kernel.h"

namespace kiln {
namespace {

// 2: also library calls, fallbacks, listed arguments (tensor maps) and dependent launches. 3: also
// arguments that say whether an input is ready. 4: also outputs that keep elements of an input. 5: also
// kernels that let the next one start at once. A program is written in the oldest version that can say
// all of it, which older readers take.
constexpr int64_t kFormatVersion = 5;
constexpr int64_t kMaxIndex = 1 << 20;  // of a program's inputs, outputs, kernels and buffers

std::string_view to_string(Buffer::Kind kind) {
  switch (kind) {
    case Buffer::Kind::kInput:
      return "input";
    case Buffer::Kind::kOutput:
      return "output";
    case Buffer::Kind::kTemporary:
      return "temporary";
  }
  return "unknown";
}

Result<Buffer::Kind> parse_kind(std::string_view name) {
  for (auto kind : {Buffer::Kind::kInput, Buffer::Kind::kOutput, Buffer::Kind::kTemporary})
    if (name == to_string(kind)) return kind;
  return damaged("a buffer is of no known kind");
}

// ---- Writing ----

Json to_json(const Target& target) {
  Json json = {
      {"isa", target.to_string()}, {"model", target.device_model}, {"units", target.units}};
  if (!target.toolkit.empty()) json["toolkit"] = target.toolkit;  // no CPU target has one
  return json;
}

Json to_json(const KernelReport& report) {
  Json json = {{"candidates", report.candidates},
               {"measured", report.measured},
               {"rejected", report.rejected},
               {"best_us", report.best_us},
               {"first_us", report.first_us}};
  if (report.sentinel_us > 0) json["sentinel_us"] = report.sentinel_us;
  return json;
}

Json to_json(const Reporter& reporter) {
  Json json = {{"worker", reporter.worker}};
  if (!reporter.key.empty()) json["key"] = reporter.key;
  return json;
}

Json to_json(const Provenance& provenance) {
  Json json = {{"built", to_json(provenance.built)}};
  if (!provenance.measured.worker.empty()) json["measured"] = to_json(provenance.measured);
  for (const Reporter& each : provenance.confirmed) json["confirmed"].push_back(to_json(each));
  return json;
}

Json to_json(const ProgramKernel& kernel) {
  Json json = {{"workload", kernel.workload.hex()}, {"key", kernel.key.hex()},
               {"family", kernel.family},           {"schedule", kernel.schedule},
               {"blob", kernel.blob.hex()},         {"recipe", recipe_to_json_value(kernel.recipe)},
               {"report", to_json(kernel.report)}};
  if (kernel.fallback)
    json["fallback"] = {{"schedule", kernel.fallback->schedule},
                        {"recipe", recipe_to_json_value(kernel.fallback->recipe)},
                        {"us", kernel.fallback->us}};
  for (const TemplateVersion& each : kernel.templates) json["templates"][each.name] = each.version;
  if (!kernel.provenance.built.worker.empty()) json["provenance"] = to_json(kernel.provenance);
  if (!kernel.verified) json["verified"] = false;
  return json;
}

int64_t version_of(const Phase& phase) {
  if (phase.dependent_launch == DependentLaunch::kAtOnce) return 5;
  if (reads_early(phase)) return 3;
  const bool is_dependent = phase.dependent_launch != DependentLaunch::kNo;
  return phase.call || is_dependent || !phase.arguments.empty() ? 2 : 1;
}

int64_t version_of(const Recipe& recipe) {
  int64_t version = recipe.kept.empty() ? 1 : 4;
  for (const Phase& phase : recipe.phases) version = std::max(version, version_of(phase));
  return version;
}

int64_t version_of(const Program& program) {
  int64_t version = 1;
  for (const ProgramKernel& kernel : program.kernels)
    version =
        std::max({version, version_of(kernel.recipe),
                  kernel.fallback ? std::max<int64_t>(2, version_of(kernel.fallback->recipe)) : 1});
  return version;
}

Json to_json(const Buffer& buffer) {
  Json json = spec_to_json(buffer.spec);
  json["kind"] = to_string(buffer.kind);
  if (buffer.kind == Buffer::Kind::kTemporary)
    json["arena_offset"] = dim_to_json(buffer.arena_offset);
  else
    json["index"] = buffer.index;
  return json;
}

Json to_json(const Launch& launch) {
  Json json = {{"kernel", launch.kernel}, {"args", launch.args}};
  for (const Dim& dim : launch.dims) json["dims"].push_back(dim_to_json(dim));
  return json;
}

Json to_json(const ProgramSymbol& symbol) {
  return {{"min", symbol.min}, {"max", symbol.max}, {"hint", symbol.hint}};
}

Json to_json(const Guard& guard) {
  return {{"value", dim_to_json(guard.value)}, {"min", guard.min}, {"max", guard.max}};
}

Json to_json(const TunedCut& cut) {
  return {
      {"name", cut.name}, {"launches", cut.launches}, {"us", cut.us}, {"taken", cut.taken ? 1 : 0}};
}

// ---- Reading ----

Result<Target> target_from_json(const Json& json) {
  TRY(const std::string isa, string_field(json, "isa"));
  Result<Target> target = Target::parse(isa);
  if (!target) return damaged("its target is unknown");
  TRY(target->device_model, string_field(json, "model"));
  TRY(const int64_t units, int_field(json, "units", 0, kMaxIndex));
  target->units = static_cast<int>(units);
  if (json.contains("toolkit")) {
    TRY(target->toolkit, string_field(json, "toolkit"));
  }
  return target;
}

Result<KernelReport> report_from_json(const Json& json) {
  KernelReport report;
  for (auto [name, field] :
       {std::pair{"candidates", &report.candidates}, std::pair{"measured", &report.measured},
        std::pair{"rejected", &report.rejected}}) {
    TRY(const int64_t value, int_field(json, name, 0, INT32_MAX));
    *field = static_cast<int>(value);
  }
  TRY(report.best_us, number_field(json, "best_us"));
  TRY(report.first_us, number_field(json, "first_us"));
  if (json.contains("sentinel_us")) {
    TRY(report.sentinel_us, number_field(json, "sentinel_us"));
  }
  return report;
}

// An object's keys are in order, so the list is.
Result<TemplateVersions> templates_from_json(const Json& json) {
  TemplateVersions templates;
  for (const auto& [name, version] : json.items()) {
    TRY(const int64_t number, int_field(json, name.c_str(), 1, INT32_MAX));
    templates.push_back({name, static_cast<int>(number)});
  }
  return templates;
}

Result<Reporter> reporter_from_json(const Json& json) {
  Reporter reporter;
  TRY(reporter.worker, string_field(json, "worker"));
  if (json.contains("key")) {
    TRY(reporter.key, string_field(json, "key"));
  }
  return reporter;
}

Result<Provenance> provenance_from_json(const Json& json) {
  Provenance provenance;
  TRY(const Json* built, object_field(json, "built"));
  TRY(provenance.built, reporter_from_json(*built));
  if (json.contains("measured")) {
    TRY(const Json* measured, object_field(json, "measured"));
    TRY(provenance.measured, reporter_from_json(*measured));
  }
  if (!json.contains("confirmed")) return provenance;
  TRY(const Json* confirmed, array_field(json, "confirmed"));
  for (const Json& item : *confirmed) {
    TRY(Reporter reporter, reporter_from_json(item));
    provenance.confirmed.push_back(std::move(reporter));
  }
  return provenance;
}

Result<ProgramKernel> kernel_from_json_value(const Json& json) {
  ProgramKernel kernel;
  TRY(kernel.workload, digest_field(json, "workload"));
  TRY(kernel.key, digest_field(json, "key"));
  TRY(kernel.family, string_field(json, "family"));
  TRY(kernel.schedule, string_field(json, "schedule"));
  TRY(kernel.blob, digest_field(json, "blob"));
  TRY(const Json* recipe, object_field(json, "recipe"));
  TRY(kernel.recipe, recipe_from_json_value(*recipe));
  TRY(const Json* report, object_field(json, "report"));
  TRY(kernel.report, report_from_json(*report));
  if (json.contains("templates")) {
    TRY(const Json* templates, object_field(json, "templates"));
    TRY(kernel.templates, templates_from_json(*templates));
  }
  if (json.contains("provenance")) {
    TRY(const Json* provenance, object_field(json, "provenance"));
    TRY(kernel.provenance, provenance_from_json(*provenance));
  }
  if (json.contains("verified")) {
    if (!json["verified"].is_boolean()) return damaged("'verified' is no bool");
    kernel.verified = json["verified"].get<bool>();
  }
  if (!json.contains("fallback")) return kernel;
  TRY(const Json* fallback, object_field(json, "fallback"));
  kernel.fallback.emplace();
  TRY(kernel.fallback->schedule, string_field(*fallback, "schedule"));
  TRY(const Json* own, object_field(*fallback, "recipe"));
  TRY(kernel.fallback->recipe, recipe_from_json_value(*own));
  if (fallback->contains("us")) {
    TRY(kernel.fallback->us, number_field(*fallback, "us"));
  }
  if (kernel.fallback->recipe.calls_library()) return damaged("a fallback calls a library");
  return kernel;
}

Result<Buffer> buffer_from_json(const Json& json) {
  Buffer buffer;
  TRY(const std::string kind, string_field(json, "kind"));
  TRY(buffer.kind, parse_kind(kind));
  TRY(buffer.spec, spec_from_json(json));
  if (buffer.kind == Buffer::Kind::kTemporary) {
    TRY(buffer.arena_offset, dim_field(json, "arena_offset"));
  } else {
    TRY(const int64_t index, int_field(json, "index", 0, kMaxIndex));
    buffer.index = static_cast<int>(index);
  }
  return buffer;
}

Result<int> index_from_json(const Json& json, size_t size) {
  if (!json.is_number_unsigned() || json.get<uint64_t>() >= size)
    return damaged("an index is out of range");
  return json.get<int>();
}

Result<std::vector<int>> indices_field(const Json& json, const char* name, size_t size) {
  std::vector<int> indices;
  TRY(const Json* list, array_field(json, name));
  for (const Json& item : *list) {
    TRY(const int index, index_from_json(item, size));
    indices.push_back(index);
  }
  return indices;
}

Result<Launch> launch_from_json(const Json& json, size_t kernels, size_t buffers) {
  Launch launch;
  TRY(const int64_t kernel, int_field(json, "kernel", 0, static_cast<int64_t>(kernels) - 1));
  launch.kernel = static_cast<int>(kernel);
  TRY(launch.args, indices_field(json, "args", buffers));
  if (!json.contains("dims")) return launch;
  TRY(const Json* dims, array_field(json, "dims"));
  for (const Json& item : *dims) {
    TRY(Dim dim, dim_from_json(item, "dims"));
    launch.dims.push_back(std::move(dim));
  }
  return launch;
}

Result<ProgramSymbol> symbol_from_json(const Json& json) {
  ProgramSymbol symbol;
  TRY(symbol.min, int_field(json, "min", 0, INT64_MAX));
  TRY(symbol.max, int_field(json, "max", symbol.min, INT64_MAX));
  TRY(symbol.hint, int_field(json, "hint", 0, INT64_MAX));
  return symbol;
}

Result<Guard> guard_from_json(const Json& json) {
  Guard guard;
  TRY(guard.value, dim_field(json, "value"));
  TRY(guard.min, int_field(json, "min", INT64_MIN, INT64_MAX));
  TRY(guard.max, int_field(json, "max", guard.min, INT64_MAX));
  return guard;
}

// Fields that only a program with symbols has.
Status read_symbols(const Json& json, Program& program) {
  if (!json.contains("symbols")) return {};
  TRY(const Json* symbols, array_field(json, "symbols"));
  for (const Json& item : *symbols) {
    TRY(const ProgramSymbol symbol, symbol_from_json(item));
    program.symbols.push_back(symbol);
  }
  if (!json.contains("guards")) return {};
  TRY(const Json* guards, array_field(json, "guards"));
  for (const Json& item : *guards) {
    TRY(Guard guard, guard_from_json(item));
    program.guards.push_back(std::move(guard));
  }
  return {};
}

Result<TunedCut> cut_from_json(const Json& json) {
  TunedCut cut;
  TRY(cut.name, string_field(json, "name"));
  TRY(const int64_t launches, int_field(json, "launches", 0, kMaxIndex));
  cut.launches = static_cast<int>(launches);
  TRY(cut.us, number_field(json, "us"));
  TRY(const int64_t taken, int_field(json, "taken", 0, 1));
  cut.taken = taken == 1;
  return cut;
}

Status read_cuts(const Json& json, Program& program) {
  if (!json.contains("cuts")) return {};
  TRY(const Json* cuts, array_field(json, "cuts"));
  for (const Json& item : *cuts) {
    TRY(TunedCut cut, cut_from_json(item));
    program.cuts.push_back(std::move(cut));
  }
  return {};
}

Result<Program> read_program(const Json& json) {
  TRY(const int64_t version, int_field(json, "kiln_program", 0, INT32_MAX));
  if (version < 1 || version > kFormatVersion)
    return fail(Code::kCorruption,
                fmt::format("the program has format version {}; this build reads 1 to {}", version,
                            kFormatVersion));
  Program program;
  TRY(program.key, digest_field(json, "key"));
  TRY(program.graph, digest_field(json, "graph"));
  TRY(const Json* target, object_field(json, "target"));
  TRY(program.target, target_from_json(*target));
  TRY(const std::string mode, string_field(json, "mode"));
  const Result<Mode> parsed_mode = parse_mode(mode);
  if (!parsed_mode) return damaged("its mode is unknown");
  program.mode = *parsed_mode;
  TRY(program.template_stamp, digest_field(json, "codegen"));
  for (auto [name, field] :
       {std::pair{"serial", &program.serial}, std::pair{"made_at_ms", &program.made_at_ms}})
    if (json.contains(name)) {
      TRY(*field, int_field(json, name, 0, INT64_MAX));
    }
  TRY(const Json* kernels, array_field(json, "kernels"));
  for (const Json& item : *kernels) {
    TRY(ProgramKernel kernel, kernel_from_json_value(item));
    program.kernels.push_back(std::move(kernel));
  }
  TRY(const Json* buffers, array_field(json, "buffers"));
  for (const Json& item : *buffers) {
    TRY(Buffer buffer, buffer_from_json(item));
    program.buffers.push_back(std::move(buffer));
  }
  TRY(const Json* launches, array_field(json, "launches"));
  for (const Json& item : *launches) {
    TRY(Launch launch, launch_from_json(item, program.kernels.size(), program.buffers.size()));
    program.launches.push_back(std::move(launch));
  }
  TRY(program.output_buffers, indices_field(json, "output_buffers", program.buffers.size()));
  TRY(program.arena_bytes, dim_field(json, "arena_bytes"));
  TRY_STATUS(read_symbols(json, program));
  TRY_STATUS(read_cuts(json, program));
  return program;
}

}  // namespace

std::vector<KeptBuffer> kept_buffers(const Program& program) {
  std::vector<KeptBuffer> kept;
  for (const Launch& launch : program.launches) {
    const Recipe& recipe = program.kernels[static_cast<size_t>(launch.kernel)].recipe;
    for (const KeptOutput& each : recipe.kept)
      kept.push_back({launch.args[recipe.inputs.size() + static_cast<size_t>(each.output)],
                      launch.args[static_cast<size_t>(each.input)]});
  }
  return kept;
}

std::vector<std::optional<int>> updated_inputs(const Program& program) {
  std::vector<std::optional<int>> updated(program.output_buffers.size());
  const auto place = [&](int buffer) { return program.buffers[static_cast<size_t>(buffer)].index; };
  for (const KeptBuffer& each : kept_buffers(program))
    updated[static_cast<size_t>(place(each.output))] = place(each.input);
  return updated;
}

std::string program_to_json(const Program& program) {
  Json kernels = Json::array(), buffers = Json::array(), launches = Json::array();
  for (const ProgramKernel& kernel : program.kernels) kernels.push_back(to_json(kernel));
  for (const Buffer& buffer : program.buffers) buffers.push_back(to_json(buffer));
  for (const Launch& launch : program.launches) launches.push_back(to_json(launch));
  Json json = {{"kiln_program", version_of(program)},
               {"key", program.key.hex()},
               {"graph", program.graph.hex()},
               {"target", to_json(program.target)},
               {"mode", to_string(program.mode)},
               {"codegen", program.template_stamp.hex()},
               {"kernels", std::move(kernels)},
               {"buffers", std::move(buffers)},
               {"launches", std::move(launches)},
               {"output_buffers", program.output_buffers},
               {"arena_bytes", dim_to_json(program.arena_bytes)}};
  if (program.serial > 0) json["serial"] = program.serial;
  if (program.made_at_ms > 0) json["made_at_ms"] = program.made_at_ms;
  for (const ProgramSymbol& symbol : program.symbols) json["symbols"].push_back(to_json(symbol));
  for (const Guard& guard : program.guards) json["guards"].push_back(to_json(guard));
  for (const TunedCut& cut : program.cuts) json["cuts"].push_back(to_json(cut));
  return print_json(json);
}

Result<Program> program_from_json(std::string_view text) {
  TRY(const Json json, parse_json(text));
  TRY(Program program, read_program(json));
  TRY_STATUS(check_program(program));
  return program;
}

std::string kernel_to_json(const ProgramKernel& kernel) {
  return print_json(to_json(kernel));
}

Result<ProgramKernel> kernel_from_json(std::string_view text) {
  TRY(const Json json, parse_json(text));
  return kernel_from_json_value(json);
}

std::vector<std::vector<int64_t>> sample_sizes(const Program& program) {
  std::vector<int64_t> least, tuned, between;
  int64_t step = 1;
  for (const ProgramSymbol& symbol : program.symbols) {
    const auto clamped = [&symbol](int64_t size) {
      return std::clamp(size, symbol.min, symbol.max);
    };
    step = step * 2 % 1021 + 1;  // so that no two symbols have one size
    least.push_back(symbol.min);
    tuned.push_back(clamped(symbol.hint));
    between.push_back(symbol.min > INT64_MAX - step ? symbol.max : clamped(symbol.min + step));
  }
  if (program.symbols.empty()) return {least};
  return {std::move(least), std::move(tuned), std::move(between)};
}

int keys_that_vouch(const Provenance& provenance) {
  std::set<std::string> keys;
  if (!provenance.built.key.empty()) keys.insert(provenance.built.key);
  for (const Reporter& each : provenance.confirmed)
    if (!each.key.empty()) keys.insert(each.key);
  return static_cast<int>(keys.size());
}

bool is_verified(const Program& program) {
  return std::ranges::all_of(program.kernels, &ProgramKernel::verified);
}

bool is_sound(const ProgramKernel& kernel, const TemplateVersions& oldest) {
  const auto is_right = [&](std::string_view schedule, bool calls_library) {
    const std::string_view name = schedule.substr(0, schedule.find(' '));
    const int since = find_version(oldest, needed_template(name));
    // Templates that call a library are in no winner's list: theirs is taken for the first version.
    const int made_by = calls_library ? 1 : find_version(kernel.templates, name);
    return since > 0 && made_by >= since;
  };
  return is_right(kernel.schedule, kernel.recipe.calls_library()) &&
         (!kernel.fallback || is_right(kernel.fallback->schedule, false));
}

Artifact artifact_of(const ProgramKernel& kernel, std::string binary) {
  Artifact artifact{kernel.recipe, std::move(binary), kernel.blob};
  if (kernel.fallback) artifact.fallback = kernel.fallback->recipe;
  return artifact;
}

Digest program_key(const Digest& graph, const Target& target, Mode mode) {
  Hasher hasher("kiln.program_key.v2");
  hasher.add(graph);
  target.add_to(hasher);
  return hasher.add(to_string(mode)).finish();
}

}  // namespace kiln
