"""What one call of a compiled graph keeps the host, beyond Dynamo's guards and AOTAutograd's wrapper: Kiln's part beside
Inductor's, for a sum of small tensors, by their number. On a CPU the kernel itself runs inside of both. Needs the wheel,
or KILN_LIBRARY and PYTHONPATH=client/python.

    python3 tests/gpu/call_overhead.py [--device cpu] [--tensors 1,16,64,256]

Prints the least of many rounds in microseconds, and the line a + b * tensors through the first and the last row. `library`
is the part of Kiln's that kiln_program_launch() takes, with the driver's launches in it: a kernel reads at most 32 tensors, so
that 256 of them are nine launches. `python` is the line of what is left."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from typing import Any

import kiln.dynamo
import torch
from kiln._steps import CompiledGraph
from torch._inductor.output_code import CompiledFxGraph


def microseconds(call: Callable[[], object], device: str) -> float:
    rounds = []
    for _ in range(60):
        begun = time.perf_counter()
        for _ in range(200):
            call()
        rounds.append((time.perf_counter() - begun) / 200)
        if device == "cuda":
            torch.cuda.synchronize()
    return min(rounds) * 1e6


def inner(kind: type, backend: Any, inputs: list[torch.Tensor]) -> Callable[[list[torch.Tensor]], Any]:
    """The compiled graph that AOTAutograd's wrapper calls with a list, which it empties."""
    called: list[Any] = []
    call = kind.__call__

    def note(self: Any, args: list[torch.Tensor]) -> Any:
        called.append(self)
        return call(self, args)

    def total(*tensors: torch.Tensor) -> torch.Tensor:
        result = tensors[0] * 2
        for each in tensors[1:]:
            result = result + each
        return result

    torch._dynamo.reset()
    kind.__call__ = note  # type: ignore[attr-defined]
    try:
        torch.compile(total, backend=backend, dynamic=False)(*inputs)
    finally:
        kind.__call__ = call  # type: ignore[attr-defined]
    compiled = called[-1]
    compiled(list(inputs))
    return compiled  # type: ignore[no-any-return]


def library_call(compiled: CompiledGraph, inputs: list[torch.Tensor]) -> Callable[[], object]:
    """kiln_program_launch() of the graph's one program, as its Launcher calls it."""
    (step,) = compiled.steps
    launcher: Any = step.run
    function, arguments = launcher._function, []
    def note(*given: Any) -> int:
        arguments[:] = given
        return int(function(*given))

    launcher._function = note
    outputs = compiled(list(inputs))  # live while their addresses are written to
    launcher._function = function
    arena = torch.empty(launcher._static.arena_bytes + 4096, dtype=torch.uint8, device=inputs[0].device)
    arguments[3] = -(-arena.data_ptr() // 4096) * 4096
    return lambda kept=(outputs, arena): function(*arguments)  # type: ignore[misc]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--tensors", default="1,16,64,256")
    options = parser.parse_args()
    torch.set_num_threads(1)
    counts = [int(each) for each in options.tensors.split(",")]
    backends = {"kiln": (CompiledGraph, kiln.dynamo.backend), "inductor": (CompiledFxGraph, "inductor")}
    taken: dict[str, list[float]] = {name: [] for name in (*backends, "library", "python")}
    print("tensors  " + "  ".join(f"{name:>9}" for name in taken))
    with torch.no_grad():
        for count in counts:
            inputs = [torch.ones(8, device=options.device) for _ in range(count)]
            for name, (kind, backend) in backends.items():
                run = inner(kind, backend, inputs)
                taken[name].append(microseconds(lambda run=run: run(list(inputs)), options.device))  # type: ignore[misc]
                if name == "kiln":
                    taken["library"].append(microseconds(library_call(run, inputs), options.device))
                    taken["python"].append(taken[name][-1] - taken["library"][-1])
            print(f"{count:>7}  " + "  ".join(f"{each[-1]:>6.1f} us" for each in taken.values()), flush=True)
    if len(counts) > 1:
        for name, each in taken.items():
            slope = (each[-1] - each[0]) / (counts[-1] - counts[0])
            print(f"{name}: {each[0] - slope * counts[0]:.1f} us + {slope:.3f} us a tensor")


if __name__ == "__main__":
    main()
