#include "compiler_core/ir/op.h"

#include <array>

namespace kiln {
namespace {

using K = OpKind;
// In the order of the enum.
constexpr std::array<OpTraits, kOpCount> kTraits = {{
    {"input", K::kSource, 0, false},
    {"constant", K::kSource, 0, false},
    {"iota", K::kSource, 0, false},
    {"neg", K::kUnary, 1, false},
    {"abs", K::kUnary, 1, false},
    {"sign", K::kUnary, 1, false},
    {"floor", K::kUnary, 1, false},
    {"ceil", K::kUnary, 1, false},
    {"trunc", K::kUnary, 1, false},
    {"round", K::kUnary, 1, false},
    {"sqrt", K::kUnary, 1, false},
    {"rsqrt", K::kUnary, 1, false},
    {"reciprocal", K::kUnary, 1, false},
    {"exp", K::kUnary, 1, false},
    {"expm1", K::kUnary, 1, false},
    {"log", K::kUnary, 1, false},
    {"log1p", K::kUnary, 1, false},
    {"sin", K::kUnary, 1, false},
    {"cos", K::kUnary, 1, false},
    {"tan", K::kUnary, 1, false},
    {"tanh", K::kUnary, 1, false},
    {"erf", K::kUnary, 1, false},
    {"not", K::kUnary, 1, false},
    {"cast", K::kUnary, 1, false},
    {"add", K::kBinary, 2, true},
    {"sub", K::kBinary, 2, false},
    {"mul", K::kBinary, 2, true},
    {"div", K::kBinary, 2, false},
    {"rem", K::kBinary, 2, false},
    {"pow", K::kBinary, 2, false},
    {"atan2", K::kBinary, 2, false},
    {"max", K::kBinary, 2, true},
    {"min", K::kBinary, 2, true},
    {"and", K::kBinary, 2, true},
    {"or", K::kBinary, 2, true},
    {"xor", K::kBinary, 2, true},
    {"eq", K::kCompare, 2, true},
    {"ne", K::kCompare, 2, true},
    {"lt", K::kCompare, 2, false},
    {"le", K::kCompare, 2, false},
    {"select", K::kSelect, 3, false},
    {"view", K::kIndexMap, 1, false},
    {"pad", K::kIndexMap, 1, false},
    {"concat", K::kIndexMap, -1, false},
    {"reduce_sum", K::kReduce, 1, false},
    {"reduce_max", K::kReduce, 1, false},
    {"reduce_min", K::kReduce, 1, false},
    {"reduce_prod", K::kReduce, 1, false},
    {"scan_sum", K::kScan, 1, false},
    {"matmul", K::kContract, 2, false},
    {"convolution", K::kContract, 2, false},
    {"gather", K::kGather, 2, false},
    {"scatter", K::kScatter, 3, false},
    {"argsort", K::kSort, 1, false},
    {"philox", K::kRandom, 1, false},
    {"custom_call", K::kCustom, -1, false},
}};

}  // namespace

const OpTraits& traits(Op op) {
  return kTraits[static_cast<size_t>(op)];
}

Result<Op> parse_op(std::string_view name) {
  for (int i = 0; i < kOpCount; ++i)
    if (kTraits[static_cast<size_t>(i)].name == name) return static_cast<Op>(i);
  return fail(Code::kInvalidArgument, "unknown op '" + std::string(name.substr(0, 32)) + "'");
}

}  // namespace kiln
