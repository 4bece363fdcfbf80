// Channels-last: images [n, channels, height, width] that lie in memory as [n, height, width,
// channels]. A graph has no layouts: such a value is a node of that shape, and what wants the
// channels second reads it through a View (rewrites/keep_channels_last.cc makes graphs so). Pure
// functions.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "compiler_core/ir/graph.h"

namespace kiln {

// The axis of [n, height, width, channels] that axis `axis` of [n, channels, height, width] is.
int channels_last_axis(int axis);

// The sizes of images [n, ...]; an n with symbols counts as 1. nullopt: another size has symbols.
std::optional<std::vector<int64_t>> image_sizes(const Shape& shape);

// Whether `view` is a View that reads an image as it stands, its channels last.
bool puts_channels_last(const Graph& graph, const Node& view);

constexpr int64_t kMostDepthwiseReach = 32;

// Whether the kernels that store channels last (cuda.convolution.wgmma, and
// cuda.convolution.depthwise.channels_last) are written for `convolution`: halves of two spatial axes, any
// number of images and known sizes besides, channels in whole 16 bytes, no groups or one of each channel; those of windows that reach
// no more than kMostDepthwiseReach columns.
// REQUIRES: it is a node of `graph`.
bool may_end_channels_last(const Graph& graph, NodeId convolution);

// The one reader of `convolution`, where that is a View of its result with the channels last, and
// may_end_channels_last(); kInvalidNode otherwise.
NodeId find_channels_last_view(const Graph& graph, NodeId convolution);

// The node of a kConvolution workload that epilogues read: the Convolution, or the View of it that
// puts its channels last.
NodeId convolution_result(const Graph& workload, NodeId convolution);

}  // namespace kiln
