// Depthwise convolutions (every channel has a window of its own) with an elementwise epilogue on
// CUDA: read once into shared memory, they wait for memory or for the CUDA cores. Values.
#pragma once

#include <vector>

#include "compiler_core/kernels/decisions.h"
#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

struct CudaDepthwiseSchedule {
  static constexpr std::string_view kTemplate = "cuda.convolution.depthwise";

  int channels = 1;  // of a block
  int rows = 8;      // of results, of a block
  int group = 4;     // rows of results that a thread adds up at once
  int strip = 7;     // results of each of them; odd: neighbouring threads meet in no bank
  int threads = 128;

  static void fields(auto& f, auto& s) {
    f("channels", s.channels, between(1, 256));
    f("rows", s.rows, between(1, 4096));
    f("group", s.group, between(1, 8));
    f("strip", s.strip, between(1, 15));
    f("threads", s.threads, multiples_of(32, 32, 1024));
  }
};

// kUnsupported: what is left to other kernels. REQUIRES: workload.family is kConvolution.
Status check_cuda_depthwise(const Workload& workload);

// REQUIRES: check_cuda_depthwise(workload).
std::vector<Schedule> cuda_depthwise_candidates(const Workload& workload, const Target& target);

// REQUIRES: check_cuda_depthwise() of its workload. kInvalidArgument when
// the schedule does not fit.
Result<Source> print_cuda_depthwise(const Graph& graph, const CudaDepthwiseSchedule& schedule,
                                    const Target& target);

// Of images that lie channels last, stored so: no shared memory but for weights.
struct CudaDepthwiseChannelsLastSchedule {
  static constexpr std::string_view kTemplate = "cuda.convolution.depthwise.channels_last";

  int channels = 32;  // of a block
  int lanes = 2;      // of a thread
  int group = 4;      // rows of results that a thread adds up at once
  int strip = 7;      // results of each of them
  int threads = 128;
  int blocks = 4;  // of an SM, at least
  int ahead = 0;   // 1: a thread reads all of x that its results need before it adds any of it up

  static void fields(auto& f, auto& s) {
    f("channels", s.channels, multiples_of(2, 2, 256));
    f("lanes", s.lanes, powers_of_two(2, 8));
    f("group", s.group, between(1, 8));
    f("strip", s.strip, between(1, 16));
    f("threads", s.threads, multiples_of(32, 32, 1024));
    f("blocks", s.blocks, between(1, 16));
    f("ahead", s.ahead, between(0, 1));
  }
  bool go_together() const { return channels % lanes == 0; }
};

// "cuda.convolution.depthwise", "cuda.convolution.depthwise.channels_last".
const KernelTemplate& cuda_depthwise();
const KernelTemplate& cuda_depthwise_channels_last();

}  // namespace kiln
