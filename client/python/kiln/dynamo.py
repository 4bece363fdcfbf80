"""``torch.compile(model, backend="kiln")``.

Dynamo's graphs go through AOTAutograd without decompositions; what comes out, forward, backward or inference, is
cut into partitions that Kiln takes and partitions that run eager (``kiln._partition``).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import fx
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.decorators import disable as _disable
from torch._dynamo.utils import counters
from torch._functorch.aot_autograd import aot_module_simplified
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import TracingContext

from kiln import _cuda_graphs, _warm_start
from kiln._cuda_graphs import Boxed
from kiln._settings import Settings
from kiln._steps import CompiledGraph

if TYPE_CHECKING:
    from kiln._graphs import GraphCompiler, GraphReport

_watch = threading.local()


def watch(reports: list[GraphReport] | None) -> None:
    """Graphs that are compiled from here on, by this thread, are appended to ``reports``."""
    _watch.reports = reports


def _report_strides(compiler: GraphCompiler, module: fx.GraphModule) -> None:
    """Tells AOTAutograd of outputs that lie otherwise than it inferred, so that the backward expects them so."""
    context = TracingContext.try_get()
    if context is None or context.output_strides is None:
        return
    output = next(node for node in module.graph.nodes if node.op == "output")
    for node in output.args[0]:
        context.output_strides.append(compiler.strides.get(node) if isinstance(node, fx.Node) else None)


def _has_effect_tokens(module: fx.GraphModule) -> bool:
    return any(getattr(node.target, "__name__", "") == "with_effects" for node in module.graph.nodes)


def _compiler(settings: Settings, name: str, reports: list[GraphReport] | None, is_cached: bool,
              captures: _cuda_graphs.CapturePlanner) -> Any:
    def compile(module: fx.GraphModule, example_inputs: Sequence[Any]) -> tuple[Boxed | CompiledGraph, str]:
        from kiln._graphs import GraphCompiler  # not needed where all graphs come from a cache

        compiler = GraphCompiler(module, example_inputs, settings, name, captures)
        function = compiler.compile()
        if reports is not None:
            reports.append(compiler.report)
        if name != "backward":
            _report_strides(compiler, module)
        # What failed may work the next time, and torch passes no effect tokens to a graph that it has loaded.
        why_not = compiler.report.failures + ["it has effects"] * _has_effect_tokens(module)
        return function, "; ".join(why_not)

    if is_cached:
        return _warm_start.cacheable(compile, settings)

    def run(module: fx.GraphModule, example_inputs: Sequence[Any]) -> Boxed:
        function = compile(module, example_inputs)[0]
        return function.runnable() if isinstance(function, CompiledGraph) else function

    return run


disable: Callable[..., Any] = _disable  # which is untyped


def _hidden(compile: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler of backwards that Dynamo traces neither while it works nor in what it makes."""

    def run(*args: Any, **kwargs: Any) -> Any:
        made = disable(compile, reason="do not trace backward compiler function")(*args, **kwargs)
        return disable(made, reason="do not trace generated backwards pass")

    return run


def _through_aot_autograd(module: fx.GraphModule, example_inputs: Sequence[Any], forward: Any, backward: Any,
                          inference: Any) -> Callable[..., Any]:
    """What torch's ``aot_autograd()`` does, which for its debug files imports all of Inductor first."""
    named = {"inference_compiler": inference, "partition_fn": min_cut_rematerialization_partition,
             "keep_inference_input_mutations": True}
    if os.environ.get("TORCH_COMPILE_DEBUG", "0") == "1" or any(isinstance(each, (list, tuple, dict))
                                                                for each in example_inputs):
        compiled: Callable[..., Any] = aot_autograd(fw_compiler=forward, bw_compiler=backward, **named)(
            module, example_inputs)
        return compiled
    if hasattr(backward, "compiler_fn"):
        backward.compiler_fn = _hidden(backward.compiler_fn)
    else:
        backward = _hidden(backward)
    counters["aot_autograd"]["total"] += 1
    made = aot_module_simplified(module, example_inputs, fw_compiler=forward, bw_compiler=backward, **named)
    compiled = disable(made, reason="do not trace AOT-compiled graph")
    counters["aot_autograd"]["ok"] += 1
    return compiled


def backend(module: fx.GraphModule, example_inputs: Sequence[Any], *, mode: str | None = None,
            options: Mapping[str, Any] | None = None, name: str | None = None) -> Callable[..., Any]:
    """The backend that torch.compile finds under the name "kiln".

    Args:
        mode: "default", "max-autotune", "reduce-overhead", "max-autotune-no-cudagraphs".
        options: "coordinator", "mode", "deadline_s", "now", "strict", "verify" (as Client.compile has them),
            "portable": entries of AOTAutogradCache have the programs' binaries too, and
            "uncovered": "inductor" compiles what Kiln does not cover, as far as Inductor can; else it runs "eager".
    """
    del name  # of the graph, which newer versions of torch pass
    return compile_graph(module, example_inputs, Settings(mode, options))


def compile_graph(module: fx.GraphModule, example_inputs: Sequence[Any], settings: Settings) -> Callable[..., Any]:
    """Compiles a graph of Dynamo's to a function of its inputs."""
    reports = getattr(_watch, "reports", None)
    is_cached = reports is None and _warm_start.is_available()  # an entry has no report
    captures = _cuda_graphs.CapturePlanner(settings)
    forward, backward, inference = (_compiler(settings, kind, reports, is_cached, captures)
                                    for kind in ("forward", "backward", "inference"))
    with _warm_start.caching(settings) if is_cached else contextlib.nullcontext():
        return _through_aot_autograd(module, example_inputs, forward, backward, inference)


def reset() -> None:
    """Called by torch._dynamo.reset(): nothing else is kept between compiles but programs, which stay right."""
    _cuda_graphs.reset()


backend.reset = reset  # type: ignore[attr-defined]
