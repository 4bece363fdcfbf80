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

Result<std::vector<int64_t>> sizes_of(const Shape& shape) {
  if (!is_constant(shape))
    return fail(Code::kUnsupported,
                "the program has dynamic sizes, which this version does not "
                "compile; export it with static shapes");
  const std::vector<int64_t> sizes = constant_sizes(shape);
  TRY_STATUS(checked_bytes(DType::kF64, sizes).map([](int64_t) {}));
  return sizes;
}

// Whether a user's tensor is what the exported program declares.
Status check_given(const Tensor& tensor, const ExportedInput& input,
                   const std::vector<int64_t>& sizes, std::string_view name) {
  if (tensor.dtype() == input.dtype && tensor.sizes() == sizes) return {};
  return fail(Code::kInvalidArgument,
              fmt::format("{} is {}[{}] but the program's input '{}' is {}[{}]", name,
                          to_string(tensor.dtype()), fmt::join(tensor.sizes(), ","), input.name,
                          to_string(input.dtype), fmt::join(sizes, ",")));
}

}  // namespace

Result<RunInputs> gather_inputs(const Path& archive, const ExportedProgram& program,
                                const std::map<std::string, Tensor>* given, bool allow_made_up) {
  RunInputs result;
  int user_inputs = 0;
  for (const ExportedInput& input : program.inputs) {
    TRY(const std::vector<int64_t> sizes, sizes_of(input.shape));
    if (input.kind == ExportedInput::Kind::kUser && given != nullptr) {
      const std::string name = fmt::format("in{}", user_inputs++);
      const auto found = given->find(name);
      if (found == given->end())
        return fail(Code::kInvalidArgument,
                    fmt::format("the inputs file has no tensor '{}' (for '{}')", name, input.name));
      TRY_STATUS(check_given(found->second, input, sizes, name));
      TRY(Tensor stored, to_input_layout(found->second, input));
      result.tensors.push_back(std::move(stored));
    } else if (input.kind != ExportedInput::Kind::kUser && (input.has_payload || !allow_made_up)) {
      TRY(Tensor weight, read_payload(archive, input));
      result.tensors.push_back(std::move(weight));
    } else {
      const uint64_t seed = result.tensors.size() + 1;
      TRY(Tensor stored, to_input_layout(make_up(input.dtype, sizes, seed), input));
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
