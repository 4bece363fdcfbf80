#include "compiler_core/kernels/wgmma/wgmma_text.h"

#include <fmt/format.h>

#include <vector>

namespace kiln {

// PTX, for which the tests have words of their own.
std::string print_wgmma(const WgmmaInstruction& x) {
  const int count = x.columns / 2;
  std::vector<std::string> places, sums;
  for (int i = 0; i < count; ++i) {
    places.push_back(fmt::format("%{}", i));
    sums.push_back(fmt::format("\"+f\"(d[{}])", i));
  }
  // From 64 columns (of 64 deep atoms) to the next; from 8 rows of 128 bytes to the next.
  const auto descriptor = [](std::string_view at, bool inner) {
    return fmt::format("\"l\"(matrix_descriptor({}, {}, 1024))", at, inner ? 16 : 8192);
  };
  const int a = count, b = count + (x.a_in_registers ? 4 : 1);
  const std::string signature =
      fmt::format("KILN_INLINE void {}(float (&d)[{}], const {}, const char* b, bool adds) {{\n",
                  x.name, count, x.a_in_registers ? "unsigned (&a)[4]" : "char* a");
  const std::string first = x.a_in_registers
                                ? fmt::format("{{%{}, %{}, %{}, %{}}}", a, a + 1, a + 2, a + 3)
                                : fmt::format("%{}", a);
  const std::string first_value = x.a_in_registers
                                      ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])"
                                      : descriptor("a", x.a_inner);
  const std::string transposed = x.a_in_registers
                                     ? fmt::format("{}", x.b_inner ? 0 : 1)
                                     : fmt::format("{}, {}", x.a_inner ? 0 : 1, x.b_inner ? 0 : 1);
  const std::string fake =
      fmt::format("Matrix{}{}, {}>", x.stored == DType::kBF16 ? "Bf16" : "F16",
                  x.a_in_registers ? "" : fmt::format(", {}", x.a_inner), x.b_inner);
  return fmt::format(
      "#ifndef KILN_ON_HOST\n{0}"
      "  asm volatile(\"{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{1}, 0;\\n\"\n"
      "      \"wgmma.mma_async.sync.aligned.m64n{2}k16.f32.{3}.{3} {{{4}}}, {5}, %{6}, adds, 1, 1, "
      "{7};\\n}}\\n\"\n"
      "      : {8}\n"
      "      : {9}, {10}, \"r\"(static_cast<int>(adds)));\n"
      "}}\n"
      "#else\n{0}"
      "  kiln_fake::warpgroup_multiply<kiln_fake::{11}(d, a, b, adds);\n"
      "}}\n"
      "#endif\n",
      signature, b + 1, x.columns, x.stored == DType::kBF16 ? "bf16" : "f16",
      fmt::join(places, ", "), first, b, transposed, fmt::join(sums, ", "), first_value,
      descriptor("b", x.b_inner), fake);
}

MappedParameters::MappedParameters(const Graph& graph) {
  using enum KernelArgument::Kind;
  const auto buffers = static_cast<int>(graph.inputs().size() + graph.outputs().size());
  for (int i = 0; i < buffers; ++i) arguments_.push_back({kBuffer, i});
  arguments_.push_back({kWorkspace});
}

void MappedParameters::add(std::string_view name, TensorMap map) {
  text_ += fmt::format(", const __grid_constant__ CUtensorMap {}_map", name);
  arguments_.push_back({KernelArgument::Kind::kTensorMap, 0, std::move(map)});
}

void add_batch_axis(TensorMap& map, const Dim& size, const Dim& stride) {
  if (stride.is(0)) return;
  map.sizes.push_back(size);
  map.strides.push_back(stride * 2);
  map.box.push_back(1);
}

void finish_map(TensorMap& map) {
  map.element_strides.assign(map.sizes.size(), 1);
  map.swizzle = map.box[0] * 2;
  map.l2_promotion = 256;
}

}  // namespace kiln
