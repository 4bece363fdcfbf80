// ConvolutionProblem: a convolution workload in numbers: what schedules are chosen by and code is
// printed from. A value.
#pragma once

#include <array>
#include <cstdint>

#include "compiler_core/ir/graph.h"
#include "compiler_core/kernels/matmul/matmul_problem.h"
#include "compiler_core/plan/workload.h"

namespace kiln {

// One entry for each of three spatial axes; absent ones lead, with size 1.
using Spatial = std::array<int64_t, 3>;
using SizedSpatial = std::array<Dim, 3>;

// Sizes that may be known at run time only: x's and the result's, and so how x lies in its input,
// in elements.
struct SizedImages {
  SizedSpatial in, out, at;
  Dim offset, image, group, channel;  // strides, but for the first
  Dim positions = 1;                  // of the result
  bool is_constant() const;           // then nothing but the number of images may have symbols
};

// Each image and group of channels is a matrix product (implicit GEMM): weights [m, k] times
// windows [k, n], where n counts positions of the result, k a group's channels times the window's
// elements (in that order), m a group's results a position.
struct ConvolutionProblem {
  // Sizes and strides that are known only at run time count as 1, here and below, but for the number of
  // images, which is that at the measured sizes (plan/sizes.h). Batch axes: images, groups. a is the weight,
  // whose column stride only counts when the weight is flat. b is x, with the strides of its batch axes; its
  // windows overlap, so it has no others.
  MatmulProblem product;
  Dim images = 1;
  SizedImages sized;  // all that may have symbols besides
  int64_t groups = 1;
  int64_t channels = 1;  // a group
  Spatial in{}, out{}, window{}, stride{}, dilation{};
  Spatial low{};          // zeros before x
  int64_t x_channel = 0;  // element strides of x and of the weight
  Spatial x_at{};
  int64_t w_channel = 0;
  Spatial w_at{};
  bool flat_weight = true;     // its channels and window are one axis, with a's column stride
  bool channels_last = false;  // so the result is stored: see plan/workload.h

  // How far the windows reach along each axis, from the first padding zero on.
  Spatial reach() const;
  SizedSpatial sized_reach() const;
  // Whether every window lies inside x: there is no padding to read.
  bool is_inside() const;
  // Elements of x, with its padding, that one channel's windows read from.
  int64_t plane() const;
  Dim sized_plane() const;

  // REQUIRES: `workload` keeps the rules of kConvolution.
  static ConvolutionProblem of(const Graph& workload);
};

// kUnsupported where the result is stored channels last: for templates that do not.
Status check_channels_are_second(const Workload& workload);

}  // namespace kiln
