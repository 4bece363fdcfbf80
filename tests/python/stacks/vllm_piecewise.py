"""A decoder compiled by vLLM, cut at its attention, and each piece by Kiln, on the CPU. What docs/stacks.md shows.

Run with KILN_VLLM=default where vLLM is installed. Prints one line of JSON: the greatest difference to eager, and what
vLLM counts.
"""

from __future__ import annotations

import json
import os

os.environ.setdefault("VLLM_USE_AOT_COMPILE", "1")
os.environ.setdefault("VLLM_USE_MEGA_AOT_ARTIFACT", "1")

import torch
from decoder import WIDTH, Decoder
from vllm.compilation.counter import compilation_counter
from vllm.compilation.decorators import support_torch_compile
from vllm.config import CompilationConfig, CompilationMode, CUDAGraphMode, VllmConfig, set_current_vllm_config
from vllm.config.device import DeviceConfig
from vllm.config.vllm import OptimizationLevel
from vllm.forward_context import set_forward_context
from vllm.plugins import load_general_plugins

MOST_TOKENS = 64


def main() -> None:
    load_general_plugins()  # as each of vLLM's processes does at its start, before it imports a model

    @support_torch_compile(dynamic_arg_dims={"x": 0})
    class Compiled(Decoder):
        pass

    config = VllmConfig(
        device_config=DeviceConfig(device="cpu"), optimization_level=OptimizationLevel.O0,  # no passes for GPUs
        compilation_config=CompilationConfig(
            mode=CompilationMode.VLLM_COMPILE, custom_ops=["none"], splitting_ops=["kiln_example::attention"],
            compile_sizes=[8], cudagraph_mode=CUDAGraphMode.NONE))
    torch.manual_seed(0)
    with set_current_vllm_config(config), torch.inference_mode():
        eager = Decoder(vllm_config=config).requires_grad_(False)
        compiled = Compiled(vllm_config=config)
        compiled.load_state_dict(eager.state_dict())
        compiled.requires_grad_(False)
        error = 0.0
        for tokens in (17, 8, 1, MOST_TOKENS):
            x = torch.randn(tokens, WIDTH)
            with set_forward_context(None, config, num_tokens=tokens):
                error = max(error, float((compiled(x) - eager(x)).abs().max()))
    print(json.dumps({"backend": config.compilation_config.backend, "error": error,
                      "pieces": compilation_counter.num_backend_compilations,
                      "inductor": compilation_counter.num_inductor_compiles,
                      "saved": compilation_counter.num_aot_artifacts_saved,
                      "loaded": compilation_counter.num_aot_artifacts_loaded}))


if __name__ == "__main__":
    main()
