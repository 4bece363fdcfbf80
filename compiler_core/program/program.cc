// The manifest is one JSON object; its field names are read by people and scripts and never
// renamed. "kiln_program" is the version of the format: a reader refuses versions it does not know.
#include "compiler_core/program/program.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <optional>
#include <set>

#include "compiler_core/program/json_fields.h"

namespace kiln {
namespace {

constexpr int64_t kFormatVersion = 1;
constexpr int64_t kMaxIndex = 1 << 20;  // of a program's inputs, outputs, kernels and buffers
constexpr int64_t kAlignment = 64;      // of every buffer a kernel sees (artifact.h)

tl::unexpected<Error> damaged(std::string_view why) {
  return fail(Code::kCorruption, fmt::format("the program is damaged: {}", why));
}

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
  return {{"candidates", report.candidates},
          {"measured", report.measured},
          {"rejected", report.rejected},
          {"best_us", report.best_us},
          {"first_us", report.first_us}};
}

Json to_json(const ProgramKernel& kernel) {
  return {{"workload", kernel.workload.hex()}, {"key", kernel.key.hex()},
          {"family", kernel.family},           {"schedule", kernel.schedule},
          {"blob", kernel.blob.hex()},         {"recipe", recipe_to_json_value(kernel.recipe)},
          {"report", to_json(kernel.report)}};
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
  return report;
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

// ---- Checking what the parts say of each other ----

// Nothing when a size is symbolic. Cannot overflow: reading a spec bounds its size.
std::optional<int64_t> element_count(const TensorSpec& spec) {
  int64_t count = 1;
  for (const Dim& dim : spec.shape) {
    if (!dim.is_constant()) return std::nullopt;
    count *= dim.constant();
  }
  return count;
}

// A kernel's own shapes may be folded, and its symbols numbered, differently from the program's:
// what counts for memory is the dtype and, where it is a number, the element count.
bool fits(const TensorSpec& buffer, const TensorSpec& argument) {
  const auto held = element_count(buffer), used = element_count(argument);
  return buffer.dtype == argument.dtype && (!held || !used || *held == *used);
}

Status check_buffer(const Program& program, const Buffer& buffer, int position) {
  if (buffer.kind == Buffer::Kind::kOutput) {
    // An output buffer stands for the first place where it is returned.
    if (static_cast<size_t>(buffer.index) >= program.output_buffers.size() ||
        program.output_buffers[static_cast<size_t>(buffer.index)] != position)
      return damaged("an output buffer is not returned");
  }
  if (buffer.kind != Buffer::Kind::kTemporary || !buffer.arena_offset.is_constant()) return {};
  const int64_t offset = buffer.arena_offset.constant();
  if (offset % kAlignment != 0) return damaged("a temporary is not aligned");
  const auto elements = element_count(buffer.spec);
  if (!elements || !program.arena_bytes.is_constant()) return {};
  // Neither passes kMaxSizeBytes after the first comparison, so the sum cannot overflow.
  const int64_t arena = program.arena_bytes.constant();
  if (offset > arena || offset + *elements * size_of(buffer.spec.dtype) > arena)
    return damaged("a temporary lies outside the arena");
  return {};
}

Status check_launch(const Program& program, const Launch& launch) {
  const Recipe& recipe = program.kernels[static_cast<size_t>(launch.kernel)].recipe;
  const size_t inputs = recipe.inputs.size();
  if (launch.args.size() != inputs + recipe.outputs.size())
    return damaged("a launch has the wrong number of arguments");
  for (size_t i = 0; i < launch.args.size(); ++i) {
    const Buffer& buffer = program.buffers[static_cast<size_t>(launch.args[i])];
    const bool written = i >= inputs;
    if (written && buffer.kind == Buffer::Kind::kInput)
      return damaged("a launch writes into an input");
    if (!fits(buffer.spec, written ? recipe.outputs[i - inputs] : recipe.inputs[i]))
      return damaged("an argument does not fit its buffer");
  }
  return {};
}

Status check_program(const Program& program) {
  if (program.arena_bytes.is_constant() && program.arena_bytes.constant() > kMaxSizeBytes)
    return damaged("its arena is too large");
  std::set<int> inputs;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const Buffer& buffer = program.buffers[i];
    if (buffer.kind == Buffer::Kind::kInput && !inputs.insert(buffer.index).second)
      return damaged("two buffers are the same input");
    TRY_STATUS(check_buffer(program, buffer, static_cast<int>(i)));
  }
  for (int index : program.output_buffers)
    if (program.buffers[static_cast<size_t>(index)].kind == Buffer::Kind::kTemporary)
      return damaged("an output is a temporary");
  for (const Launch& launch : program.launches) TRY_STATUS(check_launch(program, launch));
  return {};
}

Result<Program> read_program(const Json& json) {
  TRY(const int64_t version, int_field(json, "kiln_program", 0, INT32_MAX));
  if (version != kFormatVersion)
    return fail(Code::kCorruption,
                fmt::format("the program has format version {}; this build reads {}", version,
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
  TRY(program.codegen, digest_field(json, "codegen"));
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
    Launch launch;
    TRY(const int64_t kernel,
        int_field(item, "kernel", 0, static_cast<int64_t>(program.kernels.size()) - 1));
    launch.kernel = static_cast<int>(kernel);
    TRY(launch.args, indices_field(item, "args", program.buffers.size()));
    program.launches.push_back(std::move(launch));
  }
  TRY(program.output_buffers, indices_field(json, "output_buffers", program.buffers.size()));
  TRY(program.arena_bytes, dim_field(json, "arena_bytes"));
  return program;
}

}  // namespace

std::string program_to_json(const Program& program) {
  Json kernels = Json::array(), buffers = Json::array(), launches = Json::array();
  for (const ProgramKernel& kernel : program.kernels) kernels.push_back(to_json(kernel));
  for (const Buffer& buffer : program.buffers) buffers.push_back(to_json(buffer));
  for (const Launch& launch : program.launches)
    launches.push_back({{"kernel", launch.kernel}, {"args", launch.args}});
  return print_json({{"kiln_program", kFormatVersion},
                     {"key", program.key.hex()},
                     {"graph", program.graph.hex()},
                     {"target", to_json(program.target)},
                     {"mode", to_string(program.mode)},
                     {"codegen", program.codegen.hex()},
                     {"kernels", std::move(kernels)},
                     {"buffers", std::move(buffers)},
                     {"launches", std::move(launches)},
                     {"output_buffers", program.output_buffers},
                     {"arena_bytes", dim_to_json(program.arena_bytes)}});
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

Digest program_key(const Digest& graph, const Target& target, Mode mode, const Digest& codegen) {
  Hasher hasher("kiln.program_key.v1");
  hasher.add(graph);
  target.add_to(hasher);
  return hasher.add(to_string(mode)).add(codegen).finish();
}

}  // namespace kiln
