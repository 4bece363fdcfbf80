"""Keys of Kiln's entries in AOTAutogradCache, without what takes torch longest and no entry of Kiln's depends on:
Inductor's settings, the digests of torch's and Triton's own files, where a version says as much, and, field by field, a
text for its log. Of a graph they have its nodes instead of the Python code that torch prints of them, and of dense
tensors what differs between dense tensors. Torch's own part of the key stays, and so does its whole key for a graph
that calls Triton kernels. What is patched here is private to torch: without those names nothing is cached.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx
from torch._functorch._aot_autograd.autograd_cache import AOTAutogradCacheDetails
from torch._inductor.codecache import FxGraphCachePickler, FxGraphHashDetails
from torch._library.triton import get_triton_kernels_for_op
from torch._subclasses.fake_tensor import FakeTensor
from torch.fx.node import _get_qualified_name

_PLAIN = (type(None), bool, int, float, complex, str, type(...), torch.dtype, torch.device, torch.layout,
          torch.memory_format, fx.Node)
_TENSORS = (torch.Tensor, torch.nn.Parameter, FakeTensor)
_PRINTED = ("_graph", "_code", "_lineno_map", "_prologue_start")  # of a module: the graph, and code that is made of it


class _Unprintable(Exception):
    """A graph is not wholly said by the texts of its nodes."""


def _check(argument: Any) -> None:
    if isinstance(argument, _PLAIN):
        return
    if isinstance(argument, (list, tuple)):
        for each in argument:
            _check(each)
    elif isinstance(argument, dict):
        _check(list(argument))
        _check(list(argument.values()))
    elif isinstance(argument, slice):
        _check([argument.start, argument.stop, argument.step])
    else:
        raise _Unprintable


def _said(module: fx.GraphModule) -> Any:
    """What a key has of a module: all of torch's pickle but the code's text, in whose place the nodes are."""
    names: dict[Any, str] = {}
    nodes = []
    try:
        for node in module.graph.nodes:
            target = node.target
            if not isinstance(target, str):
                target = names.get(target) or names.setdefault(target, _get_qualified_name(target))
            _check(node.args)
            _check(node.kwargs)
            nodes.append(f"{node.name} {node.op} {target} {node.args!r} {node.kwargs!r}")
    except _Unprintable:
        return module
    return "\n".join(nodes), {name: each for name, each in module.__dict__.items() if name not in _PRINTED}


def _described(value: Any) -> Any:
    """What a key has of an input. A tensor that is not dense, has symbolic sizes or is of another class is torch's to
    describe."""
    if type(value) not in _TENSORS or value.layout is not torch.strided or value.is_quantized \
            or value._has_symbolic_sizes_strides:
        return value
    offset = value.storage_offset() if hasattr(value, "_is_inductor_static") else None
    return (str(value.dtype), tuple(value.shape), value.stride(), offset, str(value.device), value.requires_grad,
            value.is_conj(), value.is_neg(), value.is_inference())


def calls_triton(module: fx.GraphModule) -> bool:
    """Whether a graph of Dynamo's has kernels whose sources belong to its key."""
    for each in module.modules():
        for node in each.graph.nodes if isinstance(each, fx.GraphModule) else ():
            target = node.target
            if isinstance(target, torch._ops.HigherOrderOperator) and "triton" in target.__name__:
                return True
            overloads: list[Any] = [target]
            if isinstance(target, torch._ops.OpOverloadPacket):
                overloads = [getattr(target, name) for name in target.overloads()]  # type: ignore[no-untyped-call]
            if any(isinstance(op, torch._ops.OpOverload) and get_triton_kernels_for_op(op._name) for op in overloads):
                return True
    return False


def lighten(in_kiln: Callable[[], bool]) -> None:
    """Makes torch's keys so where ``in_kiln()``. Nothing happens where a name of torch's is missing."""
    if not hasattr(AOTAutogradCacheDetails, "get_triton_source_codes_from_gm") or not hasattr(
            FxGraphCachePickler, "debug_lines"):
        return
    fill, triton_sources = FxGraphHashDetails.__init__, AOTAutogradCacheDetails.get_triton_source_codes_from_gm
    explain = FxGraphCachePickler.debug_lines

    @functools.wraps(fill)
    def fill_in(self: Any, gm: fx.GraphModule, example_inputs: Sequence[Any], *args: Any, **kwargs: Any) -> None:
        plain = all(isinstance(each, (torch.Tensor, torch.SymInt, int, float)) for each in example_inputs)
        if not in_kiln() or not plain or calls_triton(gm):
            fill(self, gm, example_inputs, *args, **kwargs)
            return
        self.gm, self.example_inputs = _said(gm), [_described(each) for each in example_inputs]
        self.cache_key_tag = torch.compiler.config.cache_key_tag
        self.versions = (torch.__version__, torch.version.git_version, torch.version.cuda)
        gpus = [each.device for each in example_inputs if isinstance(each, torch.Tensor) and each.is_cuda]
        self.gpu = torch.cuda.get_device_name(gpus[0]) if gpus else None
        self.settings = (torch.are_deterministic_algorithms_enabled(), torch.get_default_dtype(),
                         torch.get_float32_matmul_precision())

    @functools.wraps(triton_sources)
    def sources(self: Any, gm: fx.GraphModule) -> list[str]:
        return [] if in_kiln() and not calls_triton(gm) else triton_sources(self, gm)

    @functools.wraps(explain)
    def debug_lines(self: Any, details: Any) -> list[str]:
        return [] if in_kiln() else explain(self, details)

    FxGraphHashDetails.__init__ = fill_in  # type: ignore[method-assign]
    AOTAutogradCacheDetails.get_triton_source_codes_from_gm = sources  # type: ignore[method-assign]
    FxGraphCachePickler.debug_lines = debug_lines  # type: ignore[method-assign,assignment]
