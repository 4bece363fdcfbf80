// The frame that every generated CUDA source has: the vocabulary of printing/device/*.cuh, and
// kernels with the launch model's signature (program/artifact.h). Pure functions.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

// The text every source starts with: LANES (a power of two: the neighbouring elements of one
// thread's vector), index_t (int when every place in every buffer fits one), the vocabulary.
// `extra`: further template files, "mma.cuh".
std::string cuda_preamble(const Graph& graph, int lanes,
                          const std::vector<std::string_view>& extra = {});

// How a kernel begins. One that may begin before those in front of it have ended, as all printed
// templates' may (printed_template.cc), lets the next one begin and waits, first of all or in its body.
enum class KernelStart : uint8_t { kBehindOthers, kAsTheBodySays };

// The parameters of a phase that lists its arguments: the buffers of `graph`, the workspace, and
// then what is added. REQUIRES: no symbols.
class KernelParameters {
 public:
  explicit KernelParameters(const Graph& graph);
  void add_map(std::string_view name, TensorMap map);  // as the parameter `name`_map
  void add_ready(int input);  // as the parameter ready`input`: whether it may be read early
  // cuda_kernel() appends this to its own parameters.
  const std::string& text() const { return text_; }
  std::vector<KernelArgument> arguments() && { return std::move(arguments_); }

 private:
  std::string text_;
  std::vector<KernelArgument> arguments_;
};

// extern "C" __global__ ENTRY(in0, .., out0, .., workspace) { BODY }, where BODY is statements
// indented by 2. `blocks_an_sm`: how many blocks must fit an SM at once (it bounds registers); at
// least 1. `more`: parameters after those of the launch model, ", const CUtensorMap map".
std::string cuda_kernel(const std::string& entry, const Graph& graph, int threads, int blocks_an_sm,
                        const std::string& body, std::string_view more = "",
                        KernelStart start = KernelStart::kBehindOthers);

}  // namespace kiln
