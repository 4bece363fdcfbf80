#include "client/lock_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "compiler_core/base/text.h"

namespace kiln {
namespace {

constexpr std::string_view kLockMagic = "kiln-lock ";
constexpr int kLockFormat = 2;
constexpr char kComment[] =
    "# The programs that `kiln compile --locked` must get; `kiln lock FILE...` makes it anew.\n";

// The first word, which is removed with the space behind it.
template <class Value = int>
Result<Value> integer(std::string_view text) {
  Value value = 0;
  if (read_count(text, value)) return value;
  return fail(Code::kInvalidArgument, "'" + std::string(text) + "' is no number");
}

constexpr std::array<std::string_view, 5> kKinds = {"user", "parameter", "buffer", "constant",
                                                    "seed"};  // ExportedInput::Kind

Status read_input(std::string_view line, LockedCall& call) {
  LockedInput& input = call.inputs.emplace_back();
  const std::string_view place = take_word(line);
  if (place != "-") {
    TRY(input.place, integer(place));
  }
  const std::string_view word = take_word(line);
  const auto kind = std::ranges::find(kKinds, word);
  if (kind == kKinds.end())
    return fail(Code::kInvalidArgument, "'" + std::string(word) + "' is no kind of input");
  input.kind = static_cast<ExportedInput::Kind>(kind - kKinds.begin());
  input.name = line;
  return {};
}

Result<std::vector<int64_t>> integers(std::string_view list) {
  std::vector<int64_t> values;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    TRY(const int64_t value, integer<int64_t>(list.substr(0, end)));
    values.push_back(value);
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return values;
}

Status read_layout(std::string_view line, LockedCall& call) {
  if (call.inputs.empty()) return fail(Code::kInvalidArgument, "no input is named before it");
  LockedInput& input = call.inputs.back();
  TRY(input.sizes, integers(take_word(line)));
  TRY(input.strides, integers(line));
  if (input.sizes.empty() || input.sizes.size() != input.strides.size())
    return fail(Code::kInvalidArgument, "a layout has a stride for each size");
  return {};
}

// The program's inputs are each named once, and what changes is an input.
bool is_whole(const LockedCall& call) {
  std::vector<int> places;
  for (const LockedInput& input : call.inputs)
    if (input.place >= 0) places.push_back(input.place);
  std::ranges::sort(places);
  for (size_t i = 0; i < places.size(); ++i)
    if (places[i] != static_cast<int>(i)) return false;
  return std::ranges::all_of(call.mutations, [&](const LockedMutation& each) {
    return static_cast<size_t>(each.input) < call.inputs.size();
  });
}

std::string print_call(const LockedCall& call) {
  std::string text;
  for (const LockedInput& input : call.inputs) {
    text += fmt::format("  input {} {} {}\n", input.place < 0 ? "-" : std::to_string(input.place),
                        kKinds[static_cast<size_t>(input.kind)], input.name);
    if (!input.sizes.empty())
      text += fmt::format("  layout {} {}\n", fmt::join(input.sizes, ","),
                          fmt::join(input.strides, ","));
  }
  for (const LockedMutation& each : call.mutations)
    text += fmt::format("  mutation {} {}\n", each.output, each.input);
  return text;
}

Status read_line(std::string_view line, std::vector<LockedProgram>& programs) {
  const std::string_view name = take_word(line);
  if (name == "program") {
    programs.emplace_back().file = line;
    return {};
  }
  if (programs.empty()) return fail(Code::kInvalidArgument, "no program is named before it");
  LockedProgram& program = programs.back();
  if (name == "target") {
    TRY(const Target target, Target::parse(line));
    program.target.backend = target.backend;
    program.target.isa = target.isa;
  } else if (name == "device") {
    program.target.device_model = line;
  } else if (name == "units") {
    TRY(program.target.units, integer(line));
  } else if (name == "toolkit") {
    program.target.toolkit = line;
  } else if (name == "mode") {
    TRY(program.mode, parse_mode(line));
  } else if (name == "graph") {
    TRY(program.graph, Digest::parse(line));
  } else if (name == "digest") {
    TRY(program.digest, Digest::parse(line));
  } else if (name == "input") {
    return read_input(line, program.call);
  } else if (name == "layout") {
    return read_layout(line, program.call);
  } else if (name == "mutation") {
    LockedMutation& mutation = program.call.mutations.emplace_back();
    TRY(mutation.output, integer(take_word(line)));
    TRY(mutation.input, integer(line));
  } else if (name == "kernel") {
    LockedKernel& kernel = program.kernels.emplace_back();
    TRY(kernel.workload, Digest::parse(take_word(line)));
    TRY(kernel.blob, Digest::parse(take_word(line)));
    kernel.schedule = line;
  } else {
    return fail(Code::kInvalidArgument, "'" + std::string(name) + "' is unknown here");
  }
  return {};
}

}  // namespace

Digest pinned_digest(const Program& program) {
  Hasher hasher("kiln.locked_program.v1");
  hasher.add(program.graph).add(program.target.to_string()).add(program.target.toolkit);
  hasher.begin_list(program.kernels.size());
  for (const ProgramKernel& kernel : program.kernels)
    hasher.add(kernel.workload)
        .add(kernel.blob)
        .add(kernel.schedule)
        .add(kernel.fallback ? kernel.fallback->schedule : "");
  hasher.begin_list(program.launches.size());
  for (const Launch& launch : program.launches) {
    hasher.add(int64_t{launch.kernel}).begin_list(launch.args.size());
    for (const int arg : launch.args) hasher.add(int64_t{arg});
  }
  return hasher.finish();
}

LockedCall LockedCall::of(const ExportedProgram& exported, std::span<const int> input_order) {
  LockedCall call;
  for (const ExportedInput& input : exported.inputs) {
    LockedInput& locked = call.inputs.emplace_back();
    locked.kind = input.kind;
    locked.name = input.name;
    if (is_dense(input)) continue;  // the others have constant sizes
    locked.sizes = constant_sizes(input.shape);
    locked.strides = constant_sizes(input.strides);
  }
  for (size_t place = 0; place < input_order.size(); ++place)
    call.inputs[static_cast<size_t>(input_order[place])].place = static_cast<int>(place);
  for (size_t output = 0; output < exported.outputs.size(); ++output) {
    if (exported.outputs[output].kind != ExportedOutput::Kind::kMutation) continue;
    const auto input = std::ranges::find(exported.inputs, exported.outputs[output].name,
                                         [](const ExportedInput& each) { return each.name; });
    if (input != exported.inputs.end())
      call.mutations.push_back(
          {static_cast<int>(output), static_cast<int>(input - exported.inputs.begin())});
  }
  return call;
}

LockedProgram lock_of(const std::string& file, const Program& program, LockedCall call) {
  LockedProgram locked{file, program.target, program.mode, program.graph, pinned_digest(program),
                       {},   std::move(call)};
  for (const ProgramKernel& kernel : program.kernels)
    locked.kernels.push_back({kernel.workload, kernel.blob, kernel.schedule});
  return locked;
}

std::string print_lock(const std::vector<LockedProgram>& programs) {
  std::string text = fmt::format("{}{}\n{}", kLockMagic, kLockFormat, kComment);
  for (const LockedProgram& program : programs) {
    const Target& target = program.target;
    text += fmt::format("program {}\n  target {}\n", program.file, target.to_string());
    if (target.units > 0) text += fmt::format("  units {}\n", target.units);
    if (!target.device_model.empty()) text += fmt::format("  device {}\n", target.device_model);
    if (!target.toolkit.empty()) text += fmt::format("  toolkit {}\n", target.toolkit);
    text += fmt::format("  mode {}\n  graph {}\n  digest {}\n", to_string(program.mode),
                        program.graph.hex(), program.digest.hex());
    text += print_call(program.call);
    for (const LockedKernel& kernel : program.kernels)
      text += fmt::format("  kernel {} {} {}\n", kernel.workload.hex(), kernel.blob.hex(),
                          kernel.schedule);
  }
  return text;
}

bool is_lock(std::string_view text) {
  return text.starts_with(kLockMagic);
}

Result<std::vector<LockedProgram>> parse_lock(std::string_view text, const std::string& name) {
  if (!is_lock(text))
    return fail(Code::kInvalidArgument,
                name + " is no lock file: `kiln lock FILE... > " + name + "` makes one");
  std::vector<LockedProgram> programs;
  for (int number = 1; !text.empty(); ++number) {
    const size_t end = std::min(text.find('\n'), text.size());
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (line.empty() || line.front() == '#') continue;
    const auto within = [&](const Error& error) {
      return error.within(fmt::format("{}, line {}", name, number));
    };
    if (number == 1) {
      const auto format = integer(line.substr(std::min(kLockMagic.size(), line.size())));
      if (!format) return fail(within(format.error()));
      if (*format > kLockFormat)
        return fail(
            Code::kUnsupported,
            fmt::format("{} has format {}, which a newer Kiln wrote; this one reads up to {}: "
                        "update it",
                        name, *format, kLockFormat));
      continue;
    }
    if (Status read = read_line(line, programs); !read) {
      read.error().code = Code::kInvalidArgument;
      return fail(within(read.error()));
    }
  }
  for (const LockedProgram& program : programs) {
    const bool named =
        !program.file.empty() && !program.graph.is_zero() && !program.digest.is_zero();
    if (!named || !is_whole(program.call))
      return fail(Code::kInvalidArgument,
                  fmt::format("{}: program '{}' lacks its {}: make the file anew", name,
                              program.file, named ? "inputs, or some" : "graph or digest"));
  }
  return programs;
}

std::vector<std::string> changes(const LockedProgram& was, const LockedProgram& now) {
  if (was.graph != now.graph)
    return {fmt::format("the model computes something else: graph {} was {}", now.graph.short_hex(),
                        was.graph.short_hex())};
  std::vector<std::string> found;
  const auto differ = [&found](const char* what, const std::string& before,
                               const std::string& after) {
    if (before != after) found.push_back(fmt::format("{} is {} and was {}", what, after, before));
  };
  // A file of format 1 says nothing of inputs.
  if (!was.call.inputs.empty() && was.call != now.call)
    found.push_back("the model's inputs have other names, kinds, layouts or places");
  differ("the target", was.target.to_string(), now.target.to_string());
  differ("the toolkit", was.target.toolkit, now.target.toolkit);
  if (was.digest == now.digest) return found;
  differ("the device it was tuned for", was.target.device_model, now.target.device_model);
  differ("the number of kernels", std::to_string(was.kernels.size()),
         std::to_string(now.kernels.size()));
  for (size_t i = 0; i < std::min(was.kernels.size(), now.kernels.size()); ++i) {
    const LockedKernel &before = was.kernels[i], &after = now.kernels[i];
    const std::string what = fmt::format("kernel {} ({})", i, before.workload.short_hex());
    if (before.workload != after.workload)
      found.push_back(what + " computes something else: the graph is divided differently");
    else if (before.schedule != after.schedule)
      differ(what.c_str(), before.schedule, after.schedule);
    else if (before.blob != after.blob)
      found.push_back(what +
                      " has the same schedule and another binary: the compiler or the "
                      "template changed");
  }
  if (found.empty()) found.push_back("the launches are others, of the same kernels");
  return found;
}

}  // namespace kiln
