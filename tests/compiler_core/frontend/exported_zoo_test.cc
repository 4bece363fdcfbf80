// Every program of tests/graphs/zoo, which ops/zoo wrote with torch: what the lowerings make of it
// computes torch's numbers, by the interpreter.
#include <gtest/gtest.h>

#include <cmath>

#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/frontend/safetensors.h"
#include "compiler_core/ir/interpreter.h"

namespace kiln {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> programs() {
  std::vector<std::string> names;
  for (const auto& file : fs::directory_iterator(KILN_SOURCE_DIR "/tests/graphs/zoo"))
    if (file.path().extension() == ".pt2") names.push_back(file.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

// Sums go in another order than torch's; halves are rounded once, and a difference of one rounding
// grows in what follows.
double tolerance(DType type) {
  return type == DType::kF64 ? 1e-9 : is_half(type) ? 0.03 : 1e-4;
}

void expect_close(const Tensor& have, const Tensor& want) {
  ASSERT_EQ(have.dtype(), want.dtype());
  ASSERT_EQ(have.sizes(), want.sizes());
  double largest = 0;
  for (int64_t i = 0; i < want.numel(); ++i)
    if (std::isfinite(want.get(i))) largest = std::max(largest, std::abs(want.get(i)));
  for (int64_t i = 0; i < want.numel(); ++i) {
    if (!is_float(want.dtype())) {
      ASSERT_EQ(have.get_int(i), want.get_int(i)) << "element " << i;
    } else if (std::isfinite(want.get(i))) {
      ASSERT_NEAR(have.get(i), want.get(i), tolerance(want.dtype()) * largest) << "element " << i;
    } else {
      ASSERT_EQ(std::isnan(have.get(i)), std::isnan(want.get(i))) << "element " << i;
    }
  }
}

class ExportedZoo : public ::testing::TestWithParam<std::string> {};

TEST_P(ExportedZoo, GivesTheNumbersOfTorch) {
  const fs::path stem = fs::path(KILN_SOURCE_DIR "/tests/graphs/zoo") / GetParam();
  const auto program = read_exported_program(stem.string() + ".pt2");
  ASSERT_TRUE(program) << program.error().message;
  const auto given = read_safetensors(stem.string() + ".safetensors");
  ASSERT_TRUE(given) << given.error().message;
  std::vector<Tensor> inputs;
  int next = 0;
  for (const ExportedInput& input : program->inputs) {
    if (input.kind == ExportedInput::Kind::kUser) {
      const auto laid_out = to_input_layout(given->at("in" + std::to_string(next++)), input);
      ASSERT_TRUE(laid_out) << laid_out.error().message;
      inputs.push_back(laid_out->clone());
    } else {
      auto payload = read_payload(stem.string() + ".pt2", input);
      ASSERT_TRUE(payload) << input.name << ": " << payload.error().message;
      inputs.push_back(std::move(*payload));
    }
  }
  std::vector<const Tensor*> pointers;
  for (const Tensor& each : inputs) pointers.push_back(&each);
  const auto outputs = interpret(program->graph, pointers);
  ASSERT_TRUE(outputs) << outputs.error().message;
  size_t compared = 0;
  for (size_t i = 0; i < outputs->size(); ++i) {
    const auto want = given->find("out" + std::to_string(i));
    if (want == given->end()) continue;
    SCOPED_TRACE("output " + std::to_string(i));
    ASSERT_NO_FATAL_FAILURE(expect_close((*outputs)[i], want->second));
    ++compared;
  }
  EXPECT_GT(compared, 0u);
}

INSTANTIATE_TEST_SUITE_P(Programs, ExportedZoo, ::testing::ValuesIn(programs()),
                         [](const auto& program) { return program.param; });

}  // namespace
}  // namespace kiln
