// KernelOffer: a kernel of the caller's own, to be tried as a candidate for what a graph computes
// (program/offered_kernel.h says what becomes of it). The graph must plan into one kernel: the offer is
// for that kernel's workload, wherever else it occurs. Values; pure but for the compilers.
#pragma once

#include <string>
#include <variant>
#include <vector>

#include "compiler_core/ir/graph.h"
#include "compiler_core/program/offered_kernel.h"

namespace kiln {

// A cubin that another compiler made.
struct KernelBinary {
  std::string bytes;
  std::string entry;
  int64_t blocks = 0;  // of the grid, which has one axis
  int threads = 0;     // a block
  int cluster = 1;
  int64_t shared_bytes = 0;  // dynamic, a block
  int null_pointers =
      0;  // behind the arguments: parameters for scratch memory of which it needs none
  bool dependent_launch = false;  // see kiln_candidate
};
// Source, compiled here (kernels/custom/offered_source.h has its rules).
struct KernelText {
  std::string text, function;
  int64_t items = 0;  // 0: the elements of the first output
  int64_t block = 1024;
  int threads = 256;
  int64_t shared_bytes = 0;
};

struct KernelOffer {
  std::string name;
  Target target;  // a backend alone means this machine's CPU; a GPU is named in full
  // The kernel's arguments, in order: 0 and up are the graph's inputs, -1 and down its outputs.
  std::vector<int> arguments;
  std::variant<KernelText, KernelBinary> kernel;
};

struct OfferCompilers {
  std::string host, libnvrtc;  // as HostCompiler::find() and Nvrtc::find() take them
};

// The kernel as it is put into a coordinator's store. kInvalidArgument: the graph plans into several
// kernels, or none (the message says which); the kernel leaves out an argument that the graph's has, or has
// another; its text does not compile; its name or launch is none. kUnsupported: sizes that depend on
// the call; a graph or target that Kiln does not cover. kUnavailable: no compiler.
Result<OfferedKernel> make_offer(const Graph& graph, const KernelOffer& offer,
                                 const OfferCompilers& compilers);

}  // namespace kiln
