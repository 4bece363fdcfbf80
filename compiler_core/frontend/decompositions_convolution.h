// Transposed convolutions and the gradients of convolutions, as convolutions. Builder functions;
// results have the compute type. `attr` is always the forward convolution's.
#pragma once

#include "compiler_core/ir/builder.h"

namespace kiln {

// The transposed convolution of x [n, g*c, spatial...] with w [g*c, o, window...] -> [n, g*o,
// spatial'...], spatial' = (spatial - 1) * stride - low - high + dilation * (window - 1) +
// output_padding + 1.
NodeId transposed_convolution(GraphBuilder& b, NodeId x, NodeId w, const ConvolutionAttr& attr,
                              const std::vector<int64_t>& output_padding);

// With respect to x of the shape `x`: a transposed convolution of the result's gradient.
// Spatial sizes are constants.
NodeId convolution_input_gradient(GraphBuilder& b, NodeId gradient, NodeId w,
                                  const ConvolutionAttr& attr, Shape x);
// With respect to a weight of the shape `w`: a convolution of x by the gradient, with batch and
// channels exchanged, stride and dilation too. All sizes are constants.
NodeId convolution_weight_gradient(GraphBuilder& b, NodeId gradient, NodeId x,
                                   const ConvolutionAttr& attr, Shape w);
// With respect to a bias a channel: [channels].
NodeId convolution_bias_gradient(GraphBuilder& b, NodeId gradient);

}  // namespace kiln
