"""What a model's outputs are measured by: its own in f64, and the largest difference from them."""

from __future__ import annotations

import contextlib
import copy
import inspect
import itertools
import math
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

Call = tuple[tuple[Any, ...], dict[str, Any]]
LOW = (torch.bfloat16, torch.float16)

def mapped(values: Any, function: Callable[[torch.Tensor], torch.Tensor]) -> Any:
    return tree_map(lambda each: function(each) if isinstance(each, torch.Tensor) else each, values)

def widened(values: Any, wide: torch.dtype) -> Any:
    return mapped(values, lambda each: each.to(wide) if each.dtype == torch.float32 else each)

def copied(values: Any) -> Any:
    return mapped(values, torch.clone)

def widen_attributes(value: Any, seen: set[int]) -> Any:
    """In place, of f32 tensors that a model keeps beside its parameters and buffers: a cache, say."""
    if isinstance(value, torch.Tensor):
        plain = value.dtype == torch.float32 and not isinstance(value, torch.nn.Parameter)
        return value.double() if plain else value
    if id(value) in seen:
        return value
    seen.add(id(value))
    if isinstance(value, list):
        value[:] = [widen_attributes(each, seen) for each in value]
    own = value if isinstance(value, dict) else getattr(value, "__dict__", None)
    if isinstance(own, dict) and not isinstance(value, type) and not inspect.isroutine(value) and \
            not inspect.ismodule(value):
        for key, each in own.items():
            own[key] = widen_attributes(each, seen)
    return value

def grouped_mm(a: torch.Tensor, b: torch.Tensor, offs: torch.Tensor | None = None) -> torch.Tensor:
    """``_grouped_mm``, which PyTorch has in no f64: groups of rows of ``a``, of its columns where both are matrices, or
    batches."""
    if offs is None:
        return a @ b
    bounds = [0, *offs.tolist()]
    spans = [slice(low, high) for low, high in itertools.pairwise(bounds)]
    if a.dim() == 2 and b.dim() == 2:
        return torch.stack([a[:, each] @ b[each] for each in spans])
    if b.dim() == 2:
        return torch.cat([a[i] @ b[:, each] for i, each in enumerate(spans)], 1)
    rows = torch.cat([a[each] @ b[i] for i, each in enumerate(spans)])
    return torch.cat([rows, rows.new_zeros(a.shape[0] - rows.shape[0], rows.shape[1])])

def scaled_mm(a: torch.Tensor, b: torch.Tensor, scales: tuple[torch.Tensor, torch.Tensor],
              bias: torch.Tensor | None, out_dtype: torch.dtype | None) -> torch.Tensor:
    """``_scaled_mm`` in f64, rounded once: cards sum 8-bit floats with fewer bits than f32 has."""
    for scale, shape in zip(scales, ((a.shape[0], 1), (1, b.shape[1])), strict=True):
        if scale.dtype != torch.float32 or (scale.numel() > 1 and scale.shape != shape):
            raise NotImplementedError("scales of blocks")
    whole = (a.double() * scales[0].double()) @ (b.double() * scales[1].double())
    return (whole if bias is None else whole + bias.double()).to(out_dtype or a.dtype)

class WideProducts(TorchDispatchMode):
    """Products of 8-bit floats run in f64; everything else runs as the model has it."""

    has_products = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._scaled_mm.default:
            self.has_products = True
            given = dict(zip(("a", "b", "scale_a", "scale_b", "bias", "scale_result", "out_dtype"), args, strict=False))
            given.update(kwargs or {})
            if given.get("scale_result") is not None:
                raise NotImplementedError("a scale of the result")
            return scaled_mm(given["a"], given["b"], (given["scale_a"], given["scale_b"]), given.get("bias"),
                             given.get("out_dtype"))
        return func(*args, **(kwargs or {}))

class Wide(TorchDispatchMode):
    """Where a model asks for f32 it gets f64."""

    supports_higher_order_operators = True  # whose bodies run outside
    has_loops = False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        self.has_loops |= isinstance(func, HigherOrderOperator)
        if func is torch.ops.aten.view.dtype:  # the bits of numbers
            return func(*args, **kwargs)

        def wide(each: Any) -> Any:
            return torch.float64 if each is torch.float32 else each

        args, kwargs = tree_map(wide, args), tree_map(wide, kwargs)
        if func is torch.ops.aten._grouped_mm.default and args[0].dtype == torch.float64:
            return grouped_mm(*args[:3], **{key: value for key, value in kwargs.items() if key == "offs"})
        return func(*args, **kwargs)

@contextlib.contextmanager
def all_wide() -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    mode = Wide()
    try:
        with mode:
            yield
    finally:
        torch.set_default_dtype(before)
        if mode.has_loops:  # torch compiles them, and would use here again what it compiled in this mode
            torch._dynamo.reset()

def scale_of(value: Any) -> float:
    """The largest finite magnitude."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return 0.0
    value = value.double()
    return float(torch.where(value.isfinite(), value.abs(), 0.0).max().item())

def difference(have: list[Any], want: list[Any], least: float = 0.0) -> float:
    """The largest difference of an output over its largest value; infinite where shapes or integers differ. Outputs
    smaller than ``least`` of the largest one count as that large: some gradients are sums that cancel to nothing."""
    if len(have) != len(want):
        return float("inf")
    worst, floor = 0.0, least * max(map(scale_of, want), default=0.0)
    for a, b in zip(have, want, strict=True):
        if not isinstance(b, torch.Tensor):
            if a != b:
                return float("inf")
            continue
        if not isinstance(a, torch.Tensor) or a.shape != b.shape:
            return float("inf")
        if not b.is_floating_point():
            if not torch.equal(a.cpu(), b.cpu()):
                return float("inf")
            continue
        x, y = a.detach().cpu().double(), b.detach().cpu().double()
        same = (x == y) | (x.isnan() & y.isnan())
        off = torch.where(same, 0.0, (x - y).abs())
        found = off.max().item() / max(scale_of(y), floor, 1e-30) if y.numel() else 0.0
        worst = max(worst, float("inf") if math.isnan(found) else found)
    return worst

def reference(plain: torch.nn.Module, calls: list[Call], run: Callable[[torch.nn.Module, Call], list[Any]],
              want: list[list[Any]], least: float) -> tuple[list[list[Any]], str]:
    """The outputs of every call in f64, and "f64"; where PyTorch has no such thing, in f32 for a model of a lower
    precision, and "f32"; else PyTorch's own, its products of 8-bit floats in f64, and "own"."""
    low = any(each.dtype in LOW for each in plain.parameters())
    attempts: list[tuple[str, torch.dtype, Any, Any]] = [
        ("f64", torch.float64, torch.nn.Module.double, all_wide),  # models themselves ask for f32 here and there
        ("f64", torch.float64, torch.nn.Module.double, contextlib.nullcontext)]
    if low:
        attempts.append(("f32", torch.float32, torch.nn.Module.float, contextlib.nullcontext))
    for name, dtype, widen, mode in attempts:
        try:
            wide, given = widen(copy.deepcopy(plain)), [copied(widened(call, dtype)) for call in calls]
            if dtype == torch.float64:
                widen_attributes(wide, set())
            with mode():
                made = [run(wide, call) for call in given]
        except Exception:
            continue
        # A model that is quantised, or that takes its dtype from a number, is another one in f64.
        if all(difference(a, b, least) < (5e-2 if low else 1e-2) for a, b in zip(want, made, strict=True)):
            return made, name
    with contextlib.suppress(NotImplementedError), WideProducts() as products:
        made = [run(copy.deepcopy(plain), copied(call)) for call in calls]
        return (made if products.has_products else want), "own"
    return want, "own"
