#include "client/c_program.h"

#include <algorithm>

#include "compiler_core/program/program.h"

namespace kiln {
namespace {

void set_type(DType dtype, kiln_tensor& tensor) {
  enum : uint8_t {
    kInt = 0,
    kUInt = 1,
    kFloat = 2,
    kBfloat = 4,
    kBool = 6,
    kE4M3 = 10,
    kE5M2 = 12,
    kE8M0 = 14
  };
  tensor.type_bits = static_cast<uint8_t>(size_of(dtype) * 8);
  switch (dtype) {
    case DType::kF64:
    case DType::kF32:
    case DType::kF16:
      tensor.type_code = kFloat;
      break;
    case DType::kBF16:
      tensor.type_code = kBfloat;
      break;
    case DType::kF8E4M3:
      tensor.type_code = kE4M3;
      break;
    case DType::kF8E5M2:
      tensor.type_code = kE5M2;
      break;
    case DType::kF8E8M0:
      tensor.type_code = kE8M0;
      break;
    case DType::kI8:
    case DType::kI16:
    case DType::kI32:
    case DType::kI64:
      tensor.type_code = kInt;
      break;
    case DType::kU8:
      tensor.type_code = kUInt;
      break;
    case DType::kBool:
      tensor.type_code = kBool;
      break;
  }
}

Description description(std::string name, kiln_kind kind, DType dtype, const Shape& shape) {
  Description made;
  made.name = std::move(name);
  made.shape = to_string(shape);
  for (const Dim& dim : shape) made.sizes.push_back(dim.is_constant() ? dim.constant() : -1);
  made.tensor.kind = kind;
  made.tensor.rank = static_cast<int16_t>(shape.size());
  made.tensor.mutates = made.tensor.updates = -1;
  set_type(dtype, made.tensor);
  return made;
}

// Once they lie where they stay.
void point_at_own(std::vector<Description>& tensors) {
  for (Description& each : tensors) {
    each.tensor.name = each.name.c_str();
    each.tensor.shape = each.shape.c_str();
    each.tensor.sizes = each.sizes.data();
    each.tensor.strides = each.strides.empty() ? nullptr : each.strides.data();
  }
}

kiln_kind kind_of(ExportedInput::Kind kind) {
  switch (kind) {
    case ExportedInput::Kind::kUser:
      return KILN_KIND_USER;
    case ExportedInput::Kind::kParameter:
      return KILN_KIND_PARAMETER;
    case ExportedInput::Kind::kBuffer:
      return KILN_KIND_BUFFER;
    case ExportedInput::Kind::kConstantTensor:
      return KILN_KIND_CONSTANT;
    case ExportedInput::Kind::kSeed:
      return KILN_KIND_SEED;
  }
  return KILN_KIND_USER;
}

// Elements from the first to behind the last. Strides and sizes of nonsense give nonsense.
int64_t memory_of(std::span<const int64_t> sizes, std::span<const int64_t> strides) {
  uint64_t last = 0;
  for (size_t i = 0; i < sizes.size(); ++i)
    last += static_cast<uint64_t>(sizes[i] - 1) * static_cast<uint64_t>(strides[i]);
  return static_cast<int64_t>(last + 1);
}

void describe_inputs(const ExportedProgram& exported, kiln_program& made) {
  for (const ExportedInput& input : exported.inputs) {
    made.inputs.push_back(description(input.name, kind_of(input.kind), input.dtype, input.shape));
    std::vector<int64_t> flat;
    if (!is_dense(input)) {  // only with constant sizes
      made.inputs.back().strides = constant_sizes(input.strides);
      flat = {memory_of(constant_sizes(input.shape), made.inputs.back().strides)};
    }
    made.flat_sizes.push_back(std::move(flat));
  }
  point_at_own(made.inputs);
}

// An input that the program does not read has no dtype.
Status describe_input(const LockedInput& input, std::span<const TensorSpec* const> specs,
                      kiln_program& made) {
  const kiln_kind kind = kind_of(input.kind);
  std::vector<int64_t>& flat = made.flat_sizes.emplace_back();
  if (input.place < 0) {
    made.inputs.push_back(description(input.name, kind, DType::kU8, {}));
    made.inputs.back().tensor.type_code = made.inputs.back().tensor.type_bits = 0;
    return {};
  }
  const TensorSpec& spec = *specs[static_cast<size_t>(input.place)];
  made.inputs.push_back(description(input.name, kind, spec.dtype, spec.shape));
  if (input.sizes.empty()) return {};
  // The program's input is the flat memory.
  Shape shape;
  for (const int64_t size : input.sizes) shape.emplace_back(size);
  made.inputs.back() = description(input.name, kind, spec.dtype, shape);
  made.inputs.back().strides = input.strides;
  flat = {memory_of(input.sizes, input.strides)};
  if (spec.shape == Shape{Dim(flat[0])}) return {};
  return fail(Code::kInvalidArgument,
              "the program takes no tensor of the layout of input '" + input.name + "'");
}

void describe_outputs(const ExportedProgram& exported, kiln_program& made) {
  for (size_t i = 0; i < exported.outputs.size(); ++i) {
    const ExportedOutput& output = exported.outputs[i];
    const Node& node = exported.graph.node(exported.graph.outputs()[i]);
    const bool mutation = output.kind == ExportedOutput::Kind::kMutation;
    made.outputs.push_back(description(output.name, mutation ? KILN_KIND_MUTATION : KILN_KIND_USER,
                                       node.dtype, node.shape));
    for (size_t input = 0; mutation && input < exported.inputs.size(); ++input)
      if (exported.inputs[input].name == output.name)
        made.outputs.back().tensor.mutates = static_cast<int32_t>(input);
  }
  point_at_own(made.outputs);
}

void describe_program(std::shared_ptr<const CompiledProgram> compiled, kiln_program& made) {
  const Program& program = compiled->program();
  for (const ProgramSymbol& symbol : program.symbols)
    made.symbols.push_back({symbol.min, symbol.max, symbol.hint});
  const std::vector<std::optional<int>> updated = updated_inputs(program);
  for (size_t i = 0; i < made.outputs.size() && i < updated.size(); ++i)
    made.outputs[i].tensor.updates =
        updated[i] ? compiled->input_order()[static_cast<size_t>(*updated[i])] : -1;
  made.outcome = to_string(compiled->outcome());
  made.target = program.target.to_string();
  made.manifest = compiled->manifest();
  made.signature = compiled->signature();
  made.program = std::move(compiled);
}

}  // namespace

std::unique_ptr<kiln_program> described(std::shared_ptr<const CompiledProgram> compiled,
                                        const ExportedProgram& exported) {
  auto made = std::make_unique<kiln_program>();
  describe_inputs(exported, *made);
  describe_outputs(exported, *made);
  describe_program(std::move(compiled), *made);
  return made;
}

Result<std::unique_ptr<kiln_program>> described(std::shared_ptr<const CompiledProgram> compiled,
                                                const LockedCall& call) {
  auto made = std::make_unique<kiln_program>();
  const Program& program = compiled->program();
  std::vector<const TensorSpec*> specs;
  for (const Buffer& buffer : program.buffers)
    if (buffer.kind == Buffer::Kind::kInput) {
      specs.resize(std::max(specs.size(), static_cast<size_t>(buffer.index) + 1), nullptr);
      specs[static_cast<size_t>(buffer.index)] = &buffer.spec;
    }
  std::vector<LockedInput> inputs = call.inputs;
  for (size_t place = 0; call.inputs.empty() && place < specs.size(); ++place)
    inputs.push_back({static_cast<int>(place)});
  for (const LockedInput& input : inputs) TRY_STATUS(describe_input(input, specs, *made));
  point_at_own(made->inputs);
  for (const int buffer : program.output_buffers) {
    const TensorSpec& spec = program.buffers[static_cast<size_t>(buffer)].spec;
    made->outputs.push_back(description("", KILN_KIND_USER, spec.dtype, spec.shape));
  }
  for (const LockedMutation& each : call.mutations) {
    if (static_cast<size_t>(each.output) >= made->outputs.size())
      return fail(Code::kInvalidArgument,
                  "the program has no output " + std::to_string(each.output));
    Description& output = made->outputs[static_cast<size_t>(each.output)];
    output.name = inputs[static_cast<size_t>(each.input)].name;
    output.tensor.kind = KILN_KIND_MUTATION;
    output.tensor.mutates = each.input;
  }
  point_at_own(made->outputs);
  describe_program(std::move(compiled), *made);
  return made;
}

std::unique_ptr<kiln_program> described_as(std::shared_ptr<const CompiledProgram> tuned,
                                           const kiln_program& first) {
  auto made = std::make_unique<kiln_program>();
  made->inputs = first.inputs;
  made->outputs = first.outputs;
  made->flat_sizes = first.flat_sizes;
  point_at_own(made->inputs);
  point_at_own(made->outputs);
  describe_program(std::move(tuned), *made);
  return made;
}

}  // namespace kiln
