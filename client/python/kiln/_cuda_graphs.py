"""Compiled graphs as CUDA graphs, through torch's CUDA graph trees: what Inductor does in the same modes.

The trees own the memory of what a graph returns, which the next call of the model may overwrite, and record a graph
again when the address of a parameter or a size changes. Their interface is private to torch: where a name is missing,
nothing is captured, and that is said once.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch._guards import TracingContext

from kiln._settings import Settings

Boxed = Callable[[list[Any]], Sequence[Any]]

try:
    from torch._dynamo.backends.cudagraphs import find_input_mutations, get_device_node_mapping, get_stack_traces
    from torch._inductor.cudagraph_utils import check_multiple_devices_or_any_cpu_nodes, get_placeholder_info
    from torch._inductor.utils import count_tangents, get_first_incompatible_cudagraph_node
except ImportError as error:
    _missing: str | None = str(error)
else:
    _missing = None


def _trees() -> Any:
    """torch's module, which brings all of Inductor: only who captures waits for that. Raises ImportError."""
    return importlib.import_module("torch._inductor.cudagraph_trees")


@dataclass
class Capture:
    """How a graph is captured. It can be pickled."""

    kind: str  #: "forward", "backward" or "inference"
    device_index: int
    static: list[int]  #: inputs that are read where they lie: parameters, and what a forward saved for its backward
    mutated: list[int]
    placeholders: list[Any]  #: torch's own notes on each
    stack_traces: list[str | None]  #: of each output


class CapturePlanner:
    """Decides, graph by graph of one torch.compile, which are captured."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.forward_is_captured = False  #: of what was planned so far

    def plan(self, module: fx.GraphModule, kind: str, has_steps: bool) -> Capture | None:
        """None: the graph is not captured; where the caller asked for it, the reason is said."""
        if not self._settings.captures:
            return None
        why_not = self._obstacle(module, kind, has_steps)
        if kind == "forward":
            self.forward_is_captured = why_not is None
        if why_not is not None:
            if why_not:
                Settings.say_once(f"a graph is launched kernel by kernel, not as a CUDA graph: {why_not}", "")
            return None
        graph = module.graph
        return Capture(kind, next(iter(get_device_node_mapping(module))).index or 0, _static_inputs(module, kind),
                       sorted(find_input_mutations(graph)), get_placeholder_info(graph), get_stack_traces(module))

    def _obstacle(self, module: fx.GraphModule, kind: str, has_steps: bool) -> str | None:
        """Why the graph cannot be captured; empty: nobody needs to know."""
        devices = {value.device.type for node in module.graph.nodes
                   if isinstance(value := node.meta.get("val"), torch.Tensor)}
        if "cuda" not in devices or not has_steps:
            return ""
        if (missing := _missing_name()) is not None:
            return f"this PyTorch's CUDA graph trees are not as Kiln knows them ({missing})"
        if self._settings.now:
            return "option 'now' swaps programs between calls"
        if kind == "backward" and not self.forward_is_captured:
            return ""
        reason = check_multiple_devices_or_any_cpu_nodes(get_device_node_mapping(module))
        if reason is not None:
            return reason.removeprefix("skipping cudagraphs due to ").splitlines()[0]
        node = get_first_incompatible_cudagraph_node(module)
        return None if node is None else f"{node.target} cannot be captured"


def _missing_name() -> str | None:
    if _missing is not None:
        return _missing
    try:
        trees = _trees()
    except ImportError as error:
        return str(error)
    names = ("cudagraphify_impl", "get_manager", "reset_cudagraph_trees")
    return next((name for name in names if not hasattr(trees, name)), None)


def _static_inputs(module: fx.GraphModule, kind: str) -> list[int]:
    if kind == "backward":
        return list(range(count_tangents(module)))
    context = TracingContext.try_get()
    metadata = context.fw_metadata if context is not None else None
    return list(metadata.static_input_indices) if metadata is not None else []


def captured(function: Boxed, capture: Capture | None) -> Boxed:
    """The function as CUDA graphs, recorded when it is first called, and for each size anew."""
    if capture is None:
        return function
    replay: Boxed | None = None

    def run(inputs: list[Any]) -> Sequence[Any]:
        nonlocal replay
        if replay is None:
            replay = _trees().cudagraphify_impl(
                function, inputs, capture.static, device_index=capture.device_index,
                stack_traces=capture.stack_traces, is_backward=capture.kind == "backward",
                is_inference=capture.kind == "inference", placeholders=tuple(capture.placeholders),
                mutated_input_idxs=tuple(capture.mutated))
        return replay(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def announced(function: Boxed, device_index: int) -> Boxed:
    """A backward that is not captured, of a forward that is: the trees are told that it runs."""

    def run(inputs: list[Any]) -> Sequence[Any]:
        manager = _trees().get_manager(device_index, create_if_none_exists=False)
        if manager is not None:
            manager.set_to_running_backward()
        return function(inputs)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def reset() -> None:
    """Gives back what was captured."""
    trees = sys.modules.get("torch._inductor.cudagraph_trees")
    if trees is not None:
        trees.reset_cudagraph_trees()
