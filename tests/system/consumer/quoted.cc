// What the documents show of Kiln in C++: docs/custom_call.md and README.md quote this file.
#include "quoted.h"

#include <stdexcept>

#include "compiler_core/ir/custom_op.h"

kiln::CustomOp swish_bias() {
  kiln::CustomOp op;
  op.name = "mylib::swish_bias";
  // Operands' dtypes and shapes -> the result's. An exception becomes the caller's error.
  op.shape = [](std::span<const kiln::OperandType> in) {
    if (in.size() != 2 || in[0] != in[1]) throw std::invalid_argument("two tensors of one type");
    return in[0];
  };
  // The same computation in core ops.
  op.reference = [](kiln::GraphBuilder& b, std::span<const kiln::NodeId> in) {
    using kiln::Op;
    const auto one = b.broadcast(b.constant(kiln::DType::kF32, 1), b.shape(in[0]));
    const auto below = b.binary(Op::kAdd, one, b.unary(Op::kExp, b.unary(Op::kNeg, in[0])));
    return b.binary(Op::kAdd, b.binary(Op::kDiv, in[0], below), in[1]);
  };
  kiln::CustomKernel cpu;
  cpu.backend = "cpu";
  cpu.function = "swish";
  cpu.decisions = {{"UNROLL", {4, 1, 16}}};  // a macro; tuning picks the value; best guess first
  cpu.block = "1024";                        // items of one block of the grid
  cpu.source = R"(
static void swish(const float* x, const float* bias, float* out, int64_t begin, int64_t end) {
  for (int64_t i = begin; i < end; i += UNROLL)
    for (int64_t j = i; j < i + UNROLL && j < end; ++j)
      out[j] = x[j] / (1 + __builtin_expf(-x[j])) + bias[j];
})";
  op.kernels = {cpu};
  return op;
}

kiln::Result<kiln::Graph> graph_with_a_custom_op() {
  kiln::GraphBuilder b;
  const auto x = b.input(kiln::DType::kF32, {64, 256}),
             bias = b.input(kiln::DType::kF32, {64, 256});
  const kiln::NodeId operands[] = {b.unary(kiln::Op::kSin, x), bias};
  const auto graph = b.finish({b.unary(kiln::Op::kTanh, swish_bias().call(b, operands))});
  return graph;
}

void compile_and_run(std::span<const kiln::Tensor* const> inputs,
                     std::span<const kiln::DevicePtr> device_inputs,
                     std::span<const kiln::DevicePtr> device_outputs, kiln::CudaStream stream) {
  auto client =
      kiln::Client::create({.coordinator = "tcp://127.0.0.1:7557", .cache_dir = "/var/cache/kiln"});
  auto program = (*client)->compile_file("model.pt2", {.mode = kiln::Mode::kMaxAutotune});
  auto outputs = (*program)->run(inputs);  // tensors of the host
  (*program)->launch(device_inputs, device_outputs,
                     stream);  // on a GPU: your pointers, your CUstream
}
