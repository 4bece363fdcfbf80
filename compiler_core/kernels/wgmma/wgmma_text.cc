#include "compiler_core/kernels/wgmma/wgmma_text.h"

#include <fmt/format.h>

#include <vector>

#include "compiler_core/base/check.h"

namespace kiln {
namespace {

// In PTX, and as the tests' words have it.
struct OperandType {
  std::string_view ptx, fake;
};
OperandType operand_type(DType dtype) {
  switch (dtype) {
    case DType::kBF16:
      return {"bf16", "Bf16"};
    case DType::kF16:
      return {"f16", "F16"};
    case DType::kF8E4M3:
      return {"e4m3", "E4m3"};
    case DType::kF8E5M2:
      return {"e5m2", "E5m2"};
    case DType::kI8:
      return {"s8", "S8"};
    case DType::kU8:
      return {"u8", "U8"};
    default:
      CHECK(false, "the tensor cores multiply halves and what has 8 bits");
  }
}

// The immediates behind the operands: neither is negated, and which of the halves' are transposed.
std::string print_ends(const WgmmaInstruction& x) {
  if (is_integer(x.a)) return "";
  if (is_f8(x.a)) return ", 1, 1";
  std::string text = ", 1, 1";
  if (!x.a_in_registers) text += x.a_inner ? ", 0" : ", 1";
  return text + (x.b_inner ? ", 0" : ", 1");
}

}  // namespace

// PTX, for which the tests have words of their own.
std::string print_wgmma(const WgmmaInstruction& x) {
  const int count = x.columns / 2;
  const bool integers = is_integer(x.a);
  std::vector<std::string> places, sums;
  for (int i = 0; i < count; ++i) {
    places.push_back(fmt::format("%{}", i));
    sums.push_back(fmt::format("\"+{}\"(d[{}])", integers ? 'r' : 'f', i));
  }
  // From 64 columns (of 64 deep atoms) to the next; from 8 rows of 128 bytes to the next.
  const auto descriptor = [](std::string_view at, bool inner) {
    return fmt::format("\"l\"(matrix_descriptor({}, {}, 1024))", at, inner ? 16 : 8192);
  };
  const int a = count, b = count + (x.a_in_registers ? 4 : 1);
  const std::string signature = fmt::format(
      "KILN_INLINE void {}({} (&d)[{}], {}, Place b, bool adds) {{\n", x.name,
      integers ? "int" : "float", count, x.a_in_registers ? "const unsigned (&a)[4]" : "Place a");
  const std::string first = x.a_in_registers
                                ? fmt::format("{{%{}, %{}, %{}, %{}}}", a, a + 1, a + 2, a + 3)
                                : fmt::format("%{}", a);
  const std::string first_value = x.a_in_registers
                                      ? "\"r\"(a[0]), \"r\"(a[1]), \"r\"(a[2]), \"r\"(a[3])"
                                      : descriptor("a", x.a_inner);
  const OperandType type_a = operand_type(x.a), type_b = operand_type(x.b);
  const std::string fake = fmt::format(
      "Matrix{}{}, {}{}>", type_a.fake, x.a_in_registers ? "" : fmt::format(", {}", x.a_inner),
      x.b_inner, x.a == x.b ? "" : fmt::format(", kiln_fake::Matrix{}", type_b.fake));
  const std::string instruction =
      fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.{}.{}.{}", x.columns, 32 / size_of(x.a),
                  integers ? "s32" : "f32", type_a.ptx, type_b.ptx);
  return fmt::format(
      "#ifndef KILN_ON_HOST\n{0}"
      "  asm volatile(\"{{\\n.reg .pred adds;\\nsetp.ne.b32 adds, %{1}, 0;\\n\"\n"
      "      \"{2} {{{3}}}, {4}, %{5}, adds{6};\\n}}\\n\"\n"
      "      : {7}\n"
      "      : {8}, {9}, \"r\"(static_cast<int>(adds)));\n"
      "}}\n"
      "#else\n{0}"
      "  kiln_fake::warpgroup_multiply<kiln_fake::{10}(d, a, b, adds);\n"
      "}}\n"
      "#endif\n",
      signature, b + 1, instruction, fmt::join(places, ", "), first, b, print_ends(x),
      fmt::join(sums, ", "), first_value, descriptor("b", x.b_inner), fake);
}

void add_batch_axis(TensorMap& map, const Dim& size, const Dim& stride) {
  if (stride.is(0)) return;
  map.sizes.push_back(size);
  map.strides.push_back(stride * size_of(map.dtype));
  map.box.push_back(1);
}

void finish_map(TensorMap& map) {
  map.element_strides.assign(map.sizes.size(), 1);
  map.swizzle = map.box[0] * static_cast<int>(size_of(map.dtype));
  map.l2_promotion = 256;
}

}  // namespace kiln
