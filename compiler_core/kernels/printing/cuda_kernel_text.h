// The frame that every generated CUDA source has: the vocabulary of printing/device/*.cuh, and
// kernels with the launch model's signature (program/artifact.h). Pure functions.
#pragma once

#include <string>
#include <vector>

#include "compiler_core/kernels/kernel_template.h"

namespace kiln {

// The text every source starts with: LANES (a power of two: the neighbouring elements of one
// thread's vector), index_t (int when every place in every buffer fits one), the vocabulary.
// `extra`: further template files, "mma.cuh".
std::string cuda_preamble(const Graph& graph, int lanes,
                          const std::vector<std::string_view>& extra = {});

// extern "C" __global__ ENTRY(in0, .., out0, .., workspace) { BODY }, where BODY is statements
// indented by 2. `blocks_an_sm`: how many blocks must fit an SM at once (it bounds registers); at
// least 1. `more`: parameters after those of the launch model, ", const CUtensorMap map".
std::string cuda_kernel(const std::string& entry, const Graph& graph, int threads, int blocks_an_sm,
                        const std::string& body, std::string_view more = "");

}  // namespace kiln
