"""A decoder compiled by SGLang, cut at its attention, and each piece by Kiln, on the CPU. What docs/stacks.md shows.

Run with KILN_SGLANG=default where SGLang is installed. Prints one line of JSON: the greatest difference to eager, and
what compiled what. SGLang's runner of pieces imports a binary for GPUs, which only captured CUDA graphs call: a module
without functions stands in its place here, and no graph is captured.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import types

import torch
from decoder import WIDTH, Decoder
from torch._dynamo.utils import counters


def main() -> None:
    name = "sglang.srt.model_executor.runner_backend_utils.weak_ref_tensor"
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].weak_ref_tensors = None  # type: ignore[attr-defined]
    from sglang.srt.plugins import load_plugins

    load_plugins()  # as each of SGLang's processes does at its start
    from sglang.srt.compilation.backend import SGLangBackend
    from sglang.srt.compilation.compilation_config import CompilationConfig
    from sglang.srt.compilation.compilation_counter import compilation_counter
    from sglang.srt.compilation.torch_compile_decoration import patch_model
    from sglang.srt.utils import get_compiler_backend

    torch.distributed.init_process_group("gloo", store=torch.distributed.HashStore(), rank=0, world_size=1)
    config = CompilationConfig(capture_sizes=[], compiler="inductor")
    config.add_split_op("kiln_example.attention")
    backend = SGLangBackend(config, graph_pool=object())
    torch.manual_seed(0)
    model = Decoder().requires_grad_(False)
    with torch.no_grad():
        compiled = torch.compile(model, backend=backend, fullgraph=True)
        error = 0.0
        for tokens in (17, 8, 64):
            x = torch.randn(tokens, WIDTH)
            torch._dynamo.maybe_mark_dynamic(x, 0)
            error = max(error, float((compiled(x) - model(x)).abs().max()))
        group = types.SimpleNamespace(ca_comm=None)
        with patch_model(model, enable_compile=True, num_tokens=8, tp_group=group) as forward:  # --enable-torch-compile
            x = torch.randn(8, WIDTH)
            error = max(error, float((forward(x) - model(x)).abs().max()))
    print(json.dumps({"compiler": backend.compiler_manager.compiler.name, "error": error,
                      "decorated": get_compiler_backend(),
                      "pieces": compilation_counter.num_backend_compilations,
                      "inductor": compilation_counter.num_inductor_compiles + sum(counters["inductor"].values())}))
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        os.environ.setdefault("SGLANG_CACHE_DIR", folder)
        main()
