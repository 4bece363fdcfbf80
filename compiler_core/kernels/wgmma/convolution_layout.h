// ConvolutionLayout: where the images and weights of a convolution lie when its product on wgmma
// reads them: in their buffers, or in the workspace, laid out by a launch before ("turn", turn.cuh).
// Keeps a reference to the graph, which must outlive it.
#pragma once

#include <cstdint>
#include <string>

#include "compiler_core/kernels/convolution/convolution_problem.h"
#include "compiler_core/kernels/kernel_template.h"
#include "compiler_core/kernels/wgmma/wgmma_convolution.h"
#include "compiler_core/kernels/wgmma/wgmma_product.h"

namespace kiln {

// The product of weights and windows of each image; channels last, of all windows and weights. Of how many
// images is known at a call only: of as many as measured.
MatmulProblem product_of(const ConvolutionProblem& convolution);

// Whether the copy engine can read the windows as they lie (cuTensorMapEncodeIm2col).
bool has_im2col(const ConvolutionProblem& convolution);

class ConvolutionLayout {
 public:
  // REQUIRES: schedule.im2col only where has_im2col().
  ConvolutionLayout(const Graph& graph, const WgmmaConvolutionSchedule& schedule);

  const ConvolutionProblem& problem() const { return problem_; }
  const MatmulProblem& product() const { return product_; }
  const MatmulOperand& x() const { return problem_.product.b; }
  const MatmulOperand& w() const { return problem_.product.a; }
  bool images_in_place() const { return images_in_place_; }
  bool weights_in_place() const { return weights_in_place_; }
  // The channels of an image, and of an element of a line of weights, as they are laid out.
  int64_t channels() const { return channels_; }
  int64_t window() const { return window_; }  // elements
  int64_t height() const { return height_; }
  int64_t width() const { return width_; }
  const Dim& images() const { return problem_.images; }
  ProductSizes product_sizes() const;
  int64_t chunks() const { return weight_channels_ / WgmmaMatmulSchedule::kDepth; }
  int64_t steps() const;  // that the depth takes
  // The bytes of an image and of a line of weights, and the number of lines, as they are laid out.
  int64_t plane_bytes() const { return height_ * width_ * channels_ * 2; }
  int64_t row_bytes() const { return window_ * weight_channels_ * 2; }
  int64_t row_count() const { return rows_; }
  // In the workspace, images first, then weights.
  Dim image_bytes() const { return images_in_place_ ? Dim(0) : images() * plane_bytes(); }
  int64_t weight_bytes() const { return weights_in_place_ ? 0 : rows_ * row_bytes(); }
  // C expressions of where they begin.
  std::string images_text() const { return place(images_in_place_, x(), 0); }
  std::string weights_text() const { return place(weights_in_place_, w(), image_bytes()); }

  // Puts the launch in front of the product's, where has_turn(): also to clear so many counters,
  // which lie at `counters_at` in the workspace.
  void add_turn(Source& source, int64_t counters, const Dim& counters_at) const;
  // Whether there is anything to do before the product.
  bool has_turn(int64_t counters) const {
    return !images_in_place_ || !weights_in_place_ || counters > 0;
  }

 private:
  bool is_contiguous_weight() const;
  bool is_mappable_weight() const;
  std::string place(bool in_place, const MatmulOperand& operand, const Dim& offset) const;
  int64_t vector() const;
  int64_t reached_height() const;
  int64_t reached_width() const;
  // Blocks of the launch in front, for each part of it.
  Dim image_tiles() const;
  Dim border_blocks() const;
  int64_t weight_blocks() const;
  int64_t weight_parts() const;
  std::string print_place_of_weights() const;
  std::string print_types() const;

  const Graph& graph_;
  const WgmmaConvolutionSchedule schedule_;
  const ConvolutionProblem problem_;
  const MatmulProblem product_;
  const bool images_in_place_;  // they are laid out so already
  const int64_t channels_, weight_channels_, window_, height_, width_, rows_;
  const bool weights_in_place_;
};

}  // namespace kiln
