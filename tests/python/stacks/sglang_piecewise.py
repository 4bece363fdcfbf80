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
from torch._dynamo.utils import counters

WIDTH, HEADS, LAYERS = 64, 4, 3


@torch.library.custom_op("kiln_example::attention", mutates_args=("out",))
def attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    """Where SGLang cuts; a server's reads a cache of keys and values, and is not compiled."""
    split = [each.unflatten(-1, (HEADS, -1)).transpose(0, 1) for each in (q, k, v)]
    out.copy_(torch.nn.functional.scaled_dot_product_attention(*split, is_causal=True).transpose(0, 1).flatten(1))


@attention.register_fake
def _(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, out: torch.Tensor) -> None:
    del q, k, v, out


class Layer(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = torch.nn.Linear(WIDTH, 3 * WIDTH)
        self.project = torch.nn.Linear(WIDTH, WIDTH)
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)
        self.first, self.second = torch.nn.RMSNorm(WIDTH), torch.nn.RMSNorm(WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = self.qkv(self.first(x)).chunk(3, dim=-1)
        attended = torch.empty_like(q)
        torch.ops.kiln_example.attention(q, k, v, attended)
        x = x + self.project(attended)
        return x + self.down(torch.nn.functional.silu(self.up(self.second(x))))


class Decoder(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(Layer() for _ in range(LAYERS))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x)
        return x


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
