#include "tests/compiler_core/kernels/convolution_workloads.h"

#include <gtest/gtest.h>

namespace kiln::testing {

Workload planned(GraphBuilder& b, NodeId output) {
  const auto graph = b.finish({output});
  EXPECT_TRUE(graph) << graph.error().message;
  const auto made = make_workload(*graph);
  EXPECT_TRUE(made) << made.error().message;
  EXPECT_EQ(made->workload.family, Family::kConvolution);
  return made->workload;
}

ConvolutionAttr padded(int64_t stride, int64_t zeros, int64_t groups) {
  return {{stride, stride}, {1, 1}, {zeros, zeros}, {zeros, zeros}, groups};
}

Workload plain(DType dtype, Shape x, Shape w, ConvolutionAttr attr) {
  GraphBuilder b;
  const NodeId image = b.input(dtype, std::move(x));
  const NodeId y = b.convolution(image, b.input(dtype, std::move(w)), std::move(attr));
  return planned(b, is_half(dtype) ? b.cast(y, dtype) : y);
}

}  // namespace kiln::testing
