// What quoted.cc has for main.cc. compile_and_run() wants a service and a GPU: it is compiled only.
#pragma once

#include <span>

#include "client/client.h"

kiln::Result<kiln::Graph> graph_with_a_custom_op();  // tanh(swish(sin(x)) + bias)
void compile_and_run(std::span<const kiln::Tensor* const> inputs,
                     std::span<const kiln::DevicePtr> device_inputs,
                     std::span<const kiln::DevicePtr> device_outputs, kiln::CudaStream stream);
