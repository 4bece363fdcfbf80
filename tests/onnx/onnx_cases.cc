// onnx_cases FOLDER...: each a test case of ONNX's own layout, model.onnx with test_data_set_0/
// input_0.pb, output_0.pb and so on. Reads the model, evaluates it with the oracle and prints a line
// for each: its name, "right", "wrong" or "refused", and why, separated by tabs. Exits with 1 unless
// all are right.
#include <cmath>
#include <cstdio>
#include <string>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/onnx/tensor.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

Result<std::vector<Tensor>> read_data(const Path& folder, const std::string& kind) {
  std::vector<Tensor> tensors;
  for (int i = 0;; ++i) {
    const Path file = folder / (kind + "_" + std::to_string(i) + ".pb");
    if (!std::filesystem::exists(file)) return tensors;
    TRY(const std::string bytes, read_file(file));
    TRY(const OnnxTensor header, parse_onnx_tensor(bytes));
    TRY(Tensor tensor, read_onnx_tensor(header, std::nullopt));
    tensors.push_back(std::move(tensor));
  }
}

bool is_close(double x, double expected, DType type) {
  if (std::isnan(x) || std::isnan(expected)) return std::isnan(x) && std::isnan(expected);
  if (x == expected) return true;
  // As onnx.backend.test.runner compares, and a step of the type for half ones.
  const double relative = is_half(type) ? 1e-2 : 1e-3;
  return is_float(type) && std::abs(x - expected) <= 1e-7 + relative * std::abs(expected);
}

Status compare(const Tensor& got, const Tensor& expected, size_t output) {
  const auto differs = [&](const std::string& how) {
    return fail(Code::kCorruption, "output " + std::to_string(output) + " " + how);
  };
  if (got.dtype() != expected.dtype())
    return differs("is " + std::string(to_string(got.dtype())) + ", not " +
                   std::string(to_string(expected.dtype())));
  if (got.sizes() != expected.sizes()) return differs("has another shape");
  for (int64_t i = 0; i < got.numel(); ++i)
    if (!is_close(got.get(i), expected.get(i), got.dtype()))
      return differs("is " + std::to_string(got.get(i)) + ", not " +
                     std::to_string(expected.get(i)) + ", at " + std::to_string(i));
  return {};
}

Status run_case(const Path& folder) {
  const Path model = folder / "model.onnx";
  TRY(const ExportedProgram program, read_graph_file(model));
  TRY(std::vector<Tensor> given, read_data(folder / "test_data_set_0", "input"));
  TRY(const std::vector<Tensor> expected, read_data(folder / "test_data_set_0", "output"));
  std::vector<Tensor> inputs;
  size_t next = 0;
  for (const ExportedInput& input : program.inputs) {
    if (input.kind == ExportedInput::Kind::kUser) {
      if (next >= given.size()) return fail(Code::kNotFound, "the case has too few inputs");
      inputs.push_back(std::move(given[next++]));
    } else {
      TRY(Tensor weight, read_payload(model, input));
      inputs.push_back(std::move(weight));
    }
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& input : inputs) pointers.push_back(&input);
  const auto results = interpret(program.graph, pointers);
  if (!results) return fail(Code::kCorruption, results.error().message);
  if (results->size() != expected.size())
    return fail(Code::kCorruption, "gives " + std::to_string(results->size()) + " outputs of " +
                                       std::to_string(expected.size()));
  for (size_t i = 0; i < expected.size(); ++i) TRY_STATUS(compare((*results)[i], expected[i], i));
  return {};
}

}  // namespace
}  // namespace kiln

int main(int count, char** arguments) {
  bool all_right = count > 1;
  for (int i = 1; i < count; ++i) {
    const kiln::Path folder = arguments[i];
    const kiln::Status done = kiln::run_case(folder);
    all_right = all_right && done;
    std::string why = done ? "" : done.error().message;
    for (char& c : why)
      if (c == '\n' || c == '\t') c = ' ';
    const char* verdict = done                                           ? "right"
                          : done.error().code == kiln::Code::kCorruption ? "wrong"
                                                                         : "refused";
    std::printf("%s\t%s\t%s\n", folder.filename().c_str(), verdict, why.c_str());
  }
  return all_right ? 0 : 1;
}
