#include "client/cli/run_inputs.h"

#include <fmt/format.h>

#include <algorithm>
#include <random>

namespace kiln::cli {
namespace {

// How many values are drawn; larger tensors repeat them, so that nobody waits for made-up numbers.
// A prime: no row of a usual length equals the next.
constexpr int64_t kDrawn = 1048583;

// Standard normal floats; 0 or 1 for integers and bool, which is inside every table of indices.
Tensor make_up(DType dtype, std::vector<int64_t> sizes, uint64_t seed) {
  Tensor tensor(dtype, std::move(sizes));
  std::mt19937_64 random(seed);
  std::normal_distribution<double> normal;
  const int64_t drawn = std::min(tensor.numel(), kDrawn);
  for (int64_t i = 0; i < drawn; ++i) {
    if (is_float(dtype))
      tensor.set(i, normal(random));
    else
      tensor.set_int(i, static_cast<int64_t>(random() & 1));
  }
  const auto bytes = tensor.bytes();
  const auto period = static_cast<size_t>(drawn * size_of(dtype));
  for (size_t at = period; at < bytes.size(); at += period)
    std::ranges::copy(bytes.first(std::min(period, bytes.size() - at)),
                      bytes.begin() + static_cast<std::ptrdiff_t>(at));
  return tensor;
}

Result<std::vector<int64_t>> sizes_of(const Shape& shape, std::span<const int64_t> symbols) {
  std::vector<int64_t> sizes;
  for (const Dim& dim : shape) {
    TRY(const int64_t size, dim.evaluate(symbols));
    sizes.push_back(size);
  }
  TRY_STATUS(checked_bytes(DType::kF64, sizes).map([](int64_t) {}));
  return sizes;
}

// Whether a user's tensor is what the exported program declares; sizes with symbols may be any.
Status check_given(const Tensor& tensor, const ExportedInput& input, std::string_view name) {
  bool fits = tensor.dtype() == input.dtype && tensor.sizes().size() == input.shape.size();
  for (size_t i = 0; fits && i < input.shape.size(); ++i)
    fits = !input.shape[i].is_constant() || input.shape[i].is(tensor.sizes()[i]);
  if (fits) return {};
  std::vector<std::string> sizes;
  for (const Dim& dim : input.shape) sizes.push_back(dim.to_string());
  return fail(Code::kInvalidArgument,
              fmt::format("{} is {}[{}] but the program's input '{}' is {}[{}]", name,
                          to_string(tensor.dtype()), fmt::join(tensor.sizes(), ","), input.name,
                          to_string(input.dtype), fmt::join(sizes, ",")));
}

// The symbols' values for the tensors that are made up: what the given ones say, else what the
// program was exported with.
std::vector<int64_t> usual_sizes(const ExportedProgram& program,
                                 const std::map<std::string, Tensor>* given) {
  std::vector<int64_t> values;
  for (const Symbol& symbol : program.graph.symbols())
    values.push_back(std::clamp(symbol.hint, symbol.range.min, symbol.range.max));
  int user_inputs = 0;
  for (const ExportedInput& input : program.inputs) {
    if (input.kind != ExportedInput::Kind::kUser || given == nullptr) continue;
    const auto found = given->find(fmt::format("in{}", user_inputs++));
    if (found == given->end() || found->second.sizes().size() != input.shape.size()) continue;
    for (size_t axis = 0; axis < input.shape.size(); ++axis)
      for (size_t id = 0; id < values.size(); ++id)
        if (input.shape[axis] == Dim::symbol(static_cast<SymbolId>(id)))
          values[id] = found->second.sizes()[axis];
  }
  return values;
}

}  // namespace

Result<RunInputs> gather_inputs(const Path& archive, const ExportedProgram& program,
                                const std::map<std::string, Tensor>* given, bool allow_made_up,
                                int64_t seed) {
  RunInputs result;
  int user_inputs = 0;
  const std::vector<int64_t> symbols = usual_sizes(program, given);
  for (const ExportedInput& input : program.inputs) {
    if (input.kind == ExportedInput::Kind::kSeed) {
      result.tensors.emplace_back(DType::kI64, std::vector<int64_t>());
      result.tensors.back().set_int(0, seed);
    } else if (input.kind == ExportedInput::Kind::kUser && given != nullptr) {
      const std::string name = fmt::format("in{}", user_inputs++);
      const auto found = given->find(name);
      if (found == given->end())
        return fail(Code::kInvalidArgument,
                    fmt::format("the inputs file has no tensor '{}' (for '{}')", name, input.name));
      TRY_STATUS(check_given(found->second, input, name));
      TRY(Tensor stored, to_input_layout(found->second, input));
      result.tensors.push_back(std::move(stored));
    } else if (input.kind != ExportedInput::Kind::kUser && (input.has_payload || !allow_made_up)) {
      TRY(Tensor weight, read_payload(archive, input));
      result.tensors.push_back(std::move(weight));
    } else {
      TRY(const std::vector<int64_t> sizes, sizes_of(input.shape, symbols));
      const uint64_t own_seed = result.tensors.size() + 1;
      TRY(Tensor stored, to_input_layout(make_up(input.dtype, sizes, own_seed), input));
      result.tensors.push_back(std::move(stored));
      ++result.made_up;
    }
  }
  if (given != nullptr && given->contains(fmt::format("in{}", user_inputs)))
    return fail(Code::kInvalidArgument,
                fmt::format("the inputs file has in{}, but the program takes {} inputs",
                            user_inputs, user_inputs));
  return result;
}

}  // namespace kiln::cli
