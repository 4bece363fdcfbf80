#include "tests/bench/onednn.h"

#include <dnnl.hpp>
#include <unordered_map>

namespace kiln::bench {
namespace {

using dnnl::memory;

dnnl::engine& engine() {
  static dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

memory::data_type type_of(DType dtype) {
  return dtype == DType::kBF16 ? memory::data_type::bf16 : memory::data_type::f32;
}

std::function<void()> executing(dnnl::primitive primitive,
                                std::unordered_map<int, memory> arguments) {
  dnnl::stream stream(engine());
  return [primitive = std::move(primitive), arguments = std::move(arguments),
          stream = std::move(stream)]() mutable {
    primitive.execute(stream, arguments);
    stream.wait();
  };
}

}  // namespace

std::function<void()> onednn_matmul(DType dtype, int64_t m, int64_t n, int64_t k, bool transposed,
                                    void* x, void* w, void* bias, void* out) {
  const auto type = type_of(dtype);
  const memory::desc source({m, k}, type, memory::format_tag::ab);
  const memory::desc weights({k, n}, type,
                             transposed ? memory::format_tag::ba : memory::format_tag::ab);
  const memory::desc target({m, n}, type, memory::format_tag::ab);
  std::unordered_map<int, memory> arguments = {{DNNL_ARG_SRC, memory(source, engine(), x)},
                                               {DNNL_ARG_WEIGHTS, memory(weights, engine(), w)},
                                               {DNNL_ARG_DST, memory(target, engine(), out)}};
  if (bias == nullptr) {
    const dnnl::matmul::desc plain(source, weights, target);
    return executing(dnnl::matmul(dnnl::matmul::primitive_desc(plain, engine())), arguments);
  }
  const memory::desc bias_row({1, n}, type, memory::format_tag::ab);
  arguments[DNNL_ARG_BIAS] = memory(bias_row, engine(), bias);
  dnnl::post_ops gelu;
  gelu.append_eltwise(1, dnnl::algorithm::eltwise_gelu_erf, 0, 0);
  dnnl::primitive_attr attributes;
  attributes.set_post_ops(gelu);
  const dnnl::matmul::desc fused(source, weights, bias_row, target);
  return executing(dnnl::matmul(dnnl::matmul::primitive_desc(fused, attributes, engine())),
                   arguments);
}

std::function<void()> onednn_convolution(DType dtype, const SquareConvolution& shape, void* x,
                                         void* w, void* out) {
  const auto type = type_of(dtype);
  const auto& [n, c, size, o, window, stride, padding] = shape;
  const memory::desc image({n, c, size, size}, type, memory::format_tag::nchw);
  const memory::desc weight({o, c, window, window}, type, memory::format_tag::oihw);
  const memory::desc target({n, o, shape.result(), shape.result()}, type, memory::format_tag::nchw);
  const dnnl::convolution_forward::desc convolution(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct, image, weight,
      target, {stride, stride}, {padding, padding}, {padding, padding});
  return executing(
      dnnl::convolution_forward(dnnl::convolution_forward::primitive_desc(convolution, engine())),
      {{DNNL_ARG_SRC, memory(image, engine(), x)},
       {DNNL_ARG_WEIGHTS, memory(weight, engine(), w)},
       {DNNL_ARG_DST, memory(target, engine(), out)}});
}

std::function<void()> onednn_softmax(DType dtype, int64_t rows, int64_t columns, void* x,
                                     void* out) {
  const memory::desc shape({rows, columns}, type_of(dtype), memory::format_tag::ab);
  const dnnl::softmax_forward::desc softmax(dnnl::prop_kind::forward_inference, shape, 1);
  return executing(
      dnnl::softmax_forward(dnnl::softmax_forward::primitive_desc(softmax, engine())),
      {{DNNL_ARG_SRC, memory(shape, engine(), x)}, {DNNL_ARG_DST, memory(shape, engine(), out)}});
}

std::function<void()> onednn_layernorm(DType dtype, int64_t rows, int64_t columns, void* x,
                                       float* weight, float* bias, void* out) {
  const memory::desc shape({rows, columns}, type_of(dtype), memory::format_tag::ab);
  const memory::desc row({columns}, memory::data_type::f32, memory::format_tag::a);
  const dnnl::layer_normalization_forward::desc layernorm(
      dnnl::prop_kind::forward_inference, shape, 1e-5f,
      dnnl::normalization_flags::use_scale | dnnl::normalization_flags::use_shift);
  return executing(dnnl::layer_normalization_forward(
                       dnnl::layer_normalization_forward::primitive_desc(layernorm, engine())),
                   {{DNNL_ARG_SRC, memory(shape, engine(), x)},
                    {DNNL_ARG_SCALE, memory(row, engine(), weight)},
                    {DNNL_ARG_SHIFT, memory(row, engine(), bias)},
                    {DNNL_ARG_DST, memory(shape, engine(), out)}});
}

}  // namespace kiln::bench
