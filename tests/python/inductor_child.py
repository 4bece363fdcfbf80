"""One process of tests/python/test_inductor.py: compiles with unmodified Inductor, and prints what that took.

    inductor_child.py infer|train|gemm

One JSON object: how often Inductor generated code, its caches' counters, how often products were timed.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import Any

import torch
import torch._inductor.config
from kiln._fleet import fleet_of
from torch._inductor import compile_fx
from torch._inductor.cpu_vec_isa import VecISA
from torch._dynamo.utils import counters


torch._inductor.config.cpp_cache_precompile_headers = False  # a process needs one header once
# What else than AVX there is would be asked by processes that import torch, three in each that compiles.
VecISA.check_build = lambda self, code: False  # type: ignore[method-assign]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.GELU(), torch.nn.LayerNorm(16))


def main(what: str) -> dict[str, Any]:
    counted = {"compiles": 0, "timed": 0}
    generate = compile_fx.fx_codegen_and_compile

    def generate_and_count(*arguments: Any, **named: Any) -> Any:
        counted["compiles"] += 1
        time.sleep(float(os.environ.get("CHILD_COMPILE_S", "0")))
        if os.environ.get("CHILD_DIES"):
            print("compiling", flush=True)
            time.sleep(600)
        return generate(*arguments, **named)

    compile_fx.fx_codegen_and_compile = generate_and_count
    net, x = model(), torch.ones(4, 8)
    error = 0.0
    if what == "infer":
        with torch.no_grad():
            error = float((torch.compile(net)(x) - net(x)).abs().max())
    elif what == "train":
        loss = torch.compile(net)(x).square().sum()
        loss.backward()
        got = [p.grad.clone() for p in net.parameters()]
        net.zero_grad()
        net(x).square().sum().backward()
        error = max(float((p.grad - g).abs().max()) for p, g in zip(net.parameters(), got, strict=True))
    else:
        from torch._inductor.codecache import PersistentCache

        class Choice:
            def __init__(self, name: str) -> None:
                self.name = name

            def hash_key(self) -> str:
                return self.name

        def benchmark(choices: list[Choice]) -> dict[Choice, float]:
            counted["timed"] += 1
            time.sleep(float(os.environ.get("CHILD_COMPILE_S", "0")))
            return {choice: float(i) if i else float("inf") for i, choice in enumerate(choices)}

        choices = [Choice(name) for name in ("aten", "cpp_gemm_0", "cpp_gemm_1")]
        timings = PersistentCache().lookup(choices, "mm", "[(64,64),(64,64)]", benchmark)
        assert [timings[choice] for choice in choices] == [float("inf"), 1.0, 2.0], timings
    if "KILN_COORDINATOR" in os.environ:
        fleet_of(os.environ["KILN_COORDINATOR"]).flush(60)  # the end of a process waits two seconds at most
    inductor, aot = counters["inductor"], counters["aot_autograd"]
    return {**counted, "error": error, "fx_hits": inductor["fxgraph_cache_hit"],
            "aot_hits": aot["autograd_cache_hit"], "switch": os.environ.get("TORCHINDUCTOR_FX_GRAPH_REMOTE_CACHE")}


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1])))
