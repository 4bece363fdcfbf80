#include "tests/system/faults/small_program.h"

#include <fmt/format.h>

#include <cstring>
#include <vector>

#include "compiler_core/base/check.h"

namespace kiln::testing {
namespace {

constexpr int kNumbers = 1000, kRows = 24, kColumns = 40;

struct NamedTensor {
  std::string name, sizes;
  std::vector<float> values;
};

// https://huggingface.co/docs/safetensors: u64 length, JSON, bytes.
std::string safetensors(const std::vector<NamedTensor>& tensors) {
  std::string header, bytes;
  for (const NamedTensor& tensor : tensors) {
    const size_t begin = bytes.size(), size = tensor.values.size() * sizeof(float);
    bytes.append(reinterpret_cast<const char*>(tensor.values.data()), size);
    header +=
        fmt::format(R"({}"{}":{{"dtype":"F32","shape":[{}],"data_offsets":[{},{}]}})",
                    header.empty() ? "" : ",", tensor.name, tensor.sizes, begin, begin + size);
  }
  header = "{" + header + "}";
  const uint64_t length = header.size();
  std::string file(sizeof length, '\0');
  std::memcpy(file.data(), &length, sizeof length);
  return file + header + bytes;
}

// Whole numbers, so that every way of computing gives the same.
std::vector<float> inputs(int count) {
  std::vector<float> values;
  for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i % 17 - 8));
  return values;
}

std::string pointwise_text(double factor) {
  return fmt::format(
      "kiln.graph 1\n%0 = input 0 : f32[{0}]\n%1 = constant {1:a} : f32[]\n"
      "%2 = view %1 strides=[0] offset=[0] : f32[{0}]\n%3 = mul %0 %2 : f32[{0}]\n"
      "%4 = add %3 %0 : f32[{0}]\nreturn %4\n",
      kNumbers, factor);
}

std::string sums_text(double factor) {
  return fmt::format(
      "kiln.graph 1\n%0 = input 0 : f32[{0},{1}]\n%1 = constant {2:a} : f32[]\n"
      "%2 = view %1 strides=[0,0] offset=[0] : f32[{0},{1}]\n%3 = mul %0 %2 : f32[{0},{1}]\n"
      "%4 = reduce_sum %3 axes=[0] : f32[{1}]\n%5 = reduce_sum %3 axes=[1] : f32[{0}]\n"
      "return %4 %5\n",
      kRows, kColumns, factor);
}

std::vector<std::vector<float>> sums(const std::vector<float>& x, float factor) {
  std::vector<float> columns(kColumns), rows(kRows);
  for (size_t i = 0; i < x.size(); ++i) {
    columns[i % kColumns] += x[i] * factor;
    rows[i / kColumns] += x[i] * factor;
  }
  return {columns, rows};
}

}  // namespace

SmallProgram small_program(const Path& directory, int number) {
  const std::string stem = (directory / fmt::format("program{}", number)).string();
  const bool has_sums = number % 3 == 2;
  const auto factor = static_cast<float>(number + 2);
  SmallProgram program{number, stem + ".graph", stem + ".safetensors", {}, {}};
  program.x = inputs(has_sums ? kRows * kColumns : kNumbers);
  if (has_sums) {
    program.out = sums(program.x, factor);
  } else {
    program.out.emplace_back();
    for (const float x : program.x) program.out[0].push_back(x * factor + x);
  }
  if (std::filesystem::exists(program.answer)) return program;
  std::vector<NamedTensor> tensors = {
      {"in0", has_sums ? fmt::format("{},{}", kRows, kColumns) : std::to_string(kNumbers),
       program.x}};
  for (size_t i = 0; i < program.out.size(); ++i)
    tensors.push_back(
        {fmt::format("out{}", i), std::to_string(program.out[i].size()), program.out[i]});
  CHECK(write_file(program.graph, has_sums ? sums_text(factor) : pointwise_text(factor)) &&
            write_file(program.answer, safetensors(tensors)),
        "the test's own directory");
  return program;
}

}  // namespace kiln::testing
