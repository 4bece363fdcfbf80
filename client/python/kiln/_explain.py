"""``kiln.explain``: what became of a model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch

from kiln import dynamo
from kiln._graphs import GraphReport, place_of
from kiln.client import Program


class KernelLine(NamedTuple):
    """One kernel of a program: its family, the schedule that won, and its measured time, 0 where there is none."""

    family: str
    schedule: str
    best_us: float
    launches: int


class PartitionLine(NamedTuple):
    """Ops that run together: in Kiln, with the kernels that they became, in Inductor, or eager."""

    in_kiln: bool
    ops: list[str]
    kernels: list[KernelLine]
    in_inductor: bool = False


class RefusedLine(NamedTuple):
    """An op that runs eager or in Inductor, why, and the line of the source it comes from."""

    op: str
    why: str
    place: str
    in_inductor: bool = False


class GraphLine(NamedTuple):
    """One graph of AOTAutograd."""

    name: str  #: "forward", "backward" or "inference"
    partitions: list[PartitionLine]
    refused: list[RefusedLine]
    failures: list[str]


class Explanation(NamedTuple):
    """The report on a model; ``print`` it."""

    graphs: list[GraphLine]

    def __str__(self) -> str:
        lines = []
        for graph in self.graphs:
            lines.append(f"{graph.name}: {_count(len(graph.partitions), 'partition')}")
            for part in graph.partitions:
                launches = sum(kernel.launches for kernel in part.kernels)
                where = f"kiln   {_count(launches, 'launch', 'launches')}" if part.in_kiln else (
                    "Inductor" if part.in_inductor else "eager")
                lines.append(f"  {where}: {_listed(part.ops)}")
                lines += [f"    {kernel.family}  {kernel.schedule}" + (f"  {kernel.best_us:.1f} us" if kernel.best_us
                                                                       else "") for kernel in part.kernels]
            lines += [f"  {each.op} runs {'in Inductor' if each.in_inductor else 'eager'}: {each.why.splitlines()[0]}"
                      + (f" ({each.place})" if each.place else "") for each in graph.refused]
            lines += [f"  a part runs eager: {each}" for each in graph.failures]
        return "\n".join(lines)


def _count(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def _listed(ops: list[str]) -> str:
    names = [op.removeprefix("aten.").removesuffix(".default") for op in ops]
    return ", ".join(names[:12]) + (f" and {len(names) - 12} more" if len(names) > 12 else "")


def _kernels(program: Program) -> list[KernelLine]:
    manifest = json.loads(program.manifest)
    launched = [launch["kernel"] for launch in manifest["launches"]]
    return [KernelLine(kernel["family"], kernel["schedule"], float(kernel.get("report", {}).get("best_us", 0)),
                       launched.count(index)) for index, kernel in enumerate(manifest["kernels"])]


def _described(report: GraphReport) -> GraphLine:
    parts = [PartitionLine(program is not None, [str(node.target) for node in partition.nodes
                                                 if node.op == "call_function" and "getitem" not in str(node.target)],
                           _kernels(program) if program is not None else [],
                           not report.in_inductor.isdisjoint(partition.nodes))
             for partition, program in report.partitions]
    refused = [RefusedLine(each.op, each.why, place_of(each.node), each.node in report.in_inductor)
               for each in report.refused]
    return GraphLine(report.name, parts, refused, report.failures)


def call_with_backward(compiled: Callable[..., Any], model: Callable[..., Any], args: Sequence[Any],
                       kwargs: Mapping[str, Any]) -> None:
    """Calls ``compiled``, and its backward where the outputs need gradients. Gradients are kept nowhere."""
    outputs = compiled(*args, **kwargs)
    needing = [each for each in torch.utils._pytree.tree_leaves(outputs)
               if isinstance(each, torch.Tensor) and each.requires_grad]
    if needing:
        parameters = [each for each in torch.utils._pytree.tree_leaves(
            (args, kwargs, list(model.parameters()) if isinstance(model, torch.nn.Module) else []))
            if isinstance(each, torch.Tensor) and each.requires_grad]
        torch.autograd.grad([each.sum() for each in needing], parameters, allow_unused=True)


def explain(model: Callable[..., Any], *inputs: Any, mode: str | None = None,
            options: Mapping[str, Any] | None = None) -> Explanation:
    """Compiles a model for these inputs and says what became of it: partitions, kernels, and what runs eager and why.

    Where the outputs need gradients, the backward is compiled too.

    >>> import torch, kiln
    >>> print(kiln.explain(torch.nn.Softmax(-1), torch.ones(8, 16)))    # doctest: +ELLIPSIS
    inference: 1 partition
      kiln   1 launch: _softmax
        row_reduction ...
    """
    reports: list[GraphReport] = []

    def backend(module: torch.fx.GraphModule, example_inputs: Any) -> Any:
        dynamo.watch(reports)
        try:
            return dynamo.backend(module, example_inputs, mode=mode, options=options)
        finally:
            dynamo.watch(None)

    torch._dynamo.reset()
    call_with_backward(torch.compile(model, backend=backend), model, inputs, {})
    torch._dynamo.reset()
    return Explanation([_described(report) for report in reports])
