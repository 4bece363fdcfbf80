"""One process of tests/python/test_warm_start.py: compiles models with Kiln, and prints what that took.

    warm_child.py [--portable] [--save FILE | --load FILE]      FILE: torch's portable caches; --portable: with binaries

One JSON object: graphs that Kiln compiled, how their programs were got, AOTAutogradCache's hits, whether Inductor was
imported, and the largest difference to eager.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import kiln
import kiln.dynamo
import torch
from kiln._fleet import fleet_of
from kiln._graphs import GraphCompiler
from torch import nn
from torch._dynamo.utils import counters

counted: dict[str, Any] = {"graphs": 0, "outcomes": []}


def count() -> None:
    compile_graph, compile_program = GraphCompiler.compile, kiln.Client.compile

    def counting_graph(self: GraphCompiler) -> Any:
        counted["graphs"] += 1
        return compile_graph(self)

    def counting_program(*given: Any, **named: Any) -> kiln.Program:
        program = compile_program(*given, **named)
        counted["outcomes"].append(program.outcome)
        return program

    GraphCompiler.compile = counting_graph  # type: ignore[method-assign]
    kiln.Client.compile = counting_program  # type: ignore[method-assign]


def model() -> nn.Module:
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Dropout(0.5), nn.LayerNorm(16))


def results(net: nn.Module, run: Any, x: torch.Tensor) -> list[torch.Tensor]:
    """A training step's loss and gradients."""
    net.zero_grad()
    torch.manual_seed(1)
    loss = run(x).square().sum()
    loss.backward()
    return [loss.detach(), *(p.grad.clone() for p in net.parameters() if p.grad is not None)]


def with_an_eager_part(x: torch.Tensor, table: torch.Tensor) -> torch.Tensor:
    return torch.fft.rfft(x * 2).abs().sin() + torch.tensor([1.0, 2.0, 3.0, 4.0, 5.0]) + table[: x.shape[0]]


def main() -> None:
    count()
    if "--load" in sys.argv:
        assert torch.compiler.load_cache_artifacts(Path(sys.argv[-1]).read_bytes()) is not None
    options = {"portable": "--portable" in sys.argv}
    torch.manual_seed(0)
    net, x = model(), torch.randn(4, 8)
    fast = torch.compile(net, backend=kiln.dynamo.backend, options=options)
    pairs = zip(results(net, fast, x), results(net, net, x), strict=True)
    worst = max(float((have - want).abs().max()) for have, want in pairs)
    with torch.no_grad():
        table = torch.randn(9, 5)
        fast = torch.compile(with_an_eager_part, backend=kiln.dynamo.backend, dynamic=True, options=options)
        for rows in (3, 6):
            x = torch.randn(rows, 8)
            worst = max(worst, float((fast(x, table) - with_an_eager_part(x, table)).abs().max()))
    if "--save" in sys.argv:
        saved = torch.compiler.save_cache_artifacts()
        assert saved is not None
        Path(sys.argv[-1]).write_bytes(saved[0])
    if "KILN_COORDINATOR" in os.environ:
        fleet_of(os.environ["KILN_COORDINATOR"]).flush(60)  # the end of a process waits two seconds at most
    aot = counters["aot_autograd"]
    print(json.dumps({**counted, "error": worst, "inductor": "torch._inductor.ir" in sys.modules,
                      **{name: aot[f"autograd_cache_{name}"] for name in ("hit", "saved", "bypass")}}))


if __name__ == "__main__":
    main()
