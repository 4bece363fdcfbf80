#include "tests/bench/kernel_cases.h"

#include <fmt/core.h>

#include <cmath>
#include <memory>

#include "compiler_core/base/file.h"
#include "compiler_core/frontend/exported_program.h"
#include "compiler_core/ir/builder.h"
#include "tests/bench/onednn.h"
#include "tests/bench/plain_loops.h"

namespace kiln::bench {
namespace {

using Call = std::function<void()>;
using Tensors = std::span<Tensor>;

uint16_t* u16(Tensor& tensor) {
  return tensor.as<uint16_t>().data();
}
float* f32(Tensor& tensor) {
  return tensor.as<float>().data();
}

// ---- Matmuls, built: the shapes of large/ scaled to what two cores do in a second ----

KernelCase square(DType dtype, int64_t size) {
  GraphBuilder b;
  const NodeId product = b.matmul(b.input(dtype, {size, size}), b.input(dtype, {size, size}));
  KernelCase made;
  made.name = fmt::format("matmul_{}", to_string(dtype));
  made.shape = fmt::format("{0}x{0}x{0}", size);
  made.graph = *b.finish({b.cast(product, dtype)});
  made.flops = 2.0 * std::pow(static_cast<double>(size), 3);
  made.against = "oneDNN";
  made.reference = [=](Tensors in, Tensors out) {
    return onednn_matmul(dtype, size, size, size, false, in[0].data(), in[1].data(), nullptr,
                         out[0].data());
  };
  return made;
}

// x[m, k] times weights stored [n, k]; with bias and GELU as aten.linear and aten.gelu round them.
KernelCase linear(const char* name, DType dtype, int64_t m, int64_t n, int64_t k, bool bias_gelu) {
  GraphBuilder b;
  const NodeId x = b.input(dtype, {m, k});
  NodeId y = b.matmul(x, b.permute(b.input(dtype, {n, k}), {1, 0}));
  if (bias_gelu) {
    const auto constant = [&](double value) {
      return b.broadcast(b.constant(DType::kF32, value), {m, n});
    };
    const NodeId bias = b.cast(b.broadcast(b.input(dtype, {n}), {m, n}), DType::kF32);
    y = b.cast(b.cast(b.binary(Op::kAdd, y, bias), dtype), DType::kF32);
    const NodeId erf = b.unary(Op::kErf, b.binary(Op::kMul, y, constant(std::sqrt(0.5))));
    y = b.binary(Op::kMul, b.binary(Op::kMul, y, constant(0.5)),
                 b.binary(Op::kAdd, erf, constant(1)));
  }
  KernelCase made;
  made.name = fmt::format("{}_{}", name, to_string(dtype));
  made.shape = fmt::format("{}x{}->{}", m, k, n);
  made.graph = *b.finish({b.cast(y, dtype)});
  made.flops = 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  made.against = "oneDNN";
  made.reference = [=](Tensors in, Tensors out) {
    return onednn_matmul(dtype, m, n, k, true, in[0].data(), in[1].data(),
                         bias_gelu ? in[2].data() : nullptr, out[0].data());
  };
  return made;
}

// Layers of resnet18.
KernelCase convolution(DType dtype, const SquareConvolution& shape) {
  GraphBuilder b;
  const auto& [n, c, size, o, window, stride, padding] = shape;
  const NodeId x = b.input(dtype, {n, c, size, size});
  const NodeId y =
      b.convolution(x, b.input(dtype, {o, c, window, window}),
                    {{stride, stride}, {1, 1}, {padding, padding}, {padding, padding}, 1});
  KernelCase made;
  made.name = fmt::format("convolution_{}", to_string(dtype));
  made.shape = fmt::format("{0}x{1}x{2}x{2} by {3}x{4}x{4}/{5}", n, c, size, o, window, stride);
  made.graph = *b.finish({b.cast(y, dtype)});
  made.flops = 2.0 * static_cast<double>(n * o * shape.result() * shape.result()) *
               static_cast<double>(c * window * window);
  made.against = "oneDNN";
  made.reference = [=](Tensors in, Tensors out) {
    return onednn_convolution(dtype, shape, in[0].data(), in[1].data(), out[0].data());
  };
  return made;
}

// ---- Memory-bound programs: large/ itself, at full size ----

Call softmax_call(Tensors in, Tensors out) {
  return onednn_softmax(in[0].dtype(), in[0].sizes()[0], in[0].sizes()[1], in[0].data(),
                        out[0].data());
}

Call layernorm_call(Tensors in, Tensors out) {
  // oneDNN takes weight and bias in f32 only.
  auto rows = std::make_shared<std::pair<Tensor, Tensor>>(Tensor(DType::kF32, in[1].sizes()),
                                                          Tensor(DType::kF32, in[2].sizes()));
  for (int64_t i = 0; i < in[1].numel(); ++i) {
    rows->first.set(i, in[1].get(i));
    rows->second.set(i, in[2].get(i));
  }
  Call call = onednn_layernorm(in[0].dtype(), in[0].sizes()[0], in[0].sizes()[1], in[0].data(),
                               f32(rows->first), f32(rows->second), out[0].data());
  return [rows, call] { call(); };
}

Call sincos_call(Tensors in, Tensors out) {
  return [=] { sincos_f32(f32(in[0]), f32(in[1]), f32(out[0]), out[0].numel()); };
}

Call gelu_call(Tensors in, Tensors out) {
  return [=] { tanh_gelu_bf16(u16(in[0]), u16(out[0]), out[0].numel()); };
}

Call swiglu_call(Tensors in, Tensors out) {
  return [=] { swiglu_bf16(u16(in[0]), u16(in[1]), u16(out[0]), out[0].numel()); };
}

Call rmsnorm_call(Tensors in, Tensors out) {
  return [=] {
    rmsnorm_residual_bf16(u16(in[0]), u16(in[1]), u16(in[2]), u16(out[1]), u16(out[0]),
                          in[0].sizes()[0], in[0].sizes()[1]);
  };
}

Call column_sum_call(Tensors in, Tensors out) {
  return [=] { column_sum_f32(f32(in[0]), f32(out[0]), in[0].sizes()[0], in[0].sizes()[1]); };
}

Result<KernelCase> from_archive(const char* name, const char* against,
                                Call (*reference)(Tensors in, Tensors out)) {
  TRY(ExportedProgram program,
      read_graph_file(Path(KILN_GRAPHS_DIR) / "large" / fmt::format("{}.pt2", name)));
  const Node& first = program.graph.node(program.graph.inputs()[0]);
  KernelCase made;
  made.name = fmt::format("{}_{}", name, to_string(first.dtype));
  made.shape = to_string(first.shape);
  made.against = against;
  made.graph = std::move(program.graph);
  made.reference = reference;
  return made;
}

}  // namespace

Result<std::vector<KernelCase>> kernel_cases(std::string_view filter) {
  std::vector<KernelCase> all;
  for (const DType dtype : {DType::kF32, DType::kBF16})
    for (const int64_t size : {512, 1024, 2048}) all.push_back(square(dtype, size));
  all.push_back(linear("linear_decode", DType::kF32, 16, 14336, 4096, false));
  all.push_back(linear("linear_decode", DType::kBF16, 16, 14336, 4096, false));
  all.push_back(linear("linear_bias_gelu", DType::kF32, 256, 4096, 1024, true));
  all.push_back(linear("linear_bias_gelu", DType::kBF16, 256, 4096, 1024, true));
  for (const SquareConvolution& shape : {SquareConvolution{1, 64, 56, 64, 3, 1, 1},
                                         {1, 256, 14, 256, 3, 1, 1},
                                         {1, 3, 224, 64, 7, 2, 3},
                                         {1, 64, 56, 128, 1, 2, 0},
                                         {1, 256, 14, 512, 1, 1, 0}})
    all.push_back(convolution(DType::kF32, shape));
  const auto archive = [&](const char* name, const char* against, auto reference) -> Status {
    TRY(KernelCase made, from_archive(name, against, reference));
    all.push_back(std::move(made));
    return {};
  };
  TRY_STATUS(archive("softmax", "oneDNN", softmax_call));
  TRY_STATUS(archive("layernorm", "oneDNN", layernorm_call));
  TRY_STATUS(archive("sincos", "plain loop", sincos_call));
  TRY_STATUS(archive("fused_gelu", "plain loop", gelu_call));
  TRY_STATUS(archive("swiglu", "plain loop", swiglu_call));
  TRY_STATUS(archive("rmsnorm_residual", "plain loop", rmsnorm_call));
  TRY_STATUS(archive("colsum", "plain loop", column_sum_call));
  std::erase_if(all, [&](const KernelCase& one) {
    return fmt::format("{} {}", one.name, one.shape).find(filter) == std::string::npos;
  });
  return all;
}

}  // namespace kiln::bench
